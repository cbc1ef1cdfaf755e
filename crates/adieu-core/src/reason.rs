//! Why we stop.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::signals::Signal;

/// Why the shutdown runs. The first reason given wins and is readable in every task.
///
/// An application's own reasons are types of its own that implement [`CustomReason`]; the data
/// they carry can be got back in a task with [`Reason::downcast_ref`]. Two of them are equal if they
/// have the same type and are equal.
///
/// ```
/// use adieu_core::{CustomReason, Reason};
///
/// #[derive(Debug, PartialEq)]
/// struct AdminEndpoint { user: String }
///
/// impl CustomReason for AdminEndpoint {
///     fn name(&self) -> &str { "admin-endpoint" }
/// }
///
/// let reason = Reason::from(AdminEndpoint { user: "ops".into() });
/// assert_eq!(reason.downcast_ref::<AdminEndpoint>().unwrap().user, "ops");
/// assert_eq!(reason.to_string(), "admin-endpoint");
/// assert_ne!(reason, Reason::from(AdminEndpoint { user: "eve".into() }));
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
///
/// The type must be comparable, because [`Reason`] is: derive `PartialEq`.
pub trait CustomReason: Any + fmt::Debug + sealed::Comparable + Send + Sync {
    /// The name under which the reason is logged, reported, and overridden in configuration.
    fn name(&self) -> &str;

    /// Returns the signal that the reason stands for, if it does. The shutdown then has the lame
    /// duck and the deadline that it has after this signal.
    fn signal(&self) -> Option<Signal> {
        None
    }
}

mod sealed {
    use std::any::Any;

    /// Compares values whose types are not known.
    #[diagnostic::on_unimplemented(
        message = "a `CustomReason` must be comparable, and `{Self}` is not",
        note = "derive or implement `PartialEq` for `{Self}`"
    )]
    #[expect(unnameable_types, reason = "every type that is `PartialEq` has it")]
    pub trait Comparable {
        fn equals(&self, other: &dyn Any) -> bool;
    }

    impl<T: Any + PartialEq> Comparable for T {
        fn equals(&self, other: &dyn Any) -> bool {
            other.downcast_ref() == Some(self)
        }
    }
}

// === impl Reason ===

impl Reason {
    /// The name of the reason: the same in the log, in the report, in the status, and in
    /// `reason-overrides` of the configuration. A signal's reason has the signal's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::ProcessTerminate(signal) => signal.name(),
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
        f.pad(self.name())
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ProcessTerminate(one), Self::ProcessTerminate(other)) => one == other,
            (Self::Custom(one), Self::Custom(other)) => {
                let other: &dyn Any = &**other;
                (**one).equals(other)
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl<R: CustomReason> From<R> for Reason {
    fn from(reason: R) -> Self {
        Self::Custom(Arc::new(reason))
    }
}
