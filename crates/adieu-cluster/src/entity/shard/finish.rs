//! The receiver of the outcome of a message that this node has routed.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::entity::reply::ReplySender;
use crate::message::{AskError, NotRun, finished, outcome};
use crate::route::Outcome;
use crate::transport::Reply;

/// The receiver of the outcome of a message.
pub(super) enum Finish<R> {
    Ask(ReplySender<R>),
    Tell(oneshot::Sender<Result<(), AskError>>),
    /// Of an HTTP request: its encoded response.
    Request(ReplySender<Bytes>),
}

// === impl Finish ===

impl<R> Finish<R> {
    pub(super) fn fail(self, error: AskError) {
        // A receiver that has gone does not wait.
        match self {
            Self::Ask(to) => to.send(Err(error)),
            Self::Tell(to) => drop(to.send(Err(error))),
            Self::Request(to) => to.send(Err(error)),
        }
    }
}

impl<R: DeserializeOwned> Finish<R> {
    pub(super) fn finish(self, result: Outcome) {
        match (self, finished(result)) {
            (Self::Ask(to), Ok(Some(bytes))) => to.send(outcome(Reply::Done(bytes))),
            (Self::Request(to), Ok(Some(bytes))) => to.send(Ok(bytes)),
            (Self::Tell(to), Ok(_)) => drop(to.send(Ok(()))),
            (Self::Ask(to), Ok(None)) => to.send(Err(NotRun::Moving.into())),
            (Self::Request(to), Ok(None)) => to.send(Err(NotRun::Moving.into())),
            (this, Err(error)) => this.fail(error),
        }
    }
}
