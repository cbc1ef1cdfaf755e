//! The page of all policies on the admin port: their state, and the commands to open and release them.

mod metrics;

use std::sync::Arc;
use std::time::Duration;

use adieu_core::adapter::{Command, CommandError, Metrics, Page, error_text};
use serde_json::{Value, json};

use crate::link::ForceFailure;
use crate::names::Names;
use crate::state::{LONGEST_FORCE, State};
use crate::status::{BreakerState, BulkheadLoad, PolicyStatus};

/// The name of the page.
pub(crate) const NAME: &str = "resilience";

/// All policies of a shutdown, on its admin port.
pub(crate) struct PolicyPage(pub(crate) Arc<Names>);

// === impl PolicyPage ===

impl Page for PolicyPage {
    fn status(&self) -> Value {
        let policies: Vec<_> = self.0.all().iter().map(|policy| describe(policy)).collect();
        json!({ "policies": policies })
    }

    fn commands(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("open", "refuses every call of ?policy=NAME for ?millis=TIME, in the whole fleet"),
            ("release", "ends that for ?policy=NAME"),
        ]
    }

    fn run(&self, command: &Command) -> Result<Value, CommandError> {
        let name = command.required("policy")?;
        let all = self.0.all();
        let policy = all.iter().find(|policy| *policy.name == *name).ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|policy| &*policy.name).collect();
            let known = known.join(", ");
            CommandError::invalid(format!("there is no policy {name}: known are {known}"))
        })?;
        let time = match command.name() {
            "open" => time_of(command)?,
            _ => Duration::ZERO,
        };
        let by = command.argument("by").unwrap_or("admin port");
        let forcing = policy.force_everywhere(time, by);
        tokio::runtime::Handle::current().block_on(forcing).map_err(|failure| {
            let why = match failure {
                ForceFailure::NoAnswer => "the store did not answer".to_owned(),
                ForceFailure::Store(error) => error_text(&error),
            };
            CommandError::failed(format!("failed to reach the fleet of policy {name}: {why}"))
        })?;
        Ok(json!({ "policy": name, "service": policy.link().map(|link| &*link.service) }))
    }

    fn metrics(&self, metrics: &mut Metrics) {
        metrics::render(&self.0.all(), metrics);
    }
}

fn time_of(command: &Command) -> Result<Duration, CommandError> {
    let millis = command.required("millis")?;
    let time = millis.parse().ok().map(Duration::from_millis);
    time.filter(|time| !time.is_zero() && *time <= LONGEST_FORCE).ok_or_else(|| {
        let problem = format!("millis {millis} is not from 1 to {}", LONGEST_FORCE.as_millis());
        CommandError::invalid(problem)
    })
}

fn describe(policy: &State) -> Value {
    let status = policy.status();
    let PolicyStatus { policy: name, forced, forced_by, breaker, bulkhead, keys, open_keys } =
        status;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "name": &*name,
        "forced": forced.map(|left| json!({ "left_ms": millis(left), "by": forced_by.as_deref() })),
        "breaker": breaker.map(|state| match state {
            BreakerState::Closed => json!({ "state": "closed" }),
            BreakerState::Open { left } => json!({ "state": "open", "left_ms": millis(left) }),
            BreakerState::HalfOpen => json!({ "state": "half-open" }),
        }),
        "bulkhead": bulkhead.map(|BulkheadLoad { inside, waiting, limit }| {
            json!({ "inside": inside, "waiting": waiting, "limit": limit })
        }),
        "keys": keys,
        "open_keys": open_keys,
        "store": policy.link().map(|link| json!({
            "service": &*link.service,
            "away": link.is_away(),
            "replicas": link.replicas(),
            "decided_alone": link.decided_alone(),
        })),
    })
}

#[cfg(test)]
mod tests {
    use adieu_core::{Config, Shutdown, adapter};

    use super::*;
    use crate::{Breaker, Memory, Policies, Policy};

    #[tokio::test(flavor = "multi_thread")]
    async fn s929_the_admin_port_shows_policies_and_opens_and_releases_them_in_the_fleet() {
        let memory = Memory::new();
        let replica = || {
            let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
            let policy = Policy::new("payments").breaker(Breaker::at(0.5));
            let policies: Policies = [policy.start(&shutdown).unwrap()].into_iter().collect();
            (policies.shared(memory.clone(), "checkout").unwrap(), shutdown)
        };
        let ((_one, shutdown), (_other, other)) = (replica(), replica());
        let page = |of: &Shutdown| adapter::pages(of).remove(0).1;
        let (page, other) = (page(&shutdown), page(&other));
        let run = |name: &'static str, query: &'static str| {
            let page = Arc::clone(&page);
            tokio::task::spawn_blocking(move || page.run(&Command::new(name, Some(query))))
        };
        // The other replica learns it with its next report.
        let until_other_shows = async |by: Value| {
            let found = async {
                while other.status()["policies"][0]["forced"]["by"] != by {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let in_time = tokio::time::timeout(Duration::from_secs(60), found).await;
            assert!(in_time.is_ok(), "not forced by {by}: {}", other.status());
        };
        run("open", "policy=payments&millis=600000&by=ops").await.unwrap().unwrap();
        // The queried replica has applied it already (S1242).
        let shown = page.status();
        assert_eq!(shown["policies"][0]["forced"]["by"], "ops", "{shown}");
        assert_eq!(shown["policies"][0]["breaker"]["state"], "closed");
        assert_eq!(shown["policies"][0]["store"]["service"], "checkout");
        until_other_shows(json!("ops")).await;
        run("release", "policy=payments").await.unwrap().unwrap();
        let shown = page.status();
        assert_eq!(shown["policies"][0]["forced"], Value::Null, "{shown}");
        until_other_shows(Value::Null).await;
        for wrong in ["policy=payment&millis=5", "policy=payments", "policy=payments&millis=0"] {
            let error = run("open", wrong).await.unwrap().unwrap_err();
            assert!(matches!(error, CommandError::Invalid(_)), "{wrong}: {error}");
        }
    }
}
