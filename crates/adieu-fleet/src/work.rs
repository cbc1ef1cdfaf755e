//! Identifies the work that a lock is held for, because several pieces of work can share one lock.

use crate::lock_backend::Holder;
use crate::names::Owner;

/// A piece of work that replicas take turns at.
///
/// A lock decides which replica may work. Completion is recorded per piece of work; otherwise the
/// end of one step would count as the end of every step that shares its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The only work of its lock, identified by the key.
    OfKey,
    /// A step of start-up. Other steps may share its lock.
    Step(String),
}

// === impl Work ===

impl Work {
    /// Returns the work of the step with this id.
    pub(crate) fn step(id: &str) -> Self {
        // Not every store accepts control characters in a name.
        let escaped = |c: char| match c {
            '\\' => r"\\".to_owned(),
            c if c.is_control() => c.escape_unicode().to_string(),
            c => c.to_string(),
        };
        Self::Step(id.chars().map(escaped).collect())
    }

    /// Returns the name of the marker that records the end of a turn.
    pub(crate) fn done_marker(&self) -> String {
        match self {
            Self::OfKey => "singleton".to_owned(),
            Self::Step(id) => format!("singleton:{id}"),
        }
    }

    /// Returns the name of the marker that records the progress of a version. A version contains no
    /// spaces.
    pub(crate) fn once_marker(&self, version: &str) -> String {
        match self {
            Self::OfKey => format!("once:{version}"),
            Self::Step(id) => format!("once:{version} {id}"),
        }
    }

    /// Returns the owner under which the lock is acquired for this work. The backend stores it with
    /// the grant in one step, so a replica that is refused sees at once what the holder is doing.
    pub(crate) fn owner(&self, owner: &Owner) -> Owner {
        match self {
            Self::OfKey => owner.clone(),
            Self::Step(id) => owner.working_on(id),
        }
    }

    /// Returns whether the holder of the lock is doing this work.
    pub(crate) fn is_done_by(&self, holder: &Holder) -> bool {
        let of_holder = holder.owner.work();
        match self {
            Self::OfKey => of_holder.is_none(),
            Self::Step(id) => of_holder == Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock_backend::Fence;

    #[test]
    fn a_holder_is_known_by_name_and_by_its_work() {
        let one = Owner::new("one").unwrap();
        let all = [Work::OfKey, Work::step("indexes"), Work::step("two words (odd)\n")];
        for work in &all {
            let owner = Owner::stored(work.owner(&one).as_str());
            let holder = Holder { owner, fence: Fence::new(1), remaining: Duration::ZERO };
            assert_eq!(holder.owner.without_work(), one);
            for other in &all {
                assert_eq!(other.is_done_by(&holder), other == work, "{other:?} by {holder:?}");
            }
        }
        assert_eq!(Work::step("indexes").owner(&one).as_str(), "one (indexes)");
    }

    #[test]
    fn markers_of_different_work_differ_and_have_no_control_characters() {
        let all =
            [Work::OfKey, Work::step("a"), Work::step("b"), Work::step("\0"), Work::step(r"\u{0}")];
        for (at, work) in all.iter().enumerate() {
            let names = [work.done_marker(), work.once_marker("v1"), work.once_marker("v2")];
            assert!(names.iter().all(|name| !name.chars().any(char::is_control)), "{names:?}");
            for other in &all[at + 1..] {
                let others = [other.done_marker(), other.once_marker("v1")];
                assert!(names.iter().all(|name| !others.contains(name)), "{names:?} {others:?}");
            }
        }
    }
}
