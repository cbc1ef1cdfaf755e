//! Random trees, sends, panics, stops and kills: accepted messages are handled or dead letters, and
//! none is lost if there is time.
//!
//! `ADIEU_ACTORS_SEEDS=5000` runs that many seeds for each framework, `ADIEU_ACTORS_FIRST` is the first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_actors::{ActorSystem, NodePath};
use adieu_core::{Config, Phase, Reason, Shutdown};
use futures_util::future::BoxFuture;

use crate::frameworks::{Framework, Job, Log, Script};

/// Longer than all work of a run.
const LONG: Duration = Duration::from_secs(600);

/// A small generator of random numbers, the same on every machine.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The outcomes of the messages.
#[derive(Default)]
struct Tally {
    accepted: AtomicU64,
    refused: AtomicU64,
    handled: AtomicU64,
    panicked: AtomicU64,
}

/// The events that a run may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Events {
    /// Actors are stopped, end because of panics, and have too little time.
    All,
    /// Panics of actors that continue. There is time for all work.
    Harmless,
}

struct World<F: Framework> {
    events: Events,
    systems: Vec<ActorSystem>,
    actors: Mutex<Vec<F::Ref>>,
    log: Log,
    tally: Tally,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

impl<F: Framework> World<F> {
    fn pick(&self, random: &mut Random) -> F::Ref {
        let actors = self.actors.lock().unwrap();
        actors[random.below(actors.len() as u64) as usize].clone()
    }

    fn may_panic(&self) -> bool {
        self.events == Events::All || F::CONTINUES
    }

    /// Sends a job to a random actor, and notes whether it was accepted.
    fn send(self: Arc<Self>, mut random: Random, depth: u64) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let to = self.pick(&mut random);
            let job = Self::job(&self, random, depth);
            self.note(F::send(&to, job)).await;
        })
    }

    /// Sends a job to a random actor, and waits for its end.
    async fn ask(self: Arc<Self>, mut random: Random) {
        let to = self.pick(&mut random);
        let job = Self::job(&self, random, 3);
        self.note(F::ask(&to, job)).await;
    }

    /// Notes whether a job was accepted.
    async fn note(&self, sent: impl Future<Output = bool> + Send) {
        // Counted first: the job may be handled before the send returns.
        add(&self.tally.accepted);
        if !sent.await {
            self.tally.accepted.fetch_sub(1, Ordering::SeqCst);
            add(&self.tally.refused);
        }
    }

    fn job(world: &Arc<Self>, mut random: Random, depth: u64) -> Job {
        let world = Arc::clone(world);
        Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(random.below(20))).await;
            match random.below(40) {
                0 if world.may_panic() => {
                    add(&world.tally.panicked);
                    panic!("on purpose");
                }
                1 if world.events == Events::All => {
                    tokio::time::sleep(Duration::from_secs(random.below(20))).await
                }
                2 => {
                    let (top, name) = (world.pick(&mut random), random.below(1000).to_string());
                    let system = &world.systems[0];
                    let script = script(&world.log, world.events, &mut random);
                    let spawned = F::spawn(system, Some(&top), &name, script).await;
                    if let Ok(child) = spawned {
                        world.actors.lock().unwrap().push(child);
                    }
                }
                _ => {}
            }
            if depth > 0 {
                for _ in 0..random.below(3) {
                    let next = Random(random.below(u64::MAX));
                    Arc::clone(&world).send(next, depth - 1).await;
                }
            }
            add(&world.tally.handled);
        })
    }
}

fn script(log: &Log, events: Events, random: &mut Random) -> Script {
    let continues = events == Events::Harmless || random.below(2) == 0;
    // Larger than the number of messages: actors that wait for each other's mailboxes would lock up.
    Script { room: Some(10_000), continues, ..Script::new(log) }
}

async fn run_seed<F: Framework>(seed: u64, events: Events) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let config = Config::for_tests().terminate_actor_system(true);
    let shutdown = Shutdown::configured(config).unwrap();
    if events == Events::Harmless {
        shutdown.set_phase_timeout(Phase::ACTOR_SYSTEM_TERMINATE, LONG).unwrap();
    }
    let systems: Vec<ActorSystem> = (0..1 + random.below(2))
        .map(|number| ActorSystem::on(&shutdown, format!("system-{number}")).unwrap())
        .collect();
    let log = Log::default();
    let mut actors: Vec<F::Ref> = Vec::new();
    let mut tops = Vec::new();
    for (number, system) in systems.iter().enumerate() {
        let first = actors.len();
        for child in 0..1 + random.below(6) {
            let name = format!("{number}-{child}");
            let is_top = actors.len() == first || random.below(2) == 0;
            let own = (actors.len() - first) as u64;
            let parent = (!is_top).then(|| actors[first + random.below(own) as usize].clone());
            let script = script(&log, events, &mut random);
            actors.push(F::spawn(system, parent.as_ref(), &name, script).await.unwrap());
            if is_top {
                tops.push((system.clone(), NodePath::user().child(&name).unwrap()));
            }
        }
    }
    if events == Events::All && random.below(4) == 0 {
        let (system, path) = &tops[random.below(tops.len() as u64) as usize];
        system.set_guardian(path);
    }
    let (actors, tally) = (Mutex::new(actors), Tally::default());
    let world = Arc::new(World::<F> { events, systems, actors, log, tally });
    for _ in 0..5 + random.below(40) {
        Arc::clone(&world).send(Random(random.below(u64::MAX)), 3).await;
    }
    for _ in 0..random.below(5) {
        tokio::spawn(Arc::clone(&world).ask(Random(random.below(u64::MAX))));
    }
    if events == Events::All && random.below(3) == 0 {
        let (system, path) = tops[random.below(tops.len() as u64) as usize].clone();
        let (wait, timeout) = (random.below(100), random.below(3));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            system.stop(&path, Duration::from_secs(timeout)).await;
        });
    }
    tokio::time::sleep(Duration::from_millis(random.below(60))).await;
    let before: u64 = world.systems.iter().map(ActorSystem::dead_letter_count).sum();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let mut reported = 0;
    for system in &world.systems {
        reported += system.terminated().await.dead_letters();
    }
    // Senders that were not in an actor, and the stop, may still run.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let dead: u64 = world.systems.iter().map(ActorSystem::dead_letter_count).sum();
    let Tally { accepted, refused, handled, panicked } = &world.tally;
    let [accepted, refused, handled, panicked] =
        [accepted, refused, handled, panicked].map(|count| count.load(Ordering::SeqCst));
    let text = format!(
        "seed {seed}: {accepted} accepted, {refused} refused, {handled} handled, {panicked} \
         panicked, {dead} dead letters, {reported} reported, {before} before the shutdown; {report}"
    );
    assert_eq!(accepted + refused, handled + dead, "{text}");
    assert!(!report.is_clean() || dead == before, "{text}");
    assert!(events == Events::All || (refused, dead) == (0, panicked), "{text}");
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

async fn run_seeds<F: Framework>(events: Events) {
    let first = from_environment("ADIEU_ACTORS_FIRST", 0);
    for seed in first..first + from_environment("ADIEU_ACTORS_SEEDS", 60) {
        run_seed::<F>(seed, events).await;
    }
}

async fn s808_accepted_messages_are_handled_or_dead_letters<F: Framework>() {
    run_seeds::<F>(Events::All).await;
}

async fn s1693_no_message_is_lost_while_there_is_time<F: Framework>() {
    run_seeds::<F>(Events::Harmless).await;
}

on_all_actors![
    s808_accepted_messages_are_handled_or_dead_letters,
    s1693_no_message_is_lost_while_there_is_time,
];
