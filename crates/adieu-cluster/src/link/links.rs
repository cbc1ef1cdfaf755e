//! The links of one node: the transport of its messages.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use adieu_core::adapter::lock;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::core::{Core, Started};
use super::dialler;
use super::hello::Identity;
use super::lane::{Lane, Pushed};
use super::limits::Limits;
use super::listener;
use super::security::{Kind, ListenError, Security};
use super::tls::Tls;
use crate::address;
use crate::records::ShardId;
use crate::store::Revision;
use crate::transport::{
    Carrier, Envelope, FailingLink, Full, OnEvent, Peer, Pending, Receiver, Transport,
};

/// The links of one node.
pub(crate) struct Links {
    core: Arc<Core>,
    bound: SocketAddr,
    /// Taken by `start`.
    listener: Mutex<Option<TcpListener>>,
}

// === impl Links ===

impl Links {
    /// Binds the port on which other nodes reach this one. Connections are accepted from `start` on.
    pub(crate) fn listen(
        address: &str,
        security: Security,
        identity: Identity,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        let address: SocketAddr =
            address.parse().map_err(|_| ListenError::Address { address: address.to_owned() })?;
        if !security.allows(address.ip()) {
            return Err(ListenError::Unprotected { address });
        }
        let tls = match &security.0 {
            Kind::Mtls(mtls) => Some(Tls::read(mtls)?),
            Kind::None | Kind::Token(_) => None,
        };
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let bound = listener.local_addr()?;
            Ok((listener, bound))
        };
        let (listener, bound) = bind().map_err(|source| ListenError::Bind { address, source })?;
        let core = Arc::new(Core::new(identity, security, tls, limits));
        Ok(Self { core, bound, listener: Mutex::new(Some(listener)) })
    }

    /// Returns the address at which other nodes reach this one.
    pub(crate) fn address(&self) -> Result<SocketAddr, ListenError> {
        let address = self.bound;
        if address.ip().is_unspecified() {
            return Err(ListenError::Anywhere { address });
        }
        Ok(address)
    }

    /// Checks the address at which other nodes are to reach this one, if it was set.
    pub(crate) fn check_reachable(&self, address: &str) -> Result<(), ListenError> {
        match address::ip(address) {
            Some(ip) if !self.core.security.allows(ip) => {
                Err(ListenError::Unreachable { address: address.to_owned() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Begins to accept links and to dial. Called once, when this node's record exists.
    pub(crate) fn start(
        &self,
        runtime: &Handle,
        incarnation: Revision,
        receiver: Arc<dyn Receiver>,
    ) -> Result<(), ListenError> {
        let listener = lock(&self.listener).take();
        let Some(listener) = listener else { return Ok(()) };
        let entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener);
        drop(entered);
        let listener =
            listener.map_err(|source| ListenError::Bind { address: self.bound, source })?;
        let core = &self.core;
        core.set_started(Some(Started { incarnation, receiver, runtime: runtime.clone() }));
        core.spawn(runtime, listener::run(Arc::clone(core), listener, runtime.clone()));
        Ok(())
    }

    /// Returns how many links this node has dialled.
    #[cfg(test)]
    pub(super) fn dialled(&self) -> u64 {
        self.core.last_link.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns how many peers something may be on its way to.
    #[cfg(test)]
    pub(super) fn lanes(&self) -> usize {
        self.core.lanes.read().unwrap().len()
    }

    /// Returns how many tasks are running.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> usize {
        self.core.tasks.len()
    }

    /// Returns the lane of a peer; a new one has a dialler.
    fn lane(&self, to: &Peer, address: &str) -> Option<Arc<Lane>> {
        let core = &self.core;
        let lanes = core.lanes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(to) {
            return Some(Arc::clone(lane));
        }
        drop(lanes);
        let started = core.started()?;
        let mut lanes = core.lanes.write().unwrap_or_else(PoisonError::into_inner);
        if core.closing.is_cancelled() {
            return None;
        }
        let lane = lanes.entry(to.clone()).or_insert_with(|| {
            let lane = Arc::new(Lane::new(to.clone(), address, core.limits));
            core.spawn(&started.runtime, dialler::run(Arc::clone(core), Arc::clone(&lane)));
            lane
        });
        Some(Arc::clone(lane))
    }
}

impl Transport for Links {
    fn send(
        &self,
        to: &Peer,
        address: &str,
        mut envelope: Envelope,
        mut on_event: OnEvent,
    ) -> Result<(), Full> {
        loop {
            let Some(lane) = self.lane(to, address) else { return Err(Full(Box::new(envelope))) };
            match lane.push(address, envelope, on_event) {
                Pushed::Queued => return Ok(()),
                Pushed::Full(full) => return Err(full),
                Pushed::Retired(back, again) => (envelope, on_event) = (back, again),
            }
        }
    }

    fn failing(&self) -> Vec<FailingLink> {
        self.core.failing_links()
    }

    fn prepare<'a>(
        &'a self,
        to: &'a Peer,
        address: &'a str,
        shard: &'a ShardId,
    ) -> Pending<'a, Result<(), String>> {
        Box::pin(async move {
            let answer = loop {
                let lane = self.lane(to, address).ok_or("this node has no links")?;
                if let Some(answer) = lane.prepare(address, shard) {
                    break answer;
                }
            };
            let within = self.core.limits.prepare;
            match timeout(within, answer).await {
                Ok(Ok(prepared)) => prepared,
                Ok(Err(_)) => Err(format!("the link to node {} was closed", to.id)),
                Err(_) => Err(format!("node {} did not prepare within {within:?}", to.id)),
            }
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let core = &self.core;
            core.closing.cancel();
            core.stop_reading();
            core.tasks.close();
            let farewell = core.limits.farewell;
            if timeout(farewell * 2, core.tasks.wait()).await.is_err() {
                core.killed.cancel();
                if timeout(farewell, core.tasks.wait()).await.is_err() {
                    let (cluster, tasks) = (Arc::clone(&core.identity.cluster), core.tasks.len());
                    adieu_core::adapter::log_aside(
                        tracing::Level::WARN,
                        || move || tracing::warn!(%cluster, tasks, "tasks of links did not end"),
                    );
                }
            }
            core.set_started(None);
        })
    }
}

impl Carrier for Links {
    fn start(&self, me: &Peer, runtime: &Handle, receiver: Arc<dyn Receiver>) {
        if let Err(error) = self.start(runtime, me.incarnation, receiver) {
            let cluster = Arc::clone(&self.core.identity.cluster);
            let error = adieu_core::adapter::error_text(&error);
            adieu_core::adapter::log_aside(
                tracing::Level::ERROR,
                || move || tracing::error!(%cluster, error, "failed to start links to other nodes"),
            );
        }
    }

    fn into_transport(self: Arc<Self>) -> Arc<dyn Transport> {
        self
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.core.closing.cancel();
        self.core.killed.cancel();
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("bound", &self.bound).finish_non_exhaustive()
    }
}
