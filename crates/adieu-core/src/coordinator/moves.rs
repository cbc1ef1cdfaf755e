//! What has begun and ended, counted for whoever watches the shutdown.

/// How many phases have begun and how many tasks have ended: who has seen these numbers before has
/// nothing new to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) begun: usize,
    pub(crate) ended: usize,
    /// Nobody is woken if nobody watches.
    pub(crate) are_watched: bool,
}

impl Moves {
    pub(super) fn phase_began(&mut self) -> bool {
        self.begun += 1;
        self.are_watched
    }

    pub(super) fn tasks_ended(&mut self, tasks: usize) -> bool {
        self.ended += tasks;
        self.are_watched
    }
}
