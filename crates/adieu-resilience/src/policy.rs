//! A policy: the handle that applications hold, and how it is built.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Deadline, Shutdown, adapter};

use crate::breaker::Breaker;
use crate::bulkhead::{Bulkhead, Criticality};
use crate::call::{Attempt, Call, Repeats};
use crate::classify::{ByResult, Classify};
use crate::names::Names;
use crate::page::{self, PolicyPage};
use crate::rate::Rate;
use crate::refused::CallError;
use crate::retry::Retry;
use crate::spec::Spec;
use crate::state::State;
use crate::status::PolicyStatus;
use crate::throttle::Throttle;

/// How calls to one backend are limited, protected and repeated.
///
/// A policy is a handle that is cheap to clone: all clones refer to the same policy. The order of its
/// parts is fixed, and does not depend on the order of the builder's calls:
///
/// ```text
/// deadline > forced open > retry > rate > bulkhead > breaker or throttle > timeout > your call
/// ```
///
/// ```
/// use adieu_core::Shutdown;
/// use adieu_resilience::{Breaker, Bulkhead, Policy, Rate, Retry};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # async fn charge(_: &str, _: Duration) -> Result<u32, std::io::Error> { Ok(7) }
/// # let shutdown = Shutdown::new();
/// let payments = Policy::new("payments")
///     .within(Duration::from_secs(2)) // everything, pauses and retries included
///     .rate(Rate::per_second(500).burst(50))
///     .bulkhead(Bulkhead::adaptive(4..=64).queue(128))
///     .breaker(Breaker::at(0.5).of(20).over(Duration::from_secs(10)))
///     .retry(Retry::times(2).budget(0.1))
///     .timeout(Duration::from_millis(300)) // each attempt
///     .start(&shutdown)?;
///
/// let order = "order 7";
/// let receipt = payments.call(async |attempt| charge(order, attempt.remaining()).await).await?;
/// # assert_eq!(receipt, 7);
/// # Ok(())
/// # }
/// ```
///
/// A policy does not admit work to the process; a [`Gate`](adieu_core::Gate) does that. While the
/// process drains, a policy limits retries and begins no probes.
#[derive(Clone)]
pub struct Policy {
    state: Arc<State>,
}

/// A policy that is being built. See [`Policy`].
#[derive(Clone, Debug)]
#[must_use = "a policy does nothing until it is started"]
pub struct PolicyBuilder {
    name: Arc<str>,
    spec: Spec,
    /// The first part that was set twice.
    twice: Option<&'static str>,
}

/// Why a policy was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Its parts contradict each other, or one of them has an invalid value.
    #[error("failed to start policy {policy}: {problem}")]
    Invalid {
        /// The policy in question.
        policy: Arc<str>,
        /// The contradiction or the invalid value, with the figures.
        problem: String,
    },
    /// Another policy of this shutdown has the name.
    #[error("failed to start policy {policy}: there is another one of this name")]
    NameTaken {
        /// The name in question.
        policy: Arc<str>,
    },
}

/// A call with more than the defaults: a key, a deadline, a criticality, a classifier.
///
/// ```
/// # use adieu_core::{Deadline, Shutdown};
/// # use adieu_resilience::{Class, Criticality, Policy, Rate};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let policy = Policy::new("search").rate(Rate::per_second(9)).start(&Shutdown::new())?;
/// let found = policy
///     .caller()
///     .key("tenant 7")
///     .by(Deadline::after(Duration::from_secs(1)))
///     .criticality(Criticality::BestEffort)
///     .classify(|result: &Result<u32, std::io::Error>| match result {
///         Ok(_) => Class::well(),
///         Err(_) => Class::sick().permanent(),
///     })
///     .call(async |_| Ok(3))
///     .await?;
/// # assert_eq!(found, 3);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is called yet"]
pub struct Caller<'a, C = ByResult> {
    call: Call<'a>,
    classify: C,
}

// === impl PolicyBuilder ===

impl PolicyBuilder {
    /// Limits the whole call: all attempts, and the pauses between them.
    pub fn within(mut self, within: Duration) -> Self {
        self.note_twice("within", self.spec.within.is_some());
        self.spec.within = Some(within);
        self
    }

    /// Limits the rate of attempts.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.note_twice("rate", self.spec.rate.is_some());
        self.spec.rate = Some(rate);
        self
    }

    /// Limits how many attempts run at a time.
    pub fn bulkhead(mut self, bulkhead: Bulkhead) -> Self {
        self.note_twice("bulkhead", self.spec.bulkhead.is_some());
        self.spec.bulkhead = Some(bulkhead);
        self
    }

    /// Refuses calls for a while after too many have failed.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.note_twice("breaker", self.spec.breaker.is_some());
        self.spec.breaker = Some(breaker);
        self
    }

    /// Refuses calls in proportion to how many fail. A policy has a throttle or a breaker, not both.
    pub fn throttle(mut self, throttle: Throttle) -> Self {
        self.note_twice("throttle", self.spec.throttle.is_some());
        self.spec.throttle = Some(throttle);
        self
    }

    /// Repeats calls that have failed.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.note_twice("retry", self.spec.retry.is_some());
        self.spec.retry = Some(retry);
        self
    }

    /// Limits each attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.note_twice("timeout", self.spec.timeout.is_some());
        self.spec.timeout = Some(timeout);
        self
    }

    /// Builds the policy as a part of this shutdown.
    ///
    /// # Errors
    ///
    /// If its parts contradict each other, or another policy of this shutdown has the name.
    pub fn start(self, shutdown: &Shutdown) -> Result<Policy, PolicyError> {
        let Self { name, spec, twice } = self;
        let invalid = |problem| PolicyError::Invalid { policy: Arc::clone(&name), problem };
        if !is_name(&name) {
            let problem = "the name must have 1 to 100 of the characters a-z A-Z 0-9 . _ -";
            return Err(invalid(problem.into()));
        }
        if let Some(part) = twice {
            return Err(invalid(format!("{part} is set twice: keep one of them")));
        }
        spec.check().map_err(invalid)?;
        let names = adapter::extension::<Names>(shutdown);
        // The first policy publishes the page of all.
        let _ = adapter::publish(shutdown, page::NAME, PolicyPage(Arc::clone(&names)));
        let new = || State::new(Arc::clone(&name), spec, shutdown.downgrade());
        let state = names.add(&name, new);
        state.map(|state| Policy { state }).ok_or(PolicyError::NameTaken { policy: name })
    }

    fn note_twice(&mut self, part: &'static str, is_set: bool) {
        self.twice = self.twice.or(is_set.then_some(part));
    }
}

/// Returns whether this is a valid name of a policy or a service.
pub(crate) fn is_name(name: &str) -> bool {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=100).contains(&name.len()) && name.chars().all(is_name_char)
}

// === impl Policy ===

impl Policy {
    /// Begins a policy of this name, without any part.
    #[expect(clippy::new_ret_no_self, reason = "a policy is built in steps, as the example shows")]
    pub fn new(name: impl Into<Arc<str>>) -> PolicyBuilder {
        PolicyBuilder { name: name.into(), spec: Spec::default(), twice: None }
    }

    /// Calls `f` through the policy: once, and again for each retry.
    ///
    /// Each error counts as a failure of the backend, also the refusal of a gate or of another policy of this
    /// process, which has not reached the backend. If `f` enters a gate or uses another policy, classify its
    /// errors with [`Class::of_error`](crate::Class::of_error), through [`Policy::caller`].
    ///
    /// # Errors
    ///
    /// If the policy refuses the call, its time has elapsed, or the last attempt failed.
    ///
    /// # Panics
    ///
    /// If `f` panics. That counts as a failure.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the future of `f` at once, and returns its slot, its place in a queue
    /// and its probe. The call counts neither as a success nor as a failure.
    pub async fn call<T, E, F, Fut>(&self, f: F) -> Result<T, CallError<E>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.caller().call(f).await
    }

    /// As [`Policy::call`], with a deadline of the caller. A call that reaches it is dropped, and counts
    /// neither as a success nor as a failure.
    ///
    /// # Errors
    ///
    /// As [`Policy::call`].
    ///
    /// # Cancel safety
    ///
    /// As [`Policy::call`].
    pub async fn call_by<T, E, F, Fut>(&self, deadline: Deadline, f: F) -> Result<T, CallError<E>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.caller().by(deadline).call(f).await
    }

    /// Begins a call with more than the defaults.
    pub fn caller(&self) -> Caller<'_> {
        let call = Call {
            state: &self.state,
            key: None,
            by: None,
            criticality: Criticality::default(),
            repeats: Repeats::IfIdempotent,
        };
        Caller { call, classify: ByResult }
    }

    /// Returns the policy's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Refuses every call for this long, a day at most. Operators use it when the backend must get no
    /// calls.
    pub fn force_open(&self, time: Duration) {
        self.state.force_open(time, None);
    }

    /// Ends [`Policy::force_open`].
    pub fn release(&self) {
        self.state.release();
    }

    #[cfg(feature = "http")]
    pub(crate) fn has_retries(&self) -> bool {
        self.state.spec.retry.is_some()
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.state.name)
    }

    /// Returns the parts that are local to this process, although they should hold for the fleet.
    pub(crate) fn local_parts(&self) -> Vec<String> {
        if self.state.link().is_some() {
            return Vec::new();
        }
        let Spec { rate, breaker, .. } = &self.state.spec;
        let name = self.name();
        let rate = rate.as_ref().map(|rate| format!("rate limit {name} ({rate} in each replica)"));
        let breaker = breaker.as_ref().map(|breaker| format!("breaker {name} ({breaker})"));
        rate.into_iter().chain(breaker).collect()
    }

    /// Returns the current state of the policy.
    #[must_use]
    pub fn status(&self) -> PolicyStatus {
        self.state.status()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.state.name)
            .field("spec", &self.state.spec)
            .finish_non_exhaustive()
    }
}

// === impl Caller ===

impl<'a, C> Caller<'a, C> {
    /// Uses the state of this key, such as a tenant or a shard. Each key has its own rate, bulkhead,
    /// breaker and retry budget. A policy keeps at most 4,096 keys, and never removes a key whose
    /// breaker is open.
    pub fn key(mut self, key: &'a str) -> Self {
        self.call.key = Some(key);
        self
    }

    /// Ends the call by this deadline of its caller.
    pub fn by(mut self, deadline: Deadline) -> Self {
        self.call.by = Some(self.call.by.map_or(deadline, |by| by.min(deadline)));
        self
    }

    /// Sets how important the call is.
    pub fn criticality(mut self, criticality: Criticality) -> Self {
        self.call.criticality = criticality;
        self
    }

    /// Repeats the call only if it is certain that the backend has not processed it.
    pub fn not_idempotent(self) -> Self {
        self.repeats(Repeats::IfUnprocessed)
    }

    /// Makes the call once, for example because its body cannot be sent again.
    pub fn not_repeatable(self) -> Self {
        self.repeats(Repeats::Never)
    }

    pub(crate) fn repeats(mut self, repeats: Repeats) -> Self {
        self.call.repeats = repeats;
        self
    }

    /// Sets the function that classifies the results of attempts; see [`Class`](crate::Class).
    pub fn classify<D>(self, classify: D) -> Caller<'a, D> {
        Caller { call: self.call, classify }
    }

    /// Makes the call; see [`Policy::call`].
    ///
    /// # Errors
    ///
    /// As [`Policy::call`].
    ///
    /// # Cancel safety
    ///
    /// As [`Policy::call`].
    pub async fn call<T, E, F, Fut>(self, f: F) -> Result<T, CallError<E>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classify<T, E>,
    {
        let outcome = self.call.run(self.classify, f).await;
        if matches!(outcome, Err(CallError::Refused(_))) {
            // A refusal may come at the first poll, and a loop of such calls would never yield.
            tokio::task::coop::consume_budget().await;
        }
        outcome
    }
}

impl<C> fmt::Debug for Caller<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("policy", &self.call.state.name)
            .field("key", &self.call.key)
            .finish_non_exhaustive()
    }
}
