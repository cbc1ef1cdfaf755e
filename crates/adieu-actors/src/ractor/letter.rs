//! Letters: messages to actors of ractor that are counted if they are lost.

use std::any::type_name;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use super::node::RactorNode;
use crate::path::NodePath;
use crate::record::Record;

/// A message that is a dead letter if it is dropped unopened.
///
/// ractor drops the messages in the mailbox of a killed actor without reporting them. For an actor
/// with `type Msg = Letter<Order>`, adieu counts how many messages are queued, and how many the
/// actor has not processed. Send letters with [`Ref::post`](super::Ref::post).
#[must_use = "a letter that is not opened is a dead letter"]
pub struct Letter<M> {
    message: M,
    seal: Seal,
}

/// Counts the letter as a dead letter if it is dropped unopened.
struct Seal {
    node: Arc<RactorNode>,
    from: Option<NodePath>,
    message: &'static str,
    is_open: bool,
}

thread_local! {
    /// Whether a letter was dropped unopened on this thread.
    static WAS_LOST: Cell<bool> = const { Cell::new(false) };
}

/// Calls `drops`, and returns whether it dropped an unopened letter.
pub(super) fn loses_letter(drops: impl FnOnce()) -> bool {
    WAS_LOST.set(false);
    drops();
    WAS_LOST.get()
}

// === impl Letter ===

impl<M> Letter<M> {
    pub(super) fn new(message: M, node: Arc<RactorNode>) -> Self {
        node.letter_sealed();
        let from = Record::current_path();
        let seal = Seal { node, from, message: type_name::<M>(), is_open: false };
        Self { message, seal }
    }

    /// Returns the message.
    pub fn open(self) -> M {
        let Self { message, mut seal } = self;
        seal.is_open = true;
        message
    }

    /// Returns the path of the actor that sent the letter, if an actor did.
    #[must_use]
    pub fn from(&self) -> Option<&NodePath> {
        self.seal.from.as_ref()
    }
}

impl<M: fmt::Debug> fmt::Debug for Letter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Letter");
        debug.field("message", &self.message).field("from", &self.seal.from).finish()
    }
}

// === impl Seal ===

impl Drop for Seal {
    fn drop(&mut self) {
        self.node.letter_unsealed();
        if !self.is_open {
            WAS_LOST.set(true);
            self.node.record().count_unprocessed(self.from.take(), Some(self.message), 1);
        }
    }
}
