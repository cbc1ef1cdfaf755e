//! Classifies the outcome of an attempt: whether the backend is healthy, and whether the attempt may
//! be repeated.

use std::error::Error;
use std::time::Duration;

use adieu_core::Draining;

use crate::refused::Refused;

/// The health of the backend as one attempt shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// The backend works. This includes errors that the caller has caused, such as invalid input.
    Well,
    /// The backend failed or did not answer in time.
    Sick,
    /// The attempt shows nothing: the caller dropped it, or the backend refused it without processing
    /// it.
    Neutral,
}

/// How the outcome of an attempt counts, and whether the attempt can be repeated.
///
/// [`Caller::classify`](crate::Caller::classify) takes a function that returns one.
///
/// ```
/// use adieu_resilience::Class;
/// use std::time::Duration;
///
/// enum PaymentError { Declined, Busy(Duration), Broken }
///
/// fn class(result: &Result<(), PaymentError>) -> Class {
///     match result {
///         Ok(()) | Err(PaymentError::Declined) => Class::well(),
///         Err(PaymentError::Busy(pause)) => Class::throttled().retry_after(*pause),
///         Err(PaymentError::Broken) => Class::sick(),
///     }
/// }
/// # let _ = class(&Ok(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a class does nothing until a classifier returns it"]
pub struct Class {
    health: Health,
    repeat: Repeat,
    is_throttled: bool,
    retry_after: Option<Duration>,
}

/// Whether an attempt can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It succeeded, or would fail again.
    Never,
    /// Only if the call is idempotent: the backend may have processed it.
    IfIdempotent,
    /// The backend has not processed it.
    Always,
}

// === impl Class ===

impl Class {
    /// The backend works, and there is nothing to repeat.
    pub const fn well() -> Self {
        Self::new(Health::Well, Repeat::Never)
    }

    /// The backend failed. The attempt is repeated if the call is idempotent.
    pub const fn sick() -> Self {
        Self::new(Health::Sick, Repeat::IfIdempotent)
    }

    /// Nothing is known about the backend, and the attempt is not repeated.
    pub const fn neutral() -> Self {
        Self::new(Health::Neutral, Repeat::Never)
    }

    /// The backend requested fewer calls (429) and did not process this one. The pause before the
    /// retry is longer than after a failure.
    pub const fn throttled() -> Self {
        let mut class = Self::new(Health::Neutral, Repeat::Always);
        class.is_throttled = true;
        class
    }

    /// The backend refused the call without processing it, for example because it drains. The call is
    /// repeated even if it is not idempotent.
    pub const fn unprocessed() -> Self {
        Self::new(Health::Neutral, Repeat::Always)
    }

    /// The backend could not be reached, so it has not processed the call.
    pub const fn unreachable() -> Self {
        Self::new(Health::Sick, Repeat::Always)
    }

    /// Returns the class of an error: neutral if a gate or another policy of this process refused the
    /// work, so that the backend was not asked; otherwise a failure of the backend.
    ///
    /// The whole chain of causes counts. For calls that enter a gate or use another policy inside.
    ///
    /// ```
    /// use adieu_resilience::{Class, Health};
    ///
    /// let gate = adieu_core::Gate::new("orders");
    /// gate.cordon();
    /// assert_eq!(Class::of_error(&gate.enter().unwrap_err()).health(), Health::Neutral);
    /// ```
    pub fn of_error(error: &(dyn Error + 'static)) -> Self {
        if causes(error).any(is_own_refusal) { Self::neutral() } else { Self::sick() }
    }

    /// Sets the pause that the backend requested.
    pub const fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// Excludes a retry, because it would fail in the same way.
    pub const fn permanent(mut self) -> Self {
        self.repeat = Repeat::Never;
        self
    }

    /// Returns the backend's health, as the attempt shows it.
    #[must_use]
    pub const fn health(&self) -> Health {
        self.health
    }

    pub(crate) const fn repeat(&self) -> Repeat {
        self.repeat
    }

    pub(crate) const fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    /// Returns whether the backend refused the call instead of processing it.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!((self.health, self.repeat), (Health::Neutral, Repeat::Always))
    }

    pub(crate) const fn pause(&self) -> Option<Duration> {
        self.retry_after
    }

    const fn new(health: Health, repeat: Repeat) -> Self {
        Self { health, repeat, is_throttled: false, retry_after: None }
    }
}

/// An error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Returns whether a gate or another policy of this process refused the work.
pub(crate) fn is_own_refusal(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<Draining>() || cause.is::<Refused>()
}

/// Decides how the result of an attempt counts: a function of the result that returns a [`Class`].
pub trait Classify<T, E> {
    /// Returns the class of this result.
    fn classify(&self, result: &Result<T, E>) -> Class;
}

/// Every error is a failure of the backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByResult;

impl<T, E> Classify<T, E> for ByResult {
    fn classify(&self, result: &Result<T, E>) -> Class {
        if result.is_ok() { Class::well() } else { Class::sick() }
    }
}

impl<T, E, F: Fn(&Result<T, E>) -> Class> Classify<T, E> for F {
    fn classify(&self, result: &Result<T, E>) -> Class {
        self(result)
    }
}
