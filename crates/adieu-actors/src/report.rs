//! How the draining of a tree went.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::node::Ended;
use crate::path::NodePath;

/// How the draining of a tree went: actor by actor, in the order in which they ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DrainReport {
    /// How long it took.
    #[serde(rename = "took_ms", serialize_with = "millis")]
    pub took: Duration,
    /// The actors, in the order in which they ended; those that did not are last.
    pub nodes: Vec<NodeReport>,
}

/// How one actor ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// Which one.
    pub path: NodePath,
    /// How it ended.
    pub ending: NodeEnding,
    /// How many messages it worked off while it was being drained, if that is known.
    pub drained: Option<u64>,
    /// How many messages it left behind, if that is known.
    pub dead_letters: Option<u64>,
    /// How long after the beginning it ended.
    #[serde(rename = "after_ms", serialize_with = "millis")]
    pub after: Duration,
}

/// How a node that was drained ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeEnding {
    /// It worked off what had come, and stopped.
    Drained,
    /// A handler failed or panicked before it came to its end.
    Failed {
        /// What it said.
        error: Arc<str>,
    },
    /// It worked off what had come, but its stop hook failed or panicked.
    HookFailed {
        /// What it said.
        error: Arc<str>,
    },
    /// Its time was up, and it was killed.
    Killed,
    /// Its time was up, and it could not even be killed: it blocks its thread, or its framework
    /// has no way to.
    Abandoned,
}

// === impl DrainReport ===

impl DrainReport {
    /// Whether every actor worked off what had come and stopped.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unclean().next().is_none()
    }

    /// Those that did not end as they should.
    pub fn unclean(&self) -> impl Iterator<Item = &NodeReport> {
        self.nodes.iter().filter(|node| node.ending != NodeEnding::Drained)
    }

    /// How one actor ended. None if it was not there.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| node.path.as_str() == path)
    }

    /// How many messages were worked off, as far as that is known.
    #[must_use]
    pub fn drained(&self) -> u64 {
        self.nodes.iter().filter_map(|node| node.drained).sum()
    }

    /// How many messages were left behind, as far as that is known.
    #[must_use]
    pub fn dead_letters(&self) -> u64 {
        self.nodes.iter().filter_map(|node| node.dead_letters).sum()
    }

    /// The reports of several systems as one.
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

    /// The same, with this before each path.
    pub(crate) fn within(mut self, above: &str) -> Self {
        for node in &mut self.nodes {
            node.path = node.path.within(above);
        }
        self
    }

    pub(crate) fn empty() -> Self {
        Self { took: Duration::ZERO, nodes: Vec::new() }
    }
}

/// How many that did not end as they should are named.
const NAMED: usize = 20;

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (actors, took) = (self.nodes.len(), self.took);
        let unclean = self.unclean().count();
        write!(f, "{} of {actors} actors drained in {took:.1?}", actors - unclean)?;
        write!(f, ", {} messages worked off", self.drained())?;
        write!(f, ", {} dead letters", self.dead_letters())?;
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
        write!(f, "{} {}", self.path, self.ending)?;
        match self.dead_letters {
            Some(letters) if letters > 0 => write!(f, ", {letters} dead letters"),
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
            Self::Abandoned => f.write_str("could not be killed, and is still there"),
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
    serializer.serialize_f64(duration.as_secs_f64() * 1e3)
}
