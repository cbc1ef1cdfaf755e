//! The reason of a shutdown.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::signals::Signal;

/// The reason of a shutdown. The first reason counts, and every task can read it.
///
/// An application can define reasons of its own: types that implement [`CustomReason`]. A task gets
/// the data of such a reason with [`Reason::downcast_ref`]. Two custom reasons are equal if they have
/// the same type and equal data.
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
    /// The process received a signal.
    ProcessTerminate(Signal),
    /// The body of the program has returned.
    ProcessExit,
    /// The actor system was terminated, or its guardian has ended.
    ActorSystemTerminate,
    /// The node leaves the cluster.
    ClusterLeaving,
    /// The cluster has removed the node.
    ClusterDowning,
    /// The node could not join the cluster.
    ClusterJoinUnsuccessful,
    /// The cluster refused the node's configuration.
    IncompatibleConfiguration,
    /// No reason was given.
    Unknown,
    /// A reason that the application defines.
    Custom(Arc<dyn CustomReason>),
}

/// A reason that the application defines, with its data.
///
/// The type must implement `PartialEq`, because [`Reason`] does: derive it.
pub trait CustomReason: Any + fmt::Debug + sealed::Comparable + Send + Sync {
    /// Returns the name of the reason in the log, the report and the configuration.
    fn name(&self) -> &str;

    /// Returns a signal if the shutdown should have the lame duck and the deadline of that signal.
    fn signal(&self) -> Option<Signal> {
        None
    }
}

mod sealed {
    use std::any::Any;

    /// Compares values of unknown types.
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
    /// Returns the name of the reason. It is the same in the log, in the report, in the status, and
    /// in `reason-overrides` of the configuration. The reason of a signal has the signal's name.
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

    /// Returns the custom reason if it has the type `T`.
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

    /// Returns the signal that the process received, or the signal of a custom reason.
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
