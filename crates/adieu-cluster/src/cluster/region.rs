//! The options of a region, and of a singleton that receives messages.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use adieu_core::TaskResult;

use super::{Cluster, ClusterError};
use crate::entity::{Core, Entity, Function, Spawner, Tally};
use crate::message::Command;
use crate::records::{RegionConfig, RegionKind, checked};
use crate::regions::{Ask, OnOpen, Region, RegionInner, Tell};
use crate::time::Duration;

const SHARDS: u32 = 256;

/// The most shards of one region. A view with all of them must fit into memory and into one load.
const MOST_SHARDS: u32 = 20_000;
const MAILBOX: usize = 1_000;
const IDLE: Duration = Duration::from_secs(10 * 60);

/// The options of a region. Created by [`Cluster::region`].
#[must_use = "a region does nothing until it is served"]
pub struct RegionBuilder<C: Command> {
    cluster: Cluster,
    name: String,
    shards: u32,
    mailbox: usize,
    idle: Option<Duration>,
    on_open: Option<OnOpen>,
    commands: PhantomData<fn(C)>,
}

/// A singleton that receives messages: one entity, which runs without mail, too.
pub struct Singleton<C: Command> {
    region: Region<C>,
}

// === impl RegionBuilder ===

impl<C: Command> RegionBuilder<C> {
    pub(super) fn new(cluster: &Cluster, name: String) -> Self {
        Self {
            cluster: cluster.clone(),
            name,
            shards: SHARDS,
            mailbox: MAILBOX,
            idle: Some(IDLE),
            on_open: None,
            commands: PhantomData,
        }
    }

    /// Sets the number of shards, which is the same on all nodes and never changes. Ten times the
    /// expected number of nodes is a good value. Default: 256.
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// Sets how much mail an entity may have that it has not opened. Default: 1,000.
    pub fn mailbox(mut self, mails: usize) -> Self {
        self.mailbox = mails;
        self
    }

    /// Sets after how long an entity without mail ends; `None` lets it run until its shard moves.
    /// Default: 10 minutes.
    pub fn idle(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.idle = idle.into();
        self
    }

    /// Runs a future whenever a shard has opened on this node, for example to wake the entities that
    /// the application knows to be in it. The future is dropped when the shard is to be handed over, or
    /// when the node may no longer act. A panic is logged.
    pub fn on_open<F, Fut>(mut self, f: F) -> Self
    where
        F: Fn(u32) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.on_open = Some(Arc::new(move |shard| Box::pin(f(shard))));
        self
    }

    /// Runs entities of the region on this node with this function, and returns the handle that sends
    /// messages to all of them.
    ///
    /// # Errors
    ///
    /// If the name is not valid or was declared before, a number is out of bounds, or the node has
    /// begun to join.
    pub fn serve<F, Fut>(self, f: F) -> Result<Region<C>, ClusterError>
    where
        F: Fn(Entity<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        self.declare(Some(Box::new(Function(Arc::new(f)))), RegionKind::Region)
    }

    /// Returns the handle that sends messages to the entities of the region, and runs none of them on
    /// this node.
    ///
    /// # Errors
    ///
    /// As [`RegionBuilder::serve`].
    pub fn proxy(self) -> Result<Region<C>, ClusterError> {
        self.declare(None, RegionKind::Region)
    }

    fn declare(
        self,
        spawner: Option<Box<dyn Spawner<C>>>,
        kind: RegionKind,
    ) -> Result<Region<C>, ClusterError> {
        let Self { cluster, name, shards, mailbox, idle, on_open, .. } = self;
        let name = checked("a region", &name)?;
        let bounded = |what, value: u64, least: u64, most: u64| {
            let fits = (least..=most).contains(&value);
            let name = format!("region {name}").into();
            let error = ClusterError::Number { what, name, value, least, most };
            fits.then_some(()).ok_or(error)
        };
        bounded("shards", shards.into(), 1, MOST_SHARDS.into())?;
        bounded("mails", mailbox as u64, 1, 1_000_000)?;
        cluster.check_declared(&name)?;
        let core = Core {
            name: Arc::clone(&name),
            here: Arc::clone(&cluster.shared.here),
            spawner,
            mailbox,
            idle,
            is_resident: kind == RegionKind::Singleton,
            bytes: Default::default(),
            tally: Tally::default(),
            requests: Default::default(),
        };
        let region = Arc::new(RegionInner::new(core, RegionConfig { kind, shards }, on_open));
        match cluster.shared.regions.add(Arc::clone(&region) as _) {
            true => Ok(Region::new(region)),
            false => Err(ClusterError::Twice { name }),
        }
    }
}

impl<C: Command> fmt::Debug for RegionBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionBuilder")
            .field("name", &self.name)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

// === impl Singleton ===

impl<C: Command> Singleton<C> {
    pub(super) fn declare<F, Fut>(
        cluster: &Cluster,
        name: String,
        f: F,
    ) -> Result<Self, ClusterError>
    where
        F: Fn(Entity<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        let builder = RegionBuilder::new(cluster, name).shards(1).idle(None);
        let spawner = Box::new(Function(Arc::new(f)));
        Ok(Self { region: builder.declare(Some(spawner), RegionKind::Singleton)? })
    }

    /// Sends a command, and waits for the reply. It is sent when the returned value is awaited.
    pub fn ask(&self, command: C) -> Ask<'_, C> {
        self.region.at(self.region.name()).ask(command)
    }

    /// Sends a command without waiting for a reply. It is sent when the returned value is awaited.
    pub fn tell(&self, command: C) -> Tell<'_, C> {
        self.region.at(self.region.name()).tell(command)
    }
}

impl<C: Command> Clone for Singleton<C> {
    fn clone(&self) -> Self {
        Self { region: self.region.clone() }
    }
}

impl<C: Command> fmt::Debug for Singleton<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Singleton").field("name", &self.region.name()).finish_non_exhaustive()
    }
}
