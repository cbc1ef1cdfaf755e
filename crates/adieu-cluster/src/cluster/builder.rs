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
use crate::address;
use crate::commits::Commits;
use crate::config;
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
    node: Option<String>,
    build: String,
    zone: Option<String>,
    address: Option<String>,
    weight: u32,
    ttl: Duration,
    removal_margin: Option<Duration>,
    join_deadline: Duration,
    entities: usize,
    entity_starts: u32,
    carrier: Option<Arc<dyn Carrier>>,
    #[cfg(feature = "links")]
    listen: Option<(String, Security)>,
}

const TTL: Duration = Duration::from_secs(10);
const JOIN_DEADLINE: Duration = Duration::from_secs(30);

// === impl ClusterBuilder ===

impl ClusterBuilder {
    pub(super) fn new(store: Arc<dyn Store>, cluster: String) -> Self {
        Self {
            store,
            cluster,
            node: None,
            build: String::new(),
            zone: None,
            address: None,
            weight: 1,
            ttl: TTL,
            removal_margin: None,
            join_deadline: JOIN_DEADLINE,
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
        self.node = Some(name.into());
        self
    }

    /// Names the build. While several builds are up, shards and singletons go to nodes of the build
    /// that started last.
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = build.into();
        self
    }

    /// Names the zone, such as an availability zone. Shards are spread over zones.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Sets the address at which other nodes reach this one, as `host:port`, if it differs from the
    /// address on which the node listens. Status shows it.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Sets the weight of this node: nodes get shards in proportion to their weights. Default: 1,
    /// which is also the least. To give a node no shards, cordon its process.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the time to live of the node's session. A node that cannot reach the store stops acting
    /// after four fifths of this time. All nodes should have the same value. Default: 10 seconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
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
        self.removal_margin = Some(margin);
        self
    }

    /// Sets how long [`Cluster::join`] waits. Default: 30 seconds.
    pub fn join_deadline(mut self, within: Duration) -> Self {
        self.join_deadline = within;
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
        let Self { store, cluster, .. } = self;
        let shortest = store.shortest_ttl().max(config::SHORTEST_TTL);
        let too_short = format!(
            "the shortest time to live of the store {} is {}",
            store.name(),
            Short(shortest)
        );
        let configured = config::read(adapter::config(shutdown), shortest, &too_short)?;
        let node = configured.node.or(self.node);
        let build = configured.build.unwrap_or(self.build);
        let zone = configured.zone.or(self.zone);
        let address = configured.address.or(self.address);
        let weight = configured.weight.unwrap_or(self.weight);
        let ttl = configured.ttl.unwrap_or(self.ttl);
        let join_deadline = configured.join_deadline.unwrap_or(self.join_deadline);
        let keys = Keys::new(&cluster)?;
        let node = node.unwrap_or_else(|| adieu_fleet::Owner::this_process().as_str().to_owned());
        let id = NodeId::new(node)?;
        if ttl < shortest {
            let what = "the time to live";
            return Err(ClusterError::Time { what, value: ttl, rule: too_short });
        }
        if weight == 0 {
            return Err(ClusterError::NoWeight);
        }
        if let Some(Err(problem)) = address.as_deref().map(address::check) {
            return Err(ClusterError::Address { address: address.unwrap_or_default(), problem });
        }
        if page::has(shutdown, &cluster, &id) {
            return Err(ClusterError::NodeTwice { cluster, node: id });
        }
        if join_deadline.is_zero() {
            let rule = "must not be zero".to_owned();
            let value = join_deadline;
            return Err(ClusterError::Time { what: "the join deadline", value, rule });
        }
        for (what, value) in [("entities", self.entities), ("starts", self.entity_starts as usize)]
        {
            if value == 0 {
                let (name, least, most) = ("of this node".into(), 1, u64::from(u32::MAX));
                return Err(ClusterError::Number { what, name, value: 0, least, most });
            }
        }
        let mut settings = Settings::for_ttl(ttl);
        let removal_margin = configured.removal_margin.or(self.removal_margin);
        settings.removal_margin = removal_margin.unwrap_or(settings.removal_margin);
        // Nodes of one process are found by their names.
        let carrier = self.carrier.map(|carrier| (carrier, format!("node:{id}")));
        #[cfg(feature = "links")]
        let carrier = match self.listen {
            None => carrier,
            Some((listen, security)) => {
                let identity = Identity {
                    cluster: cluster.as_str().into(),
                    node: id.clone(),
                    build: build.as_str().into(),
                    protocol: (PROTOCOL, PROTOCOL),
                };
                let links = Links::listen(&listen, security, identity, Limits::default())?;
                if let Some(address) = &address {
                    links.check_reachable(address)?;
                }
                let reached_at = match &address {
                    Some(address) => address.clone(),
                    None => links.address()?.to_string(),
                };
                Some((Arc::new(links) as Arc<dyn Carrier>, reached_at))
            }
        };
        let (carrier, reached_at) = carrier.unzip();
        let address = address.or(reached_at);
        let record = NodeRecord {
            state: NodeState::Joining,
            ready: true,
            drain: Drain::Nothing,
            address,
            build,
            zone,
            weight,
            hosts: Vec::new(),
            protocol: (PROTOCOL, PROTOCOL),
        };
        let (weak, named) = (shutdown.downgrade(), cluster.clone());
        let failed = move |region: &str, entity: &str, error: String| {
            let (cluster, region, entity) = (named.clone(), region.to_owned(), entity.to_owned());
            log_error(&weak, move || {
                tracing::error!(cluster, region, entity, error, "entity failed");
            });
        };
        let (weak, named) = (shutdown.downgrade(), cluster.clone());
        let open_failed = move |shard: &ShardId, error: String| {
            let (cluster, shard) = (named.clone(), shard.to_string());
            log_error(&weak, move || tracing::error!(cluster, shard, error, "on_open failed"));
        };
        let starts = Starts::new(self.entities, self.entity_starts);
        let here = Arc::new(Here::new(id.clone(), starts, failed, open_failed));
        let shared = Arc::new(Shared {
            store,
            cluster: cluster.as_str().into(),
            commits: Commits::new(keys.clone()),
            keys,
            id,
            record,
            settings,
            join_deadline,
            shutdown: shutdown.downgrade(),
            check: shutdown.add_check(format!("cluster {cluster}")),
            runtime: OnceLock::new(),
            counters: Counters::default(),
            troubles: Troubles::default(),
            singletons: Mutex::new(BTreeMap::new()),
            regions: Arc::default(),
            here,
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
            .field("node", &self.node)
            .field("store", &self.store.name())
            .finish_non_exhaustive()
    }
}
