//! Two nodes that are linked over the loopback interface, for measurements.

use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::link::{Identity, Limits, Links, ListenError, Security};
use crate::records::{NameError, NodeId, ShardId};
use crate::store::Revision;
use crate::time::{Duration, now};
use crate::transport::{
    Answer, Envelope, Event, MessageId, Peer, Pending, Receiver, Reply, Ticket, Transport,
};

/// A node that asks another one, which replies with the payload.
#[derive(Debug)]
pub struct Linked {
    asks: Links,
    replies: Links,
    to: Peer,
    address: String,
    region: Arc<str>,
    entity: Arc<str>,
}

/// Why there is no pair of nodes.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum NotLinked {
    /// A name is not valid.
    Name(#[from] NameError),
    /// A node cannot listen.
    Listen(#[from] ListenError),
}

#[derive(Debug)]
struct Echo;

impl Receiver for Echo {
    fn knows(&self, _: &Peer) -> bool {
        true
    }

    fn receive(&self, _: &Peer, envelope: Envelope, mut answer: Box<dyn Answer>) {
        answer.admit();
        answer.reply(Reply::Done(envelope.payload));
    }

    fn prepare<'a>(&'a self, _: &'a Peer, _: &'a ShardId) -> Pending<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

// === impl Linked ===

impl Linked {
    /// Starts two nodes on this runtime.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub fn start() -> Result<Self, NotLinked> {
        let start = |name: &str, incarnation| {
            let id = NodeId::new(name)?;
            let identity = Identity {
                cluster: "measured".into(),
                node: id.clone(),
                build: "".into(),
                protocol: (1, 1),
            };
            let security = Security::loopback_only();
            let links = Links::listen("127.0.0.1:0", security, identity, Limits::default())?;
            links.start(&Handle::current(), incarnation, Arc::new(Echo))?;
            Ok::<_, NotLinked>((links, Peer { id, incarnation }))
        };
        let (asks, _) = start("asks", Revision::new(1))?;
        let (replies, to) = start("replies", Revision::new(2))?;
        let address = replies.address()?.to_string();
        let (region, entity) = ("cart".into(), "cart-17".into());
        Ok(Self { asks, replies, to, address, region, entity })
    }

    /// Asks, and returns the reply; `None` if there is none.
    pub async fn ask(&self, sequence: u64, payload: Bytes) -> Option<Bytes> {
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let envelope = Envelope {
            shard: ShardId { region: Arc::clone(&self.region), number: 1 },
            epoch: Revision::new(1),
            entity: Arc::clone(&self.entity),
            id: MessageId { incarnation: Revision::new(1), sequence },
            is_ask: true,
            is_nested: false,
            is_request: false,
            deadline: now() + Duration::from_secs(60),
            payload,
            ticket: Ticket::default(),
        };
        let on_event = Box::new(move |event| {
            if event != Event::Admitted
                && let Some(sender) = sender.take()
            {
                // The caller may have given up.
                let _ = sender.send(event);
            }
        });
        self.asks.send(&self.to, &self.address, envelope, on_event).ok()?;
        match receiver.await.ok()? {
            Event::Replied(Reply::Done(payload)) => Some(payload),
            Event::Admitted
            | Event::Replied(_)
            | Event::Refused(_)
            | Event::Returned(_)
            | Event::Lost(_) => None,
        }
    }

    /// Asks the other node to prepare for a shard, which opens the link.
    ///
    /// # Errors
    ///
    /// If there is no link.
    pub async fn prepare(&self) -> Result<(), String> {
        let shard = ShardId { region: Arc::clone(&self.region), number: 1 };
        self.asks.prepare(&self.to, &self.address, &shard).await
    }

    /// Ends both nodes.
    pub async fn close(&self) {
        tokio::join!(self.asks.close(), self.replies.close());
    }
}
