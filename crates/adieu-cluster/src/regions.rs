//! The regions of this node: the user's handle, and the operations of the driver on all of them.

mod ask;
mod enter;
mod hosted;
mod keeper;
mod opening;
#[cfg(feature = "http")]
mod request;
mod tell;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

pub use ask::{Ask, Asking};
pub use enter::{Elsewhere, ShardPass};
pub(crate) use hosted::{Hosted, RegionInner};
pub(crate) use keeper::keep;
pub(crate) use opening::OnOpen;
#[cfg(feature = "http")]
pub(crate) use request::Routing;
pub use tell::{Tell, Telling};

use crate::entity::{Here, Shard};
use crate::message::{Command, shard_of};
use crate::records::ShardId;
use crate::time::Duration;
use crate::transport::{Answer, Envelope, Peer, Pending, Receiver, Refusal};

/// The default time limit of an ask or a tell.
const WITHIN: Duration = Duration::from_secs(5);

/// A region: sends messages to its entities, wherever they are.
///
/// This is a handle: all clones refer to the same region. Create it with
/// [`Cluster::region`](crate::Cluster::region).
///
/// ```
/// use adieu_cluster::{AskError, Command, Region};
/// use serde::{Deserialize, Serialize};
/// # use std::time::Duration;
///
/// #[derive(Serialize, Deserialize)]
/// enum Cart {
///     Add(String),
///     Checkout,
/// }
/// impl Command for Cart {
///     type Reply = u32;
/// }
///
/// async fn checkout(carts: Region<Cart>, id: &str) -> Result<u32, AskError> {
///     carts.at(id).tell(Cart::Add("tea".to_owned())).await?; // until the owner has accepted it
///     match carts.at(id).ask(Cart::Checkout).within(Duration::from_secs(1)).await {
///         Ok(total) => Ok(total),               // handled once
///         Err(AskError::NotRun(_)) => Ok(0),    // not handled: it can be repeated
///         Err(unknown) => Err(unknown),         // may have been handled, once
///     }
/// }
/// # drop(checkout);
/// ```
pub struct Region<C: Command> {
    inner: Arc<RegionInner<C>>,
}

/// One entity of a region, as the target of messages. Created by [`Region::at`].
#[must_use = "an entity is not sent anything until `ask` or `tell`"]
pub struct At<'a, C: Command> {
    region: &'a RegionInner<C>,
    shard: &'a Shard<C>,
    key: Cow<'a, str>,
}

/// All regions of this node.
#[derive(Default)]
pub(crate) struct RegionMap {
    regions: RwLock<BTreeMap<Arc<str>, Arc<dyn Hosted>>>,
}

/// Receives the messages of other nodes.
pub(crate) struct Inbox {
    pub(crate) here: Arc<Here>,
    pub(crate) regions: Arc<RegionMap>,
}

// === impl Region ===

impl<C: Command> Region<C> {
    pub(crate) fn new(inner: Arc<RegionInner<C>>) -> Self {
        Self { inner }
    }

    #[cfg(feature = "http")]
    pub(crate) fn inner(&self) -> &Arc<RegionInner<C>> {
        &self.inner
    }

    /// Returns the entity with this key. It need not run: the first message starts it.
    pub fn at<'a>(&'a self, key: impl Into<Cow<'a, str>>) -> At<'a, C> {
        let key = key.into();
        let shard = self.inner.shard(shard_of(&key, self.inner.shards()));
        At { region: &self.inner, shard, key }
    }

    /// Returns the name of the region.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// Returns the shard that a key belongs to.
    #[must_use]
    pub fn shard_of(&self, key: &str) -> u32 {
        shard_of(key, self.inner.shards())
    }

    /// Holds the shard of a key, if this node owns it: for work that comes over the application's own
    /// transport. While the pass is held, the shard is not handed over, and no other node owns it.
    ///
    /// # Errors
    ///
    /// If this node does not own the shard, or hands it over.
    pub fn enter(&self, key: &str) -> Result<ShardPass, Elsewhere> {
        let number = self.shard_of(key);
        let shard = self.inner.shard(number);
        let pass = shard.enter().map_err(|grant| Elsewhere::new(shard.id(), &grant))?;
        Ok(ShardPass::new(pass, shard.id(), Arc::clone(&self.inner.core.here)))
    }
}

impl<C: Command> Clone for Region<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Command> fmt::Debug for Region<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("name", &self.name())
            .field("shards", &self.inner.shards())
            .finish_non_exhaustive()
    }
}

// === impl At ===

impl<'a, C: Command> At<'a, C> {
    /// Sends a command, and waits for the reply. It is sent when the returned value is awaited.
    pub fn ask(self, command: C) -> Ask<'a, C> {
        Ask::new(self.region, self.shard, self.key, command)
    }

    /// Sends a command without waiting for a reply. It is sent when the returned value is awaited.
    pub fn tell(self, command: C) -> Tell<'a, C> {
        Tell::new(self.shard, self.key, command)
    }
}

impl<C: Command> fmt::Debug for At<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("At").field("key", &self.key).finish_non_exhaustive()
    }
}

// === impl RegionMap ===

impl RegionMap {
    /// Adds a region. Returns whether there was none of this name.
    pub(crate) fn add(&self, region: Arc<dyn Hosted>) -> bool {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let name = Arc::clone(region.name());
        let is_new = !regions.contains_key(&name);
        if is_new {
            regions.insert(name, region);
        }
        is_new
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Hosted>> {
        self.regions.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<dyn Hosted>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.values().cloned().collect()
    }
}

// === impl Inbox ===

impl Receiver for Inbox {
    fn knows(&self, peer: &Peer) -> bool {
        self.here.knows(peer)
    }

    fn receive(&self, _from: &Peer, envelope: Envelope, answer: Box<dyn Answer>) {
        match self.regions.get(&envelope.shard.region) {
            Some(region) => region.receive(envelope, answer),
            None => {
                let problem = format!("this node has no region {:?}", &*envelope.shard.region);
                answer.refuse(Refusal::Unsupported(problem));
            }
        }
    }

    fn prepare<'a>(
        &'a self,
        _from: &'a Peer,
        shard: &'a ShardId,
    ) -> Pending<'a, Result<(), String>> {
        let region = self.regions.get(&shard.region);
        let is_hosted = region.is_some_and(|region| region.is_hosted());
        let refusal = || format!("this node does not host region {}", shard.region);
        Box::pin(std::future::ready(is_hosted.then_some(()).ok_or_else(refusal)))
    }
}
