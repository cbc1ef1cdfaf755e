//! Reads the settings of a cluster from a configuration: the table `cluster`, and the keys of Akka,
//! Akka.NET and Pekko that have a meaning here.

use std::time::Duration;

use adieu_core::adapter::{Block, read_table};
use adieu_core::{Config, ConfigError, Short};

use crate::address;
use crate::records::{NameError, NodeId};
use crate::time::LONGEST;

/// The options of a node, as far as the program or a configuration sets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Configured {
    pub(crate) ttl: Option<Duration>,
    pub(crate) removal_margin: Option<Duration>,
    pub(crate) join_deadline: Option<Duration>,
    pub(crate) node: Option<String>,
    pub(crate) build: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) weight: Option<u32>,
}

/// An option that breaks its rule.
pub(crate) enum Broken {
    Ttl(Duration),
    JoinDeadline,
    Weight,
    Address { address: String, problem: String },
    Node(NameError),
}

/// The shortest time to live, whatever the store allows.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(100);

const RUN_WHEN_DOWN: &str = "run-when-down";

/// The tables of the frameworks from which a configuration may come.
const FOREIGN: [&str; 2] = ["akka.cluster", "pekko.cluster"];

/// Keys of these tables that have no meaning here: how they begin, and why.
const MEANINGLESS: &[(&str, &str)] = &[
    ("seed-node", "nodes find each other through the store: pass it to Cluster::new"),
    ("retry-unsuccessful-join-after", "a node joins until its join-deadline: set that instead"),
    ("auto-down-unreachable-after", DOWNING),
    ("downing-provider-class", DOWNING),
    ("split-brain-resolver", DOWNING),
    ("failure-detector", DOWNING),
    ("multi-data-center", "a table is for one data centre; name zones with cluster.zone"),
    ("role", ROLES),
    (
        "min-nr-of-members",
        "a node is up as soon as the leader acknowledges it: wait for the number \
      in Cluster::status instead",
    ),
    ("allow-weakly-up-members", "a node is up or it is not: every change is one commit"),
    ("gossip-", GOSSIP),
    ("reduce-gossip-", GOSSIP),
    ("prune-gossip-", GOSSIP),
    ("publish-stats-interval", GOSSIP),
    ("leader-actions-interval", "a leader acts when the table changes, not at intervals"),
    ("unreachable-nodes-reaper-interval", DOWNING),
    ("periodic-tasks-initial-delay", GOSSIP),
    ("quarantine-removed-node-after", DOWNING),
    ("by-pass-", GOSSIP),
    ("configuration-compatibility-check", "joining always compares the regions and the protocol"),
    ("use-dispatcher", "a node runs on the runtime in which it joins"),
    ("scheduler", "a node runs on the runtime in which it joins"),
    ("jmx", "use /cluster and /metrics of the admin port"),
    ("metrics", "use /metrics of the admin port"),
    ("log-info", "filter the target adieu_cluster in your tracing subscriber"),
    ("debug", "filter the target adieu_cluster in your tracing subscriber"),
    (
        "singleton",
        "a singleton is declared with Cluster::singleton; how long a hand-off may take \
      is phases.cluster-exiting.timeout",
    ),
    (
        "sharding",
        "declare a region with Cluster::region; the number of shards is RegionBuilder::shards",
    ),
    ("client", "clients use HTTP: there is no cluster client"),
    ("pub-sub", "there is no publish-subscribe: use a broker"),
    ("distributed-data", "there is no replicated data: use a database"),
    ("ddata", "there is no replicated data: use a database"),
];

const DOWNING: &str = "a node is gone when its session in the store ends: set cluster.ttl instead";
const ROLES: &str = "a node gets the singletons that it declares: declare each where it may run";
const GOSSIP: &str = "nodes share a table in the store, there is no gossip";

// === impl Configured ===

impl Configured {
    /// Returns these options, and the others where these are not set.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            ttl: self.ttl.or(others.ttl),
            removal_margin: self.removal_margin.or(others.removal_margin),
            join_deadline: self.join_deadline.or(others.join_deadline),
            node: self.node.or(others.node),
            build: self.build.or(others.build),
            zone: self.zone.or(others.zone),
            address: self.address.or(others.address),
            weight: self.weight.or(others.weight),
        }
    }

    /// Returns the first option that breaks its rule. No time to live may be shorter than `shortest`.
    pub(crate) fn broken(&self, shortest: Duration) -> Option<Broken> {
        if let Some(ttl) = self.ttl.filter(|ttl| *ttl < shortest) {
            return Some(Broken::Ttl(ttl));
        }
        if self.join_deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Some(Broken::JoinDeadline);
        }
        if self.weight == Some(0) {
            return Some(Broken::Weight);
        }
        if let Some(address) = &self.address
            && let Err(problem) = address::check(address)
        {
            return Some(Broken::Address { address: address.clone(), problem });
        }
        self.node.as_ref().and_then(|node| NodeId::new(node).err()).map(Broken::Node)
    }
}

/// Reads the settings of the configuration.
///
/// # Errors
///
/// If a key is unknown or has no meaning here, or a value is not valid. A time to live that is shorter
/// than `shortest` is not valid, for the reason `too_short`.
pub(crate) fn read(
    config: &Config,
    shortest: Duration,
    too_short: &str,
) -> Result<Configured, ConfigError> {
    let ours = read_table(config, "cluster", |keys| {
        let found = table(keys)?;
        check(keys, &found, shortest, too_short)?;
        Ok(found)
    })?;
    let ours = ours.unwrap_or_default();
    let mut theirs = Configured::default();
    for name in FOREIGN {
        if let Some(found) = read_table(config, name, foreign)? {
            theirs = found;
        }
    }
    Ok(ours.or(theirs))
}

/// Checks the keys and values of the tables, without a cluster. For the command.
///
/// # Errors
///
/// If a key is unknown or has no meaning here, or a value is not valid.
pub fn validate(config: &Config) -> Result<(), ConfigError> {
    let too_short = format!("the shortest time to live of any store is {}", Short(SHORTEST_TTL));
    read(config, SHORTEST_TTL, &too_short).map(drop)
}

fn table(keys: &mut Block<'_>) -> Result<Configured, ConfigError> {
    Ok(Configured {
        ttl: keys.duration("ttl")?,
        removal_margin: keys.duration("removal-margin")?,
        join_deadline: keys.duration("join-deadline")?,
        node: keys.text("node")?,
        build: keys.text("build")?,
        zone: keys.text("zone")?,
        address: keys.text("address")?,
        weight: keys.count("weight")?,
    })
}

/// Checks the values here, and not where they are used, because here an error names the key and the
/// variable or file that set it.
fn check(
    keys: &Block<'_>,
    found: &Configured,
    shortest: Duration,
    too_short: &str,
) -> Result<(), ConfigError> {
    let zero = "must not be zero";
    if keys.keys().any(|key| key == RUN_WHEN_DOWN) {
        let place = "is not a key of this table: set coordinated-shutdown.run-when-down";
        return Err(keys.invalid(RUN_WHEN_DOWN, place));
    }
    Err(match found.broken(shortest) {
        None => return Ok(()),
        Some(Broken::Ttl(ttl)) => {
            keys.invalid("ttl", format!("is {}, but {too_short}", Short(ttl)))
        }
        Some(Broken::JoinDeadline) => keys.invalid("join-deadline", zero),
        Some(Broken::Weight) => keys.invalid("weight", zero),
        Some(Broken::Address { problem, .. }) => keys.invalid("address", problem),
        Some(Broken::Node(error)) => keys.invalid("node", error.to_string()),
    })
}

/// Reads the keys of Akka that have a meaning here, and rejects the others.
fn foreign(keys: &mut Block<'_>) -> Result<Configured, ConfigError> {
    let join_deadline = keys.duration_or_off("shutdown-after-unsuccessful-join-seed-nodes")?;
    let found = Configured {
        // Without a deadline, Akka tries for ever.
        join_deadline: join_deadline.map(|deadline| deadline.unwrap_or(LONGEST)),
        // Akka's default is `off`, which here is the default margin.
        removal_margin: keys.duration_or_off("down-removal-margin")?.flatten(),
        build: keys.text("app-version")?,
        ..Configured::default()
    };
    let meaningless = keys.keys().find_map(|key| {
        let (_, why) = MEANINGLESS.iter().find(|(prefix, _)| key.starts_with(prefix))?;
        Some((key.to_owned(), *why))
    });
    match meaningless {
        Some((key, why)) => Err(keys.invalid(&key, format!("has no meaning here: {why}"))),
        None => Ok(found),
    }
}
