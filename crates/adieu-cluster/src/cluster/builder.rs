//! The options of a node, before it is connected to a shutdown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use adieu_core::adapter::WorkSource;
use adieu_core::{Short, Shutdown, WeakShutdown, adapter};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Cluster, ClusterError};
use crate::commits::Commits;
use crate::config::{self, Broken, Configured};
use crate::counters::Counters;
use crate::driver::PROTOCOL;
use crate::entity::{Here, Starts};
use crate::in_process::InProcess;
#[cfg(feature = "links")]
use crate::link::{Identity, Limits, Links, Security};
use crate::member::Goal;
use crate::page;
use crate::phases;
use crate::records::{Drain, Keys, NodeId, NodeRecord, NodeState, ShardId};
use crate::settings::Settings;
use crate::shared::{Progress, Shared};
use crate::store::Store;
use crate::transport::Carrier;
use crate::troubles::Troubles;

const ENTITIES: usize = 100_000;
const ENTITY_STARTS: u32 = 1_000;

/// The options of a node of a cluster. Created by [`Cluster::new`].
#[derive(Clone)]
#[must_use = "a node does nothing until it is connected to a shutdown and joins"]
pub struct ClusterBuilder {
    store: Arc<dyn Store>,
    cluster: String,
    /// What the program sets. The configuration overrides it.
    options: Configured,
    entities: usize,
    entity_starts: u32,
    carrier: Option<Arc<dyn Carrier>>,
    #[cfg(feature = "links")]
    listen: Option<(String, Security)>,
}

/// The options of a node, of the program and of its configuration, after the check.
struct Checked {
    keys: Keys,
    id: NodeId,
    settings: Settings,
    join_deadline: Duration,
    /// Without the address at which the node is reached if no option sets it.
    record: NodeRecord,
}

/// What carries messages to other nodes, and the address at which they reach this one.
type Reached = (Arc<dyn Carrier>, String);

const TTL: Duration = Duration::from_secs(10);
const JOIN_DEADLINE: Duration = Duration::from_secs(30);

// === impl ClusterBuilder ===

impl ClusterBuilder {
    pub(super) fn new(store: Arc<dyn Store>, cluster: String) -> Self {
        Self {
            store,
            cluster,
            options: Configured::default(),
            entities: ENTITIES,
            entity_starts: ENTITY_STARTS,
            carrier: None,
            #[cfg(feature = "links")]
            listen: None,
        }
    }

    /// Names the node. If a node with this name is in the cluster, this process waits until that node
    /// is gone. Default: the host's name, the process id and a random part.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.options.node = Some(name.into());
        self
    }

    /// Names the build. While several builds are up, shards and singletons go to nodes of the build
    /// that started last.
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.options.build = Some(build.into());
        self
    }

    /// Names the zone, such as an availability zone. Shards are spread over zones.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.options.zone = Some(zone.into());
        self
    }

    /// Sets the address at which other nodes reach this one, as `host:port`, if it differs from the
    /// address on which the node listens. Status shows it.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.options.address = Some(address.into());
        self
    }

    /// Sets the weight of this node: nodes get shards in proportion to their weights. Default: 1,
    /// which is also the least. To give a node no shards, cordon its process.
    pub fn weight(mut self, weight: u32) -> Self {
        self.options.weight = Some(weight);
        self
    }

    /// Sets the time to live of the node's session. A node that cannot reach the store stops acting
    /// after four fifths of this time. All nodes should have the same value. Default: 10 seconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// Sets how long the leader waits before it takes shards from a node that vanished. Default: a
    /// fifth of the time to live. Set it to the time to live if the store can end sessions early, as
    /// etcd could before issue 15247 was fixed.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use adieu_cluster::Cluster;
    /// use adieu_cluster::store::Memory;
    ///
    /// let ttl = Duration::from_secs(15);
    /// let builder = Cluster::new(Memory::new(), "shop").ttl(ttl).removal_margin(ttl);
    /// # drop(builder);
    /// ```
    pub fn removal_margin(mut self, margin: Duration) -> Self {
        self.options.removal_margin = Some(margin);
        self
    }

    /// Sets how long [`Cluster::join`] waits. Default: 30 seconds.
    pub fn join_deadline(mut self, within: Duration) -> Self {
        self.options.join_deadline = Some(within);
        self
    }

    /// Sets how many entities may run on this node. At this number, the entities that have been idle
    /// for the longest time end to make room. Default: 100,000.
    pub fn entities(mut self, most: usize) -> Self {
        self.entities = most;
        self
    }

    /// Sets how many entities may start per second on this node. Default: 1,000.
    pub fn entity_starts(mut self, per_second: u32) -> Self {
        self.entity_starts = per_second;
        self
    }

    /// Listens for other nodes on this address (`IP:port`), so that messages reach entities on all
    /// nodes. Port 0 takes a free port. If the IP is `0.0.0.0` or `::`, also set
    /// [`address`](Self::address). The port is bound by [`on`](Self::on).
    #[cfg(feature = "links")]
    #[cfg_attr(docsrs, doc(cfg(feature = "links")))]
    pub fn listen(mut self, address: impl Into<String>, security: Security) -> Self {
        self.listen = Some((address.into(), security));
        self
    }

    /// Connects this node to the other nodes of the same process, for tests: messages to entities of
    /// other nodes go through `network`.
    pub fn in_process(mut self, network: &InProcess) -> Self {
        self.carrier = Some(network.node());
        self
    }

    /// Connects the node to a shutdown: adds the tasks that leave the cluster to the cluster's phases,
    /// and shows the cluster at `/cluster` of the admin port. From now on the process is ready only
    /// while this node is a member.
    ///
    /// The table `cluster` of the shutdown's configuration overrides the options of this builder.
    ///
    /// # Errors
    ///
    /// If a name or the configuration is not valid, a time is out of bounds, the weight is zero, this
    /// process has a node of this name in the cluster, other nodes could not connect to the address,
    /// the node cannot listen for other nodes, or the shutdown has begun.
    pub fn on(self, shutdown: &Shutdown) -> Result<Cluster, ClusterError> {
        let Checked { keys, id, settings, join_deadline, record } = self.checked(shutdown)?;
        if page::has(shutdown, &self.cluster, &id) {
            return Err(ClusterError::NodeTwice { cluster: self.cluster, node: id });
        }
        let (carrier, reached_at) = self.carrier(&id, &record)?.unzip();
        let address = record.address.clone().or(reached_at);
        let shared = Arc::new(Shared {
            cluster: self.cluster.as_str().into(),
            commits: Commits::new(keys.clone()),
            keys,
            here: Arc::new(self.here(&id, shutdown)),
            id,
            record: NodeRecord { address, ..record },
            settings,
            join_deadline,
            shutdown: shutdown.downgrade(),
            check: shutdown.add_check(format!("cluster {}", self.cluster)),
            store: self.store,
            runtime: OnceLock::new(),
            counters: Counters::default(),
            troubles: Troubles::default(),
            singletons: Mutex::new(BTreeMap::new()),
            regions: Arc::default(),
            carrier,
            drain_times: Mutex::default(),
            node: Mutex::new(None),
            standing: OnceLock::new(),
            progress: watch::Sender::new(Progress::default()),
            goal: watch::Sender::new(Goal::Stay),
            kill: CancellationToken::new(),
            close: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        phases::add(shutdown, &shared)?;
        let this = Arc::downgrade(&shared);
        adapter::refresh_before_reading(shutdown, move || {
            if let Some(this) = this.upgrade() {
                this.refresh_check();
            }
        });
        let this = Arc::downgrade(&shared);
        let source = WorkSource::new(format!("cluster {}", shared.cluster))
            .lost(move || this.upgrade()?.troubles.take_findings());
        adapter::account_for(shutdown, source);
        page::add(shutdown, Arc::clone(&shared));
        Ok(Cluster { shared })
    }

    /// Reads the configuration, and checks the options.
    fn checked(&self, shutdown: &Shutdown) -> Result<Checked, ClusterError> {
        let shortest = self.store.shortest_ttl().max(config::SHORTEST_TTL);
        let too_short = format!(
            "the shortest time to live of the store {} is {}",
            self.store.name(),
            Short(shortest)
        );
        let configured = config::read(adapter::config(shutdown), shortest, &too_short)?;
        let keys = Keys::new(&self.cluster)?;
        let options = configured.or(self.options.clone());
        if let Some(broken) = options.broken(shortest) {
            return Err(error_of(broken, too_short));
        }
        for (what, value) in [("entities", self.entities), ("starts", self.entity_starts as usize)]
        {
            if value == 0 {
                let (name, least, most) = ("this node".into(), 1, u64::from(u32::MAX));
                return Err(ClusterError::Number { what, name, value: 0, least, most });
            }
        }
        let this_process = || adieu_fleet::Owner::this_process().as_str().to_owned();
        let mut settings = Settings::for_ttl(options.ttl.unwrap_or(TTL));
        settings.removal_margin = options.removal_margin.unwrap_or(settings.removal_margin);
        let record = NodeRecord {
            state: NodeState::Joining,
            ready: true,
            drain: Drain::Nothing,
            address: options.address,
            build: options.build.unwrap_or_default(),
            zone: options.zone,
            weight: options.weight.unwrap_or(1),
            hosts: Vec::new(),
            protocol: (PROTOCOL, PROTOCOL),
        };
        Ok(Checked {
            keys,
            id: NodeId::new(options.node.unwrap_or_else(this_process))?,
            settings,
            join_deadline: options.join_deadline.unwrap_or(JOIN_DEADLINE),
            record,
        })
    }

    /// Begins to listen for other nodes, if an option requests it.
    fn carrier(&self, id: &NodeId, record: &NodeRecord) -> Result<Option<Reached>, ClusterError> {
        #[cfg(feature = "links")]
        if let Some((listen, security)) = &self.listen {
            let identity = Identity {
                cluster: self.cluster.as_str().into(),
                node: id.clone(),
                build: record.build.as_str().into(),
                protocol: record.protocol,
            };
            let links = Links::listen(listen, security.clone(), identity, Limits::default())?;
            if let Some(address) = &record.address {
                links.check_reachable(address)?;
            }
            let reached_at = match &record.address {
                Some(address) => address.clone(),
                None => links.address()?.to_string(),
            };
            return Ok(Some((Arc::new(links), reached_at)));
        }
        #[cfg(not(feature = "links"))]
        let _ = record;
        // Nodes of one process are found by their names.
        Ok(self.carrier.clone().map(|carrier| (carrier, format!("node:{id}"))))
    }

    /// Returns the entities of this node, whose failures are logged.
    fn here(&self, id: &NodeId, shutdown: &Shutdown) -> Here {
        let (weak, named) = (shutdown.downgrade(), self.cluster.clone());
        let failed = move |region: &str, entity: &str, error: String| {
            let (cluster, region, entity) = (named.clone(), region.to_owned(), entity.to_owned());
            log_error(&weak, move || {
                tracing::error!(cluster, region, entity, error, "entity failed");
            });
        };
        let (weak, named) = (shutdown.downgrade(), self.cluster.clone());
        let open_failed = move |shard: &ShardId, error: String| {
            let (cluster, shard) = (named.clone(), shard.to_string());
            log_error(&weak, move || tracing::error!(cluster, shard, error, "on_open failed"));
        };
        let starts = Starts::new(self.entities, self.entity_starts);
        Here::new(id.clone(), starts, failed, open_failed)
    }
}

fn error_of(broken: Broken, too_short: String) -> ClusterError {
    match broken {
        Broken::Ttl(value) => {
            ClusterError::Time { what: "the time to live", value, rule: too_short }
        }
        Broken::JoinDeadline => {
            let rule = "must not be zero".to_owned();
            ClusterError::Time { what: "the join deadline", value: Duration::ZERO, rule }
        }
        Broken::Weight => ClusterError::NoWeight,
        Broken::Address { address, problem } => ClusterError::Address { address, problem },
        Broken::Node(error) => ClusterError::Name(error),
    }
}

fn log_error(shutdown: &WeakShutdown, emit: impl FnOnce() + Send + 'static) {
    match shutdown.upgrade() {
        Some(shutdown) => adapter::log(&shutdown, emit),
        None => adapter::log_aside(tracing::Level::ERROR, || emit),
    }
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("cluster", &self.cluster)
            .field("node", &self.options.node)
            .field("store", &self.store.name())
            .finish_non_exhaustive()
    }
}
