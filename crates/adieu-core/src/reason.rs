//! Why we stop.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::signals::Signal;

/// Why the shutdown runs. The first reason given wins and is readable in every task.
///
/// An application's own reasons are types of its own that implement [`CustomReason`]; the data
/// they carry can be got back in a task with [`Reason::downcast_ref`].
///
/// ```
/// use adieu_core::{CustomReason, Reason};
///
/// #[derive(Debug)]
/// struct AdminEndpoint { user: String }
///
/// impl CustomReason for AdminEndpoint {
///     fn name(&self) -> &str { "admin-endpoint" }
/// }
///
/// let reason = Reason::from(AdminEndpoint { user: "ops".into() });
/// assert_eq!(reason.downcast_ref::<AdminEndpoint>().unwrap().user, "ops");
/// assert_eq!(reason.to_string(), "admin-endpoint");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// A signal told the process to end.
    ProcessTerminate(Signal),
    /// The process is about to end by itself: its main body has returned.
    ProcessExit,
    /// The actor system was told to terminate, or its root stopped.
    ActorSystemTerminate,
    /// The node leaves the cluster.
    ClusterLeaving,
    /// The cluster has put the node out.
    ClusterDowning,
    /// The node could not join the cluster.
    ClusterJoinUnsuccessful,
    /// The cluster refused the node's configuration.
    IncompatibleConfiguration,
    /// Nobody said why.
    Unknown,
    /// A reason of the application's own.
    Custom(Arc<dyn CustomReason>),
}

/// A reason of the application's own, with whatever data it carries.
pub trait CustomReason: Any + fmt::Debug + Send + Sync {
    /// The name under which the reason is logged, reported, and overridden in configuration.
    fn name(&self) -> &str;

    /// Returns the signal that the reason stands for, if it does. The shutdown then has the lame
    /// duck and the deadline that it has after this signal.
    fn signal(&self) -> Option<Signal> {
        None
    }
}

// === impl Reason ===

impl Reason {
    /// The name under which the reason is reported and overridden in configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::ProcessTerminate(_) => "process-terminate",
            Self::ProcessExit => "process-exit",
            Self::ActorSystemTerminate => "actor-system-terminate",
            Self::ClusterLeaving => "cluster-leaving",
            Self::ClusterDowning => "cluster-downing",
            Self::ClusterJoinUnsuccessful => "cluster-join-unsuccessful",
            Self::IncompatibleConfiguration => "incompatible-configuration",
            Self::Unknown => "unknown",
            Self::Custom(reason) => reason.name(),
        }
    }

    /// The application's own reason, if it is one of type `T`.
    #[must_use]
    pub fn downcast_ref<T: CustomReason>(&self) -> Option<&T> {
        match self {
            Self::Custom(reason) => (&**reason as &dyn Any).downcast_ref(),
            Self::ProcessTerminate(_)
            | Self::ProcessExit
            | Self::ActorSystemTerminate
            | Self::ClusterLeaving
            | Self::ClusterDowning
            | Self::ClusterJoinUnsuccessful
            | Self::IncompatibleConfiguration
            | Self::Unknown => None,
        }
    }

    /// Returns the signal that told the process to end, or that a reason of the application's own
    /// stands for.
    #[must_use]
    pub fn signal(&self) -> Option<Signal> {
        match self {
            Self::ProcessTerminate(signal) => Some(*signal),
            Self::Custom(reason) => reason.signal(),
            Self::ProcessExit
            | Self::ActorSystemTerminate
            | Self::ClusterLeaving
            | Self::ClusterDowning
            | Self::ClusterJoinUnsuccessful
            | Self::IncompatibleConfiguration
            | Self::Unknown => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::ProcessTerminate(signal) = self {
            return fmt::Display::fmt(signal, f);
        }
        f.pad(self.name())
    }
}

impl<R: CustomReason> From<R> for Reason {
    fn from(reason: R) -> Self {
        Self::Custom(Arc::new(reason))
    }
}
