//! Policies by name, from the configuration.
//!
//! | key of `resilience.NAME` | what it sets |
//! |---|---|
//! | `within` | [`PolicyBuilder::within`] |
//! | `timeout` | [`PolicyBuilder::timeout`] |
//! | `rate.{permits, per, burst}` | [`Rate`](crate::Rate); `per` is `1s` unless set |
//! | `bulkhead.{limit, queue}` | [`Bulkhead::of`](crate::Bulkhead::of) |
//! | `bulkhead.{adaptive, least, most, threshold, queue}` | with `adaptive = "gradient"` [`Bulkhead::adaptive`](crate::Bulkhead::adaptive), with `"aimd"` [`Bulkhead::aimd`](crate::Bulkhead::aimd) |
//! | `breaker.{ratio, calls, over, opens-for, at-most, probes, closes-after, slow}` | [`Breaker`](crate::Breaker) |
//! | `throttle.{factor, over}` | [`Throttle`](crate::Throttle) |
//! | `retry.{times, budget}` | [`Retry`](crate::Retry) |
//!
//! [`PolicyBuilder::within`]: crate::PolicyBuilder::within
//! [`PolicyBuilder::timeout`]: crate::PolicyBuilder::timeout

mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use adieu_core::{Config, ConfigError, Shutdown, Step};

use crate::policy::{Policy, PolicyError};

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
        let builders = config.read_block("resilience", read::policy)?;
        let policies = builders.into_iter().map(|builder| builder.start(shutdown));
        Ok(policies.collect::<Result<_, _>>()?)
    }

    /// The policy of this name.
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

    /// All policies, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.by_name.values()
    }

    /// A step that declares to a [`Lifecycle`](adieu_core::Lifecycle) which parts are local to this
    /// process: with [`DeploymentProfile::Fleet`](adieu_core::DeploymentProfile::Fleet) each rate limit
    /// and each breaker is warned of. Bulkheads are not: they are local by design.
    pub fn step(&self) -> Step {
        let local = self.iter().flat_map(Policy::local_parts);
        local.fold(Step::new("resilience"), Step::process_local)
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<I: IntoIterator<Item = Policy>>(policies: I) -> Self {
        let by_name = policies.into_iter().map(|policy| (policy.shared_name(), policy)).collect();
        Self { by_name }
    }
}

fn listed(names: &[Arc<str>]) -> String {
    if names.is_empty() {
        "none is configured".into()
    } else {
        format!("known are {}", names.join(", "))
    }
}
