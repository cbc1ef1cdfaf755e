//! The changes of a table in etcd: a watch.

use std::string::FromUtf8Error;

use etcd_client::{Client, Error, Event, EventType, WatchOptions, WatchStream};

use super::connector::failed;
use super::wire::{key, number_of, record, revision_of};
use super::{LONGEST_ANSWER, NAME, WATCH};
use crate::store::{Change, Changes, Reply, Revision, StoreError, Update};

pub(super) struct EtcdChanges {
    stream: WatchStream,
    after: Revision,
    is_compacted: bool,
}

// === impl EtcdChanges ===

impl EtcdChanges {
    pub(super) async fn open(
        client: &Client,
        prefix: &str,
        after: Revision,
    ) -> Result<Self, Error> {
        // Not fragmented: the client does not show which part is the last, and a watch reports whole
        // revisions only. Progress is reported by the server alone: reports that are requested
        // overtake events in some versions.
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(number_of(after) + 1)
            .with_progress_notify();
        let mut watches = client.watch_client().max_decoding_message_size(LONGEST_ANSWER);
        let stream = watches.watch(prefix, Some(options)).await?;
        Ok(Self { stream, after, is_compacted: false })
    }

    async fn receive(&mut self) -> Result<Update, StoreError> {
        loop {
            if self.is_compacted {
                return Ok(Update::Compacted);
            }
            let ended = || StoreError::unavailable(NAME, WATCH, "the watch has ended");
            let answer = self.stream.message().await.map_err(failed(WATCH))?.ok_or_else(ended)?;
            if answer.compact_revision() != 0 {
                self.is_compacted = true;
            } else if answer.canceled() {
                // It was permitted a moment ago: it has no leader, or its token has expired.
                let reason = format!("the watch was cancelled: {}", answer.cancel_reason());
                return Err(StoreError::unavailable(NAME, WATCH, reason));
            } else if !answer.created() {
                let changes: Result<Vec<Change>, _> = answer.events().iter().map(change).collect();
                let changes = changes.map_err(|error| StoreError::refused(NAME, WATCH, error))?;
                let current = || revision_of(answer.header().map_or(0, |it| it.revision()));
                // While a watch catches up, the header is ahead of the events.
                let revision = changes.last().map_or_else(current, Change::revision);
                if revision > self.after {
                    self.after = revision;
                    return Ok(Update::Changed { revision, changes });
                }
            }
        }
    }
}

fn change(event: &Event) -> Result<Change, FromUtf8Error> {
    let found = event.kv().expect("an event has a key");
    match event.event_type() {
        EventType::Put => record(found).map(Change::Put),
        EventType::Delete => {
            let revision = revision_of(found.mod_revision());
            Ok(Change::Deleted { key: key(found)?, revision })
        }
    }
}

impl Changes for EtcdChanges {
    fn next(&mut self) -> Reply<'_, Update> {
        Box::pin(self.receive())
    }
}
