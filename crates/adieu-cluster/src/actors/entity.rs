//! An entity whose mail an actor handles.

use std::fmt;
use std::sync::Arc;

use adieu_actors::{ActorSystem, Around, Ended, Node, NodePath, Spawn, SpawnError};

use super::cx::EntityCx;
use crate::entity::{AsEntity, Entity, Here, Mail, STOPPED, Slot, WhyStopped};
use crate::message::Command;
use crate::time::{Duration, LONGEST, now};
use tokio::time::sleep;

/// The pause before an actor that has not ended is killed again.
const PAUSE: Duration = Duration::from_millis(50);

/// A reference to an actor.
pub(super) trait Addressed<C: Command>: Send + Sync + 'static {
    /// Sends a mail. Fails if the actor has ended, with the mail if the framework returns it.
    fn send(&self, mail: Mail<C>) -> impl Future<Output = Result<(), Option<Mail<C>>>> + Send;

    fn node(&self) -> Arc<dyn Node>;
}

/// The actor of an entity. If it is dropped, the actor is killed, and the entity ends after it.
struct Running<C: Command, A> {
    actor: Option<A>,
    node: Option<Arc<dyn Node>>,
    system: ActorSystem,
    path: NodePath,
    slot: Arc<Slot<C>>,
    has_ended: bool,
    /// For the asks that the actor drops.
    stopped: WhyStopped,
}

/// Lets an actor run only while its node may act, and marks its code as that of an entity.
struct Scope(Arc<Here>);

/// Runs an entity: starts its actor, gives it the mail, and stops it.
pub(super) async fn run<C, S>(
    mut me: Entity<C>,
    system: ActorSystem,
    create: impl Fn(EntityCx) -> S,
) -> Result<(), String>
where
    C: Command,
    S: Spawn<Ref: Addressed<C>>,
{
    let mut running = start(&me, &system, &create).await?;
    loop {
        let mail = tokio::select! {
            biased;
            // An actor that has stopped itself. The next mail starts another one.
            ended = running.ended() => return running.end(ended),
            mail = me.next() => mail,
        };
        let Some(mut mail) = mail else { break };
        loop {
            let (handled, is_ask) = (mail.handled(), mail.is_ask());
            mail.is_for_actor(Arc::clone(&running.stopped));
            match running.send(mail).await {
                Ok(()) => {
                    let Err(_) = handled.await;
                    // The handler may fail, or stop its actor, after its reply. A mail that is sent
                    // to an actor that is about to end would be lost.
                    running.idle().await;
                    break;
                }
                // It has stopped itself in between, and another one handles the mail.
                Err(Some(refused)) => {
                    let ended = running.ended().await;
                    running.end(ended)?;
                    running = start(&me, &system, &create).await?;
                    mail = refused;
                }
                Err(None) => {
                    // The framework has dropped it. An ask ends by that as unknown.
                    if !is_ask {
                        me.count_dead_letter();
                    }
                    break;
                }
            }
        }
    }
    // The kill of an entity ends its actor, so the drain of an actor has no limit of its own.
    drop(system.stop(&running.path, LONGEST).await);
    let ended = running.ended().await;
    running.end(ended)
}

async fn start<C, S>(
    me: &Entity<C>,
    system: &ActorSystem,
    create: impl Fn(EntityCx) -> S,
) -> Result<Running<C, S::Ref>, String>
where
    C: Command,
    S: Spawn<Ref: Addressed<C>>,
{
    let (here, slot, region) = me.parts();
    let name = name(region, me.id());
    let text = |error: SpawnError| error.to_string();
    let path = NodePath::user().child(&name).map_err(|error| error.to_string())?;
    let cx = EntityCx { id: me.id().into(), fence: me.fence(), here: Arc::clone(&here) };
    // It exists before the actor: if the start is dropped, the actor must not go on.
    let (standing, killed) = (Arc::clone(&here), Arc::clone(&slot));
    let stopped = move || (!standing.is_good() || killed.is_killed()).then_some(STOPPED);
    let mut running = Running {
        actor: None,
        node: None,
        system: system.clone(),
        path,
        slot,
        has_ended: false,
        stopped: Arc::new(stopped),
    };
    let spawned = system.spawn_around(&name, create(cx), Arc::new(Scope(here))).await;
    running.has_ended = spawned.is_err();
    let actor = spawned.map_err(text)?;
    running.node = Some(actor.node());
    running.actor = Some(actor);
    Ok(running)
}

/// Returns the name of an actor: that of the entity, in the form that a path allows.
fn name(region: &str, id: &str) -> String {
    let mut name = format!("{region}:");
    for character in id.chars() {
        match character {
            '/' | '%' => name.push_str(&format!("%{:02X}", u32::from(character))),
            it if it.is_whitespace() || it.is_control() => {
                name.push_str(&format!("%{:02X}", u32::from(it)));
            }
            it => name.push(it),
        }
    }
    name
}

// === impl Running ===

impl<C: Command, A: Addressed<C>> Running<C, A> {
    async fn send(&self, mail: Mail<C>) -> Result<(), Option<Mail<C>>> {
        match &self.actor {
            Some(actor) => actor.send(mail).await,
            None => Err(Some(mail)),
        }
    }

    /// Waits until the actor has nothing to do, or has ended.
    async fn idle(&self) {
        let Some(node) = &self.node else { return };
        if node.quiet().is_some() {
            return;
        }
        tokio::select! {
            biased;
            _ = node.terminated() => {}
            _ = node.idle() => {}
        }
    }

    /// Waits until the actor has ended, after its stop hook.
    async fn ended(&self) -> Ended {
        match &self.node {
            Some(node) => node.terminated().await,
            None => Ended::Stopped,
        }
    }

    /// Records that the actor has ended.
    fn end(&mut self, ended: Ended) -> Result<(), String> {
        self.has_ended = true;
        let failed = || format!("its actor ended: {ended}");
        (ended == Ended::Stopped).then_some(()).ok_or_else(failed)
    }
}

impl<C: Command, A> Drop for Running<C, A> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (system, path, node) = (self.system.clone(), self.path.clone(), self.node.take());
        self.slot.set_remainder(Box::pin(async move {
            // It is killed at once, as are its children, and has a moment for its stop hook. An actor
            // that cannot be killed keeps the shard.
            while system.stop(&path, Duration::ZERO).await.is_some() {
                sleep(PAUSE).await;
            }
            if let Some(node) = node {
                node.terminated().await;
            }
        }));
    }
}

// === impl Scope ===

impl Around for Scope {
    fn poll(&self, poll: &mut dyn FnMut()) {
        let now = now();
        if self.0.is_good_at(now) {
            let _here = AsEntity::enter(now);
            poll();
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scope")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_name_of_its_own_that_a_path_allows() {
        let ids = ["17", "a/b", "a%2Fb", "a b", "", "größe", "\n"];
        let names: Vec<_> = ids.map(|id| name("cart", id)).into();
        assert_eq!(names[..3], ["cart:17", "cart:a%2Fb", "cart:a%252Fb"]);
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ids.len());
        for name in names {
            NodePath::user().child(&name).unwrap();
        }
    }
}
