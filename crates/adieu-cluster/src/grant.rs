//! The owner of a shard, as far as a node has seen. The grants of one shard are ordered.

use crate::records::ShardRecord;
use crate::store::Revision;
use crate::transport::Peer;
use crate::view::Versioned;

/// The newest known state of a shard's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Grant {
    /// The table has no record of the shard, as far as seen.
    #[default]
    Absent,
    /// No node owns it, since this revision. The next grant has this epoch or a higher one.
    Free { since: Revision },
    /// This incarnation of a node owns it.
    Owned { owner: Peer, epoch: Revision },
}

// === impl Grant ===

impl Grant {
    /// Reads the grant from a shard's record.
    pub(crate) fn of(record: Option<&Versioned<ShardRecord>>) -> Self {
        let Some(record) = record else { return Self::Absent };
        match record.value.ownership() {
            None => Self::Free { since: record.changed },
            Some(it) => {
                let owner = Peer { id: it.owner.clone(), incarnation: it.incarnation };
                Self::Owned { owner, epoch: it.epoch }
            }
        }
    }

    /// Returns the lowest epoch that is not outdated.
    pub(crate) fn floor(&self) -> Revision {
        match self {
            Self::Absent => Revision::default(),
            Self::Free { since } => *since,
            Self::Owned { epoch, .. } => *epoch,
        }
    }

    /// Returns whether this grant came after the other one.
    ///
    /// A grant's epoch is the revision of the record that it replaces. So a grant follows a free
    /// record of the same number.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let place = |grant: &Self| (grant.floor(), matches!(grant, Self::Owned { .. }));
        place(self) > place(other)
    }

    /// Returns the owner and the epoch.
    pub(crate) fn owned(&self) -> Option<(&Peer, Revision)> {
        match self {
            Self::Owned { owner, epoch } => Some((owner, *epoch)),
            Self::Absent | Self::Free { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{NodeId, Ownership};

    fn record(value: ShardRecord, changed: u64) -> Versioned<ShardRecord> {
        let (created, changed) = (Revision::new(1), Revision::new(changed));
        Versioned { value, created, changed, session: None }
    }

    fn ownership(epoch: u64) -> Ownership {
        let (incarnation, epoch) = (Revision::new(2), Revision::new(epoch));
        Ownership { owner: NodeId::new("a").unwrap(), incarnation, epoch }
    }

    /// The records of a shard that is created, placed, moved and released.
    #[test]
    fn each_grant_of_a_shard_is_newer_than_the_ones_before() {
        let to = NodeId::new("b").unwrap();
        let records = [
            None,
            Some(record(ShardRecord::Free, 3)),
            Some(record(ShardRecord::Owned(ownership(3)), 5)),
            Some(record(ShardRecord::Owned(ownership(6)), 7)),
            Some(record(ShardRecord::Free, 8)),
            Some(record(ShardRecord::Owned(ownership(8)), 9)),
        ];
        let grants: Vec<Grant> = records.iter().map(|it| Grant::of(it.as_ref())).collect();
        for (at, grant) in grants.iter().enumerate() {
            for (other, before) in grants.iter().enumerate() {
                assert_eq!(grant.is_newer_than(before), at > other, "{grant:?}, {before:?}");
            }
        }
        // A request to move grants nothing.
        let moving = ShardRecord::Moving { ownership: ownership(3), to };
        assert_eq!(Grant::of(Some(&record(moving, 6))), grants[2]);
    }
}
