//! Counts the phases that have begun and the tasks that have ended, for a supervisor.

/// How many phases have begun and how many tasks have ended. If the numbers are the same as before,
/// there is no news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgressCounts {
    pub(crate) begun: usize,
    pub(crate) ended: usize,
    /// Whether a supervisor waits for changes. Without one, changes wake no task.
    pub(crate) has_supervisor: bool,
}

impl ProgressCounts {
    pub(super) fn phase_began(&mut self) -> bool {
        self.begun += 1;
        self.has_supervisor
    }

    pub(super) fn tasks_ended(&mut self, tasks: usize) -> bool {
        self.ended += tasks;
        self.has_supervisor
    }
}
