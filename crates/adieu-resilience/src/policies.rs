//! Policies by name, from the configuration.
//!
//! | key of `resilience.NAME` | sets |
//! |---|---|
//! | `within` | [`PolicyBuilder::within`] |
//! | `timeout` | [`PolicyBuilder::timeout`] |
//! | `rate.{permits, per, burst, without-store}` | [`Rate`](crate::Rate); `per` is `1s` unless set; `without-store` is `share`, `open` or `closed` |
//! | `bulkhead.{limit, queue}` | [`Bulkhead::of`](crate::Bulkhead::of) |
//! | `bulkhead.{adaptive, least, most, threshold, queue}` | with `adaptive = "gradient"` [`Bulkhead::adaptive`](crate::Bulkhead::adaptive), with `"aimd"` [`Bulkhead::aimd`](crate::Bulkhead::aimd) |
//! | `breaker.{ratio, calls, over, opens-for, at-most, probes, closes-after, slow, witnesses}` | [`Breaker`](crate::Breaker) |
//! | `throttle.{factor, over}` | [`Throttle`](crate::Throttle) |
//! | `retry.{times, budget}` | [`Retry`](crate::Retry) |
//!
//! [`PolicyBuilder::within`]: crate::PolicyBuilder::within
//! [`PolicyBuilder::timeout`]: crate::PolicyBuilder::timeout

mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use std::time::Duration;

use adieu_core::{AddLoopError, Config, ConfigError, LoopSpec, Shutdown, Step, adapter};
use tokio::sync::Mutex;

use crate::link::{ForceFailure, Link};
use crate::names::Names;
use crate::policy::{Policy, PolicyError, is_name};
use crate::status::StoreStatus;
use crate::store::{SharedStore, StoreError};
use crate::sync::{Driver, drive};

/// Policies by name.
///
/// ```
/// use adieu_core::{Config, Format, Shutdown};
/// use adieu_resilience::Policies;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::parse(r#"
///     [resilience.payments]
///     within   = "2s"
///     rate     = { permits = 500, per = "1s", burst = 50 }
///     bulkhead = { adaptive = "gradient", least = 4, most = 64, queue = 128 }
///     breaker  = { ratio = 0.5, calls = 20, over = "10s", opens-for = "5s", at-most = "1m" }
///     retry    = { times = 2, budget = 0.1 }
///     timeout  = "300ms"
/// "#, Format::Toml)?;
/// let shutdown = Shutdown::configured(config.clone())?;
/// let policies = Policies::configured(&config, &shutdown)?;
/// let payments = policies.get("payments")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Policies {
    by_name: BTreeMap<Arc<str>, Policy>,
    /// A name that two policies have, of which one is not here.
    twice: Option<Arc<str>>,
    /// Set if the policies are shared.
    link: Option<Fleet>,
}

/// The connection of shared policies to their fleet.
#[derive(Clone)]
struct Fleet(Arc<Link>);

/// Why policies were not shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The name of the service is not valid.
    #[error(
        "failed to share policies: service name {service:?} must have 1 to 100 of the characters \
         a-z A-Z 0-9 . _ -"
    )]
    Name {
        /// The name in question.
        service: String,
    },
    /// A policy is shared already.
    #[error("failed to share policy {policy}: it is shared already")]
    Twice {
        /// The policy in question.
        policy: Arc<str>,
    },
    /// Two policies of two shutdowns have the same name.
    #[error(
        "failed to share policies: two of them have the name {policy}; share one of them as another \
         service"
    )]
    SameName {
        /// The name in question.
        policy: Arc<str>,
    },
    /// The policies have different shutdowns.
    #[error(
        "failed to share policies: policies that are shared together need one shutdown, but {policy} \
         has another than {first}"
    )]
    OtherShutdown {
        /// The policy in question.
        policy: Arc<str>,
        /// The policy with which it was compared.
        first: Arc<str>,
    },
    /// The shutdown of the policies no longer exists.
    #[error(
        "failed to share policies: their shutdown was dropped; keep it for as long as they live"
    )]
    NoShutdown,
    /// The policies are not shared, so there is no store to check.
    #[error("failed to add check {check}: the policies are not shared; call `shared` first")]
    NotShared {
        /// The name of the check.
        check: String,
    },
    /// The shutdown did not accept the loop that connects the policies to their store.
    #[error("failed to share policies")]
    Loop(#[from] AddLoopError),
}

/// Why a policy was not forced open or released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForceError {
    /// There is no policy of this name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// The store failed.
    #[error("failed to reach the fleet of policy {policy}: nothing has changed")]
    Store {
        /// The policy in question.
        policy: Arc<str>,
        /// Why the store failed.
        #[source]
        source: StoreError,
    },
    /// The store did not answer in time.
    #[error(
        "failed to reach the fleet of policy {policy}: no answer from the store; check with its \
         status whether the change was made"
    )]
    NoAnswer {
        /// The policy in question.
        policy: Arc<str>,
    },
}

/// Why configured policies were not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoliciesError {
    /// A key is unknown or has a wrong value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A policy contradicts itself, or its name is taken.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {wanted}: {}", listed(.known))]
pub struct UnknownPolicy {
    wanted: String,
    known: Vec<Arc<str>>,
}

// === impl Policies ===

impl Policies {
    /// Starts the policies that a configuration declares under `resilience`; see the
    /// [table of keys](crate::policies).
    ///
    /// # Errors
    ///
    /// If a key is unknown or has a wrong value, or as
    /// [`PolicyBuilder::start`](crate::PolicyBuilder::start).
    pub fn configured(config: &Config, shutdown: &Shutdown) -> Result<Self, PoliciesError> {
        let builders = adapter::read_block(config, "resilience", read::policy)?;
        let policies = builders.into_iter().map(|builder| builder.start(shutdown));
        Ok(policies.collect::<Result<_, _>>()?)
    }

    /// Checks the keys and values of the policies, and starts none. For the command.
    ///
    /// # Errors
    ///
    /// If a key is unknown or has a wrong value.
    pub(crate) fn validate(config: &Config) -> Result<(), ConfigError> {
        adapter::read_block(config, "resilience", read::policy).map(drop)
    }

    /// Returns the policy of this name.
    ///
    /// # Errors
    ///
    /// If there is none; the error names those that there are.
    pub fn get(&self, name: &str) -> Result<Policy, UnknownPolicy> {
        self.by_name.get(name).cloned().ok_or_else(|| UnknownPolicy {
            wanted: name.to_owned(),
            known: self.by_name.keys().cloned().collect(),
        })
    }

    /// Returns all policies, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.by_name.values()
    }

    /// Shares the rate limits and breakers of these policies with all processes that use the same
    /// `service` name and the same store.
    ///
    /// Calls do not wait for the store: a loop of the shutdown reports what this process has seen
    /// and receives what the others have seen, ten times a second. The rate limits are those of the
    /// whole fleet: each process takes small slices of them. A breaker opens in all processes if
    /// enough of them see that the backend fails; see
    /// [`Breaker::witnesses`](crate::Breaker::witnesses). Bulkheads, throttles and retry budgets
    /// are not shared.
    ///
    /// Share all policies of a process with one call: each call counts as one replica.
    ///
    /// Only a process that is ready reports what its breakers have seen, so call
    /// [`Shutdown::mark_started`] when start-up has ended. From the moment its shutdown begins, a
    /// process reports nothing more.
    ///
    /// If the store does not answer within 25 ms, it is away. Then no call waits for it, each
    /// process continues with its own breakers, and rate limits behave as
    /// [`Rate::without_store`](crate::Rate::without_store) declares. Readiness does not depend on
    /// the store.
    ///
    /// ```no_run
    /// # #[cfg(feature = "redis")]
    /// # async fn main_(
    /// #     config: adieu_core::Config,
    /// #     shutdown: adieu_core::Shutdown,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use adieu_resilience::{Policies, Redis};
    ///
    /// let policies = Policies::configured(&config, &shutdown)?
    ///     .shared(Redis::connect("redis://cache/").await?, "checkout")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the name is not valid, a policy is shared already, the shutdown has begun, or the policies have
    /// different shutdowns.
    pub fn shared(
        mut self,
        store: impl Into<SharedStore>,
        service: &str,
    ) -> Result<Self, ShareError> {
        if !is_name(service) {
            return Err(ShareError::Name { service: service.to_owned() });
        }
        if let Some(policy) = &self.twice {
            return Err(ShareError::SameName { policy: Arc::clone(policy) });
        }
        let Some(first) = self.iter().next() else { return Ok(self) };
        let shutdown = first.state().shutdown.upgrade().ok_or(ShareError::NoShutdown)?;
        if let Some(policy) = self.iter().find(|policy| policy.state().link().is_some()) {
            return Err(ShareError::Twice { policy: policy.shared_name() });
        }
        // One loop of one shutdown serves all of them, and reports only while that shutdown is ready.
        let names = adapter::extension::<Names>(&shutdown);
        let is_other = |policy: &&Policy| !names.has(policy.state());
        if let Some(policy) = self.iter().find(is_other) {
            let (policy, first) = (policy.shared_name(), first.shared_name());
            return Err(ShareError::OtherShutdown { policy, first });
        }
        let SharedStore(store) = store.into();
        let (link, requests) = Link::new(service.into());
        let driver = Arc::new(Driver {
            store,
            link: Arc::clone(&link),
            policies: self.iter().map(|policy| Arc::downgrade(policy.state())).collect(),
            shutdown: shutdown.downgrade(),
            replica: format!("{:016x}", fastrand::u64(..)).into(),
            requests: Mutex::new(requests),
        });
        let spec = LoopSpec::new(format!("resilience of {service}"));
        shutdown.add_loop(spec, move |cx| drive(Arc::clone(&driver), cx))?;
        for policy in self.iter() {
            policy.state().share(&link);
        }
        self.link = Some(Fleet(link));
        Ok(self)
    }

    /// Returns whether the store answers, and how many replicas there are. `None` if the policies are
    /// not shared.
    #[must_use]
    pub fn store(&self) -> Option<StoreStatus> {
        let Fleet(link) = self.link.as_ref()?;
        Some(StoreStatus {
            service: Arc::clone(&link.service),
            is_away: link.is_away(),
            replicas: link.replicas(),
            decided_alone: link.decided_alone(),
        })
    }

    /// Makes readiness depend on the store: while the store is away, the process is not ready, and
    /// probes show the check of this name. Without this call, readiness does not depend on the store:
    /// all replicas lose a store at the same time, and routers would stop using all of them.
    ///
    /// For services that must not serve without their fleet's limits.
    ///
    /// ```
    /// # use adieu_core::Shutdown;
    /// # use adieu_resilience::{Memory, Policies, Policy, Rate};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let shutdown = Shutdown::new();
    /// # let policy = Policy::new("exports").rate(Rate::per_second(9)).start(&shutdown)?;
    /// let policies = Policies::from_iter([policy]).shared(Memory::new(), "checkout")?;
    /// policies.check("store")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the policies are not shared, or their shutdown was dropped.
    pub fn check(&self, name: &str) -> Result<(), ShareError> {
        let not_shared = || ShareError::NotShared { check: name.to_owned() };
        let Fleet(link) = self.link.as_ref().ok_or_else(not_shared)?;
        let shutdown = self.iter().find_map(|policy| policy.state().shutdown.upgrade());
        link.add_check(shutdown.ok_or(ShareError::NoShutdown)?.add_check(name));
        Ok(())
    }

    /// Makes a policy refuse every call for this long, a day at most. If the policies are shared, this
    /// holds in every process of the fleet, within a tick of 100 ms. `by` names the requester.
    ///
    /// # Errors
    ///
    /// If there is no such policy, or the store does not answer. Then use [`Policy::force_open`] in each
    /// process.
    pub async fn force_open(
        &self,
        policy: &str,
        time: Duration,
        by: &str,
    ) -> Result<(), ForceError> {
        // A time of zero would release it.
        self.force(policy, time.max(Duration::from_micros(1)), by).await
    }

    /// Ends [`Policies::force_open`], in the whole fleet if the policies are shared.
    ///
    /// # Errors
    ///
    /// As [`Policies::force_open`].
    pub async fn release(&self, policy: &str, by: &str) -> Result<(), ForceError> {
        self.force(policy, Duration::ZERO, by).await
    }

    async fn force(&self, policy: &str, time: Duration, by: &str) -> Result<(), ForceError> {
        let policy = self.get(policy)?;
        let forced = policy.state().force_everywhere(time, by).await;
        let policy = policy.shared_name();
        forced.map_err(|failure| match failure {
            ForceFailure::Store(source) => ForceError::Store { policy, source },
            ForceFailure::NoAnswer => ForceError::NoAnswer { policy },
        })
    }

    /// Returns a step that declares to a [`Lifecycle`](adieu_core::Lifecycle) which parts are local to this
    /// process: with [`DeploymentProfile::Fleet`](adieu_core::DeploymentProfile::Fleet) each rate limit
    /// and each breaker is warned of. Bulkheads are not: they are local by design.
    pub fn step(&self) -> Step {
        let local = self.iter().flat_map(Policy::local_parts);
        local.fold(Step::new("resilience"), Step::process_local)
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<I: IntoIterator<Item = Policy>>(policies: I) -> Self {
        let mut collected = Self::default();
        for policy in policies {
            let name = policy.shared_name();
            let replaced = collected.by_name.insert(Arc::clone(&name), policy.clone());
            if replaced.is_some_and(|other| !Arc::ptr_eq(other.state(), policy.state())) {
                collected.twice = Some(name);
            }
        }
        collected
    }
}

// === impl Fleet ===

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fleet").field(&self.0.service).finish()
    }
}

fn listed(names: &[Arc<str>]) -> String {
    if names.is_empty() {
        "none is configured".into()
    } else {
        format!("known are {}", names.join(", "))
    }
}
