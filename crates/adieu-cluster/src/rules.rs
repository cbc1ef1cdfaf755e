//! The rules of delivery that a test can break, to see that the judge of the simulated world notices.

/// A rule of senders or owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// Kept messages are sent in the order in which they were given.
    KeepOrder,
    /// Nothing is sent to a new owner while a message is outstanding at the previous one.
    SettleBeforeNewOwner,
    /// A message that was sent may have run when its deadline passes.
    SentIsUnknown,
    /// A message that was not sent is taken back at its deadline, and has not run.
    UnsentIsTakenBack,
    /// A message is admitted only under exactly the epoch that it names.
    EpochEquality,
    /// A message that is ahead of the owner's view is held.
    HoldAhead,
    /// A draining shard admits nested messages.
    AdmitNested,
    /// A shard is handed over only when nothing runs in it.
    EmptyBeforeHandOver,
}

/// The rules that are in force: all of them, except in tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    #[cfg(test)]
    pub(crate) broken: Option<Rule>,
}

// === impl Rules ===

#[cfg(test)]
impl Rules {
    pub(crate) fn holds(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }
}

#[cfg(not(test))]
impl Rules {
    #[expect(clippy::unused_self, reason = "in tests a rule may be broken")]
    pub(crate) const fn holds(self, _rule: Rule) -> bool {
        true
    }
}
