//! The same actor for kameo and for ractor, which notes what it does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_actors::{ActorSystem, kameo as on_kameo, ractor as on_ractor};
use adieu_cluster::{Command, EntityCx, Mail, Region, RegionBuilder};
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::message::{Context, Message};
use ractor::ActorProcessingErr;
use serde::{Deserialize, Serialize};

use crate::stage::SECOND;

/// The framework of the actors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Kameo,
    Ractor,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Do {
    Add(u64),
    Note,
    /// Handles the mail for that many seconds.
    Take(u64),
    /// As before, and notes each tenth of a second.
    Tick(u64),
    /// Waits for that many seconds, and then adds one to another entity.
    Through(u64, String),
    Panic,
    /// Stops the actor after its reply.
    Stop,
}

impl Command for Do {
    type Reply = u64;
}

/// The region itself, for entities that ask others.
#[derive(Default)]
pub(crate) struct CartRef(pub(crate) Mutex<Option<Region<Do>>>);

/// The events, in order.
#[derive(Clone, Default)]
pub(crate) struct Events {
    all: Arc<Mutex<Vec<(String, String)>>>,
    failing_starts: Arc<AtomicU32>,
}

/// The state of an actor.
struct Cart {
    node: String,
    me: EntityCx,
    total: u64,
    events: Events,
    others: Arc<CartRef>,
}

/// Notes that a handler was dropped.
struct Drops(Option<(Events, String, String)>);

/// The actor of ractor.
struct CartActor;

// === impl Events ===

impl Events {
    fn note(&self, key: &str, text: String) {
        self.all.lock().unwrap().push((key.to_owned(), text));
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.all.lock().unwrap().iter().map(|(_, text)| text.clone()).collect()
    }

    pub(crate) fn of(&self, key: &str) -> Vec<String> {
        let all = self.all.lock().unwrap();
        all.iter().filter(|(of, _)| of == key).map(|(_, text)| text.clone()).collect()
    }

    /// Lets that many starts fail.
    pub(crate) fn fail_starts(&self, count: u32) {
        self.failing_starts.store(count, Ordering::Relaxed);
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        if let Some((events, node, key)) = self.0.take() {
            events.note(&key, format!("{node} drops {key}"));
        }
    }
}

// === impl Cart ===

impl Cart {
    fn begin(&self) -> Result<(), String> {
        let failing = &self.events.failing_starts;
        let less = |count: u32| count.checked_sub(1);
        if failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Err("as requested".to_owned());
        }
        let (node, id, fence) = (&self.node, self.me.id(), self.me.fence());
        self.events.note(id, format!("{node} starts {id} under {fence}"));
        Ok(())
    }

    /// Handles a mail. Returns whether the actor is to stop.
    async fn handle(&mut self, mail: Mail<Do>) -> bool {
        self.me.check().unwrap();
        let (node, id) = (self.node.clone(), self.me.id().to_owned());
        match mail.command() {
            Do::Add(number) => self.total += number,
            Do::Note => self.events.note(&id, format!("{node} handles {id}")),
            Do::Take(seconds) => {
                let mut drops = Drops(Some((self.events.clone(), node, id)));
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                drops.0 = None;
            }
            Do::Tick(seconds) => {
                for _ in 0..10 * seconds {
                    tokio::time::sleep(SECOND / 10).await;
                    self.events.note(&id, format!("{node} ticks {id}"));
                }
            }
            Do::Through(seconds, to) => {
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                let region = self.others.0.lock().unwrap().clone().unwrap();
                self.total += region.at(to).ask(Do::Add(1)).within(5 * SECOND).await.unwrap();
            }
            Do::Panic => panic!("as requested"),
            Do::Stop => {
                mail.reply(self.total);
                return true;
            }
        }
        mail.reply(self.total);
        false
    }

    /// The stop hook takes a while.
    async fn end(&self) {
        tokio::time::sleep(SECOND / 2).await;
        let (node, id) = (&self.node, self.me.id());
        self.events.note(id, format!("{node} has stopped {id}"));
    }
}

impl kameo::Actor for Cart {
    type Args = Self;
    type Error = String;

    async fn on_start(cart: Self, _: ActorRef<Self>) -> Result<Self, String> {
        cart.begin()?;
        Ok(cart)
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        reason: ActorStopReason,
    ) -> Result<(), String> {
        if matches!(reason, ActorStopReason::Normal) {
            self.end().await;
        }
        Ok(())
    }
}

impl Message<Mail<Do>> for Cart {
    type Reply = ();

    async fn handle(&mut self, mail: Mail<Do>, context: &mut Context<Self, ()>) {
        if Cart::handle(self, mail).await {
            context.stop();
        }
    }
}

impl ractor::Actor for CartActor {
    type Msg = Mail<Do>;
    type State = Cart;
    type Arguments = Cart;

    async fn pre_start(
        &self,
        _: ractor::ActorRef<Mail<Do>>,
        cart: Cart,
    ) -> Result<Cart, ActorProcessingErr> {
        cart.begin()?;
        Ok(cart)
    }

    async fn handle(
        &self,
        me: ractor::ActorRef<Mail<Do>>,
        mail: Mail<Do>,
        cart: &mut Cart,
    ) -> Result<(), ActorProcessingErr> {
        if cart.handle(mail).await {
            me.stop(None);
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ractor::ActorRef<Mail<Do>>,
        cart: &mut Cart,
    ) -> Result<(), ActorProcessingErr> {
        cart.end().await;
        Ok(())
    }
}

/// Declares the region with actors of this framework.
pub(crate) fn start(
    kind: Kind,
    builder: RegionBuilder<Do>,
    system: &ActorSystem,
    node: String,
    events: Events,
    others: Arc<CartRef>,
) -> Region<Do> {
    let cart = move |me| {
        let (node, events, others) = (node.clone(), events.clone(), Arc::clone(&others));
        Cart { node, me, total: 0, events, others }
    };
    match kind {
        Kind::Kameo => builder.kameo(system, move |me| on_kameo::actor::<Cart>(cart(me))),
        Kind::Ractor => builder.ractor(system, move |me| on_ractor::actor(CartActor, cart(me))),
    }
    .unwrap()
}
