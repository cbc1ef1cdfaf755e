//! The report of a drain: how each actor ended.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::node::Ended;
use crate::path::NodePath;

/// The report of a drain: how each actor ended.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct DrainReport {
    /// How long the drain took.
    #[serde(rename = "took_ms", serialize_with = "millis")]
    pub took: Duration,
    /// The actors, in the order in which they ended. Actors that did not end are last.
    pub nodes: Vec<NodeReport>,
}

/// How one actor ended.
//
// Small, because there may be very many: each page of fresh memory costs as much as stopping one or
// two actors.
#[derive(Clone, PartialEq)]
pub struct NodeReport {
    path: NodePath,
    /// `None` if the actor drained, as most do.
    ending: Option<Box<Unclean>>,
    drained: Count,
    dead_letters: Bound,
    after_nanos: u64,
}

/// How an actor that did not drain ended.
#[derive(Clone, PartialEq)]
struct Unclean {
    ending: NodeEnding,
    /// How many messages were queued when it was abandoned, if that is known.
    queued: Option<u64>,
}

/// A number that may be unknown. Stored plus one, so that it needs no extra space.
#[derive(Clone, Copy, PartialEq)]
struct Count(Option<NonZero<u64>>);

/// A number of which only a lower bound may be known. The highest bit marks a bound.
#[derive(Clone, Copy, PartialEq)]
struct Bound(u64);

/// How a node that was drained ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeEnding {
    /// The actor processed all accepted messages, and stopped.
    Drained,
    /// A handler or the start of the actor failed or panicked.
    Failed {
        /// The error, as text.
        error: Arc<str>,
    },
    /// The actor processed all accepted messages, but its stop hook failed or panicked.
    HookFailed {
        /// The error, as text.
        error: Arc<str>,
    },
    /// The actor had not ended at the deadline, and was killed.
    Killed,
    /// The actor did not end when it was killed: it blocks its thread, or its framework cannot kill
    /// it.
    Abandoned,
    /// The actor had ended before its system was drained, and lost or refused messages after the
    /// shutdown had begun.
    EndedEarly,
}

// === impl DrainReport ===

impl DrainReport {
    /// Returns whether every actor processed all accepted messages and stopped, and no message was
    /// refused or lost.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unclean().next().is_none()
    }

    /// Returns the actors that did not drain, or that have dead letters.
    pub fn unclean(&self) -> impl Iterator<Item = &NodeReport> {
        self.nodes.iter().filter(|node| !node.is_clean())
    }

    /// Returns how one actor ended, or `None` if no actor had this path.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| node.path.as_str() == path)
    }

    /// Returns how many messages were processed, as far as that is known.
    #[must_use]
    pub fn drained(&self) -> u64 {
        self.nodes.iter().filter_map(NodeReport::drained).sum()
    }

    /// Returns how many messages were refused, or accepted and never processed, as far as that is
    /// known.
    ///
    /// The report of a system contains the dead letters since its drain began or, if the system is
    /// part of a shutdown, since the shutdown began. Earlier ones are counted by the system only:
    /// they are not a failure of the drain.
    #[must_use]
    pub fn dead_letters(&self) -> u64 {
        self.nodes.iter().map(NodeReport::least_dead_letters).sum()
    }

    /// Adds dead letters, by receiver. Nodes that have left the tree get a report of their own.
    pub(crate) fn add_dead_letters(&mut self, letters: &HashMap<NodePath, u64>) {
        let mut missing: HashMap<_, _> = letters.iter().collect();
        for node in &mut self.nodes {
            if let Some(count) = missing.remove(&node.path) {
                node.raise_dead_letters(*count);
            }
        }
        let mut missing: Vec<_> = missing.into_iter().collect();
        missing.sort_unstable();
        self.nodes.extend(missing.into_iter().map(|(path, count)| {
            let dead_letters = Bound::exact(*count);
            let ended = NodeReport::new(path.clone(), NodeEnding::EndedEarly, None, self.took);
            NodeReport { dead_letters, ..ended }
        }));
    }

    /// Merges the reports of several systems.
    #[must_use]
    pub fn merged(reports: impl IntoIterator<Item = Self>) -> Self {
        let mut reports = reports.into_iter();
        let mut all = reports.next().unwrap_or_else(Self::empty);
        for report in reports {
            all.took = all.took.max(report.took);
            all.nodes.extend(report.nodes);
        }
        all
    }

    /// Adds a prefix to each path.
    pub(crate) fn prefixed(mut self, prefix: &str) -> Self {
        for node in &mut self.nodes {
            node.path = node.path.prefixed(prefix);
        }
        self
    }

    pub(crate) fn empty() -> Self {
        Self { took: Duration::ZERO, nodes: Vec::new() }
    }
}

// === impl NodeReport ===

impl NodeReport {
    pub(crate) fn new(
        path: NodePath,
        ending: NodeEnding,
        drained: Option<u64>,
        after: Duration,
    ) -> Self {
        let unclean = |ending| Box::new(Unclean { ending, queued: None });
        let ending = (ending != NodeEnding::Drained).then(|| unclean(ending));
        let after_nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let (drained, dead_letters) = (Count::new(drained), Bound::exact(0));
        Self { path, ending, drained, dead_letters, after_nanos }
    }

    /// Sets the number of dead letters. `None` means that it is unknown. The number of an actor that
    /// still runs is a lower bound: the messages in its mailbox are not counted yet.
    pub(crate) fn with_dead_letters(mut self, count: Option<u64>) -> Self {
        self.dead_letters = match count {
            Some(count) if self.ending() == &NodeEnding::Abandoned => Bound::at_least(count),
            Some(count) => Bound::exact(count),
            None => Bound::at_least(0),
        };
        self
    }

    /// Sets the number of messages that are queued at an actor that still runs.
    pub(crate) fn with_queued(mut self, count: Option<usize>) -> Self {
        if let Some(unclean) = &mut self.ending {
            unclean.queued = count.map(|count| count as u64);
        }
        self
    }

    /// Returns the path of the actor.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        &self.path
    }

    /// Returns how the actor ended.
    #[must_use]
    pub fn ending(&self) -> &NodeEnding {
        self.ending.as_ref().map_or(&NodeEnding::Drained, |unclean| &unclean.ending)
    }

    /// Returns how many messages were queued at an actor that could not be killed, if that is known.
    /// They are not among its dead letters: it may still process them.
    #[must_use]
    pub fn queued(&self) -> Option<u64> {
        self.ending.as_ref().and_then(|unclean| unclean.queued)
    }

    /// Returns how many messages the actor processed during the drain, if that is known.
    #[must_use]
    pub fn drained(&self) -> Option<u64> {
        self.drained.get()
    }

    /// Returns how many messages the actor refused during the drain, or accepted and never processed,
    /// if that is known.
    #[must_use]
    pub fn dead_letters(&self) -> Option<u64> {
        self.dead_letters.get()
    }

    /// Returns the least number of messages that the actor refused, or accepted and never processed.
    pub(crate) fn least_dead_letters(&self) -> u64 {
        self.dead_letters.least()
    }

    /// Returns whether the actor processed all accepted messages and stopped, and has no dead letters.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.ending.is_none() && self.least_dead_letters() == 0
    }

    /// Raises the number of dead letters to `count`, if it is lower.
    pub(crate) fn raise_dead_letters(&mut self, count: u64) {
        self.dead_letters = self.dead_letters.raised(count);
    }

    /// Returns how long after the beginning of the drain the actor ended.
    #[must_use]
    pub fn after(&self) -> Duration {
        Duration::from_nanos(self.after_nanos)
    }
}

impl fmt::Debug for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeReport")
            .field("path", self.path())
            .field("ending", self.ending())
            .field("drained", &self.drained())
            .field("dead_letters", &self.dead_letters())
            .field("after", &self.after())
            .finish()
    }
}

impl Serialize for NodeReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = 5 + usize::from(self.queued().is_some());
        let mut node = serializer.serialize_struct("NodeReport", fields)?;
        node.serialize_field("path", self.path())?;
        node.serialize_field("ending", self.ending())?;
        node.serialize_field("drained", &self.drained())?;
        node.serialize_field("dead_letters", &self.dead_letters())?;
        if let Some(queued) = self.queued() {
            node.serialize_field("queued", &queued)?;
        }
        node.serialize_field("after_ms", &in_millis(self.after()))?;
        node.end()
    }
}

// === impl Count ===

impl Count {
    fn new(number: Option<u64>) -> Self {
        Self(number.and_then(|number| NonZero::new(number.saturating_add(1))))
    }

    fn get(self) -> Option<u64> {
        self.0.map(|stored| stored.get() - 1)
    }
}

// === impl Bound ===

impl Bound {
    const IS_BOUND: u64 = 1 << 63;

    fn exact(number: u64) -> Self {
        Self(number & !Self::IS_BOUND)
    }

    fn at_least(number: u64) -> Self {
        Self(number | Self::IS_BOUND)
    }

    fn get(self) -> Option<u64> {
        (self.0 & Self::IS_BOUND == 0).then_some(self.0)
    }

    fn least(self) -> u64 {
        self.0 & !Self::IS_BOUND
    }

    fn raised(self, to: u64) -> Self {
        Self(self.least().max(to) | self.0 & Self::IS_BOUND)
    }
}

/// How many unclean actors are named.
const NAMED: usize = 20;

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (actors, took) = (self.nodes.len(), self.took);
        let unclean = self.unclean().count();
        write!(f, "{} of {actors} actors drained in {took:.1?}", actors - unclean)?;
        write!(f, ", {} messages processed", self.drained())?;
        let known = self.dead_letters();
        let is_unknown = |node: &NodeReport| node.dead_letters().is_none();
        if self.unclean().any(is_unknown) {
            write!(f, ", dead letters unknown (at least {known})")?;
        } else {
            write!(f, ", {known} dead letters")?;
        }
        for node in self.unclean().take(NAMED) {
            write!(f, "\n  {node}")?;
        }
        if unclean > NAMED {
            write!(f, "\n  and {} more", unclean - NAMED)?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.ending())?;
        match self.dead_letters() {
            Some(letters) if letters > 0 => write!(f, ", {letters} dead letters"),
            None if self.ending.is_some() => {
                write!(f, ", dead letters unknown (at least {}", self.least_dead_letters())?;
                match self.queued() {
                    Some(queued) if queued > 0 => write!(f, ", {queued} queued)"),
                    Some(_) | None => f.write_str(")"),
                }
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Display for NodeEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drained => f.write_str("drained"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::HookFailed { error } => write!(f, "drained, but its stop hook failed: {error}"),
            Self::Killed => f.write_str("was killed"),
            Self::Abandoned => f.write_str("could not be killed, and is still running"),
            Self::EndedEarly => f.write_str("ended before the drain"),
        }
    }
}

impl From<Ended> for NodeEnding {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Stopped => Self::Drained,
            Ended::Failed { error } => Self::Failed { error },
            Ended::HookFailed { error } => Self::HookFailed { error },
            Ended::Killed => Self::Killed,
        }
    }
}

pub(crate) fn millis<S: serde::Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_millis(*duration))
}

fn in_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ending: NodeEnding, drained: Option<u64>, dead_letters: Option<u64>) -> NodeReport {
        let path = NodePath::user().child("orders").unwrap();
        let report = NodeReport::new(path, ending, drained, Duration::from_micros(1500));
        report.with_dead_letters(dead_letters)
    }

    #[test]
    fn accessors_return_the_reported_values() {
        for (drained, dead_letters) in [(Some(0), None), (None, Some(0)), (Some(7), Some(3))] {
            let error: Arc<str> = "no".into();
            for ending in [NodeEnding::Drained, NodeEnding::Killed, NodeEnding::Failed { error }] {
                let report = report(ending.clone(), drained, dead_letters);
                assert_eq!((report.path().as_str(), report.ending()), ("/user/orders", &ending));
                assert_eq!((report.drained(), report.dead_letters()), (drained, dead_letters));
                assert_eq!(report.after(), Duration::from_micros(1500));
            }
        }
    }

    #[test]
    fn a_node_report_serialises_to_json() {
        let error = "no".into();
        let report = report(NodeEnding::HookFailed { error }, Some(7), None);
        let json = serde_json::to_value(report).unwrap();
        let expected = serde_json::json!({
            "path": "/user/orders",
            "ending": { "kind": "hook-failed", "error": "no" },
            "drained": 7,
            "dead_letters": null,
            "after_ms": 1.5,
        });
        assert_eq!(json, expected);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_node_report_has_48_bytes() {
        assert_eq!(size_of::<NodeReport>(), 48);
    }
}
