//! Records and commits in etcd's terms.

use std::string::FromUtf8Error;
use std::sync::Arc;

use etcd_client::{Compare as Condition, CompareOp, KeyValue, PutOptions, Txn, TxnOp};

use crate::store::commit::{Compare, PutSession};
use crate::store::{Commit, Record, Revision, SessionId, Write};

pub(super) fn revision_of(revision: i64) -> Revision {
    Revision::new(u64::try_from(revision).unwrap_or(0))
}

/// etcd counts in positive numbers of 64 bits, and never gets to the last.
pub(super) fn number_of(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

pub(super) fn key(found: &KeyValue) -> Result<Arc<str>, FromUtf8Error> {
    String::from_utf8(found.key().to_vec()).map(Into::into)
}

pub(super) fn record(found: &KeyValue) -> Result<Record, FromUtf8Error> {
    Ok(Record {
        key: key(found)?,
        value: String::from_utf8(found.value().to_vec())?.into(),
        created: revision_of(found.create_revision()),
        changed: revision_of(found.mod_revision()),
        session: (found.lease() != 0).then(|| SessionId::new(found.lease())),
    })
}

/// Returns the first key after all that begin with `prefix`; `\0` stands for the end of all keys.
pub(super) fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // No byte of UTF-8 is 0xff, so the last one can be raised.
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

pub(super) fn transaction(commit: &Commit) -> Txn {
    let conditions: Vec<Condition> = commit.compares.iter().map(condition).collect();
    let operations: Vec<TxnOp> = commit.writes.iter().map(operation).collect();
    Txn::new().when(conditions).and_then(operations)
}

/// Returns the session that new records belong to, if there is one.
pub(super) fn session_of(commit: &Commit) -> Option<SessionId> {
    commit.writes.iter().find_map(|write| match write {
        Write::Put { session: PutSession::Under(session), .. } => Some(*session),
        Write::Put { .. } | Write::Delete { .. } => None,
    })
}

/// A record that is not there has the revisions 0, and no record has.
fn condition(compare: &Compare) -> Condition {
    use CompareOp::{Equal, Greater, Less, NotEqual};
    let key = compare.key().as_bytes();
    match compare {
        Compare::Absent(_) => Condition::create_revision(key, Equal, 0),
        // Never holds: no number is less than 0.
        Compare::CreatedAt(_, at) | Compare::Unchanged(_, at) if at.get() == 0 => {
            Condition::create_revision(key, Less, 0)
        }
        Compare::CreatedAt(_, at) => Condition::create_revision(key, Equal, number_of(*at)),
        Compare::Unchanged(_, at) => Condition::mod_revision(key, Equal, number_of(*at)),
        // Always holds.
        Compare::NotCreatedAt(_, at) if at.get() == 0 => {
            Condition::create_revision(key, Greater, -1)
        }
        Compare::NotCreatedAt(_, at) => Condition::create_revision(key, NotEqual, number_of(*at)),
    }
}

fn operation(write: &Write) -> TxnOp {
    match write {
        Write::Put { key, value, session } => {
            let options = match session {
                PutSession::None => None,
                // Without this, a put takes the record out of its session, and it never dies.
                PutSession::Keep => Some(PutOptions::new().with_ignore_lease()),
                PutSession::Under(session) => Some(PutOptions::new().with_lease(session.get())),
            };
            TxnOp::put(key.as_bytes(), value.as_bytes(), options)
        }
        Write::Delete { key } => TxnOp::delete(key.as_bytes(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        assert_eq!(prefix_end("a/b/"), b"a/b0");
        assert_eq!(prefix_end("é"), [0xc3, 0xaa]);
        assert_eq!(prefix_end(""), [0]);
    }
}
