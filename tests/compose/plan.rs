//! Decides the parts of a random service, its load and its trigger. Pure: a seed in, a plan out.

mod forced;
mod shape;

use std::fmt;

use adieu::{Rung, Signal};

pub use shape::Shape;

/// The frameworks whose actors hang, in turn, and how orders are sent to them. kameo's twice: it
/// drops the messages in a mailbox, so that most can be lost there.
const STUCK: [Framework; 7] = [
    Framework::Kameo,
    Framework::Ractor,
    Framework::Letters,
    Framework::Kameo,
    Framework::Plain,
    Framework::Task,
    Framework::Threads,
];
const STUCK_TOPOLOGIES: [Topology; 3] =
    [Topology::ParentToChild, Topology::Siblings, Topology::ChildToParent];

/// The frameworks whose handlers panic, in turn, and the effect of a panic. A node of the service's own would have to notice
/// the panic itself, and ractor ends an actor that panics.
const PANICKING: [(Framework, OnPanic); 8] = [
    (Framework::Kameo, OnPanic::Continues),
    (Framework::Task, OnPanic::Ends),
    (Framework::Letters, OnPanic::Ends),
    (Framework::Task, OnPanic::Continues),
    (Framework::Kameo, OnPanic::Ends),
    (Framework::Threads, OnPanic::Continues),
    (Framework::Ractor, OnPanic::Ends),
    (Framework::Threads, OnPanic::Ends),
];

/// Signals that reach the hard stop or the exit, in turn.
const HARD: [&[Sent]; 10] = [
    &[Sent::Interrupt, Sent::Interrupt],
    &[Sent::Interrupt, Sent::Interrupt, Sent::Interrupt],
    &[Sent::Terminate, Sent::Interrupt],
    &[Sent::Terminate, Sent::Terminate, Sent::Terminate],
    &[Sent::Interrupt, Sent::Terminate, Sent::Interrupt],
    &[Sent::Terminate, Sent::Interrupt, Sent::Terminate],
    &[Sent::Interrupt, Sent::Interrupt, Sent::Terminate],
    &[Sent::Terminate, Sent::Terminate, Sent::Interrupt],
    &[Sent::Terminate, Sent::Terminate, Sent::Terminate, Sent::Terminate],
    &[Sent::Interrupt, Sent::Terminate, Sent::Terminate, Sent::Interrupt],
];

/// The frameworks whose actors race, in turn.
const RACED_FOR: [Framework; 5] =
    [Framework::Kameo, Framework::Letters, Framework::Task, Framework::Kameo, Framework::Ractor];

/// The phases that are disabled, in turn, and `None` for `terminate-actor-system = off`.
const DISABLED: [Option<&str>; 7] = [
    Some("actor-system-terminate"),
    Some("service-stop"),
    None,
    Some("before-cluster-shutdown"),
    Some("service-unbind"),
    Some("before-actor-system-terminate"),
    Some("before-service-unbind"),
];

/// The phases at which a shutdown begins that begins late, in turn.
const BEGINNINGS: [&str; 5] = [
    "before-actor-system-terminate",
    "close-resources",
    "service-requests-done",
    "actor-system-terminate",
    "service-stop",
];

/// A random service, its load and its trigger.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed from which everything follows.
    pub seed: u64,
    /// Groups of actors that share the orders. Without any, orders go to the store directly.
    pub departments: Vec<Department>,
    /// Whether the handle of the actor system lives as long as the process.
    pub handle: Handle,
    /// How the pool is closed.
    pub pool: Pool,
    /// Takes jobs: how many at a time, and whether it hands them to actors.
    pub consumer: Option<Consumer>,
    /// Whether a periodic loop makes orders, too.
    pub is_periodic: bool,
    /// Whether tasks send to actors that are being drained.
    pub has_racer: bool,
    /// Start-up steps of one replica, and the lock that they take.
    pub locks: LockBackend,
    /// How many guards there are.
    pub guards: usize,
    /// The HTTP server.
    pub server: Server,
    /// Whether handlers leave some orders to tasks with a gate of their own.
    pub has_later: bool,
    /// When the body of `main` ends.
    pub body: Body,
    /// The subscriber of the log.
    pub subscriber: Subscriber,
    /// Worker threads of the runtime.
    pub workers: usize,
    /// How long each stage of start-up takes.
    pub startup_ms: [u64; 4],
    /// The clients.
    pub clients: Vec<Client>,
    /// When the shutdown begins.
    pub trigger: Trigger,
    /// Whether accepted work is not waited for, so that it must be in the report.
    pub deviation: Deviation,
    /// How much time there is, if there is too little.
    pub haste: Option<Haste>,
}

/// Too little time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Haste {
    /// What the platform allows.
    pub allowed_ms: u64,
    /// The timeout of each phase in which work is waited for; `None` leaves them as long as they are.
    pub phase_ms: Option<u64>,
}

/// How accepted work is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// It is not.
    None,
    /// `service-requests-done` is disabled.
    NoDrain,
    /// This phase is disabled.
    Disabled(&'static str),
    /// `terminate-actor-system` is off.
    KeepsActors,
    /// The shutdown begins at this phase.
    LateBegin(&'static str),
    /// A tick panics when gates close.
    PanickingTick,
}

/// Actors of one framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Department {
    /// The framework of the actors.
    pub framework: Framework,
    /// The path of an order through them.
    pub topology: Topology,
    /// How long each takes for an order.
    pub think_us: u64,
    /// Whether the last of them hangs after a while.
    pub is_stuck: bool,
    /// Whether the second worker thread panics during the drain.
    pub panics: bool,
    /// Whether handlers of the last of them panic while messages are queued.
    pub on_panic: Option<OnPanic>,
}

/// What an actor does whose handler panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPanic {
    /// It ends.
    Ends,
    /// It processes its other messages.
    Continues,
}

/// A framework of actors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// kameo's, derived.
    Kameo,
    /// ractor's.
    Ractor,
    /// ractor's, with letters.
    Letters,
    /// A task and a channel, as a node of the service's own.
    Plain,
    /// A task with a mailbox, ready-made.
    Task,
    /// kameo's, on worker threads of their own.
    Threads,
}

/// How an order goes through a department.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One actor.
    Single,
    /// From one actor to its sibling.
    Siblings,
    /// From an actor to its child.
    ParentToChild,
    /// From an actor to its parent.
    ChildToParent,
    /// From an actor to an actor of another system.
    OtherSystem,
    /// From an actor to a child that it spawns for the order.
    SpawnsChildren,
    /// From a task that an actor spawns, in its name, to its sibling.
    Scoped,
}

/// How long the handle of the actor system lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handle {
    /// It is kept until the process exits.
    Kept,
    /// It is dropped when the body returns.
    InBody,
    /// It is dropped when the actors have been spawned.
    Dropped,
}

/// How the pool is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// As a guard, when the process exits.
    Guard,
    /// As a lifecycle step.
    Step,
    /// By a task in `close-resources`.
    Task,
    /// By a task in a phase of its own, after the actors.
    Phase,
}

/// A consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Jobs at a time.
    pub concurrency: usize,
    /// Whether a job is done when an actor has accepted it.
    pub via_actor: bool,
}

/// Start-up steps that one replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockBackend {
    /// None.
    None,
    /// One step.
    One,
    /// Two steps behind one lock.
    Shared,
}

/// The HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `adieu::http::serve`.
    Adieu,
    /// `axum::serve`, with a layer that admits requests.
    Axum,
}

/// When the body of `main` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// When the server has ended, as in the README.
    Serves,
    /// When the shutdown is over.
    Waits,
    /// After a while, which begins the shutdown.
    Returns,
    /// When the shutdown begins. That drops the server's future.
    Selects,
}

/// The subscriber of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscriber {
    /// The standard error output.
    Standard,
    /// A subscriber that panics at each event, once the service has started.
    Panics,
    /// A subscriber that blocks at each event, once the service has started.
    Blocks,
    /// A subscriber that panics whenever a span is opened, entered, left or closed.
    PanicsInSpans,
    /// A subscriber that blocks for a while when a span is opened or entered.
    BlocksInSpans,
    /// A subscriber that blocks at each event, and whenever a span is opened, entered or left.
    BlocksEverywhere,
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Orders and pages over one HTTP/1 connection after another.
    Http1,
    /// Orders and pages over HTTP/2.
    Http2,
    /// One large answer, read slowly and steadily.
    Slow,
    /// One large answer over HTTP/2, read with pauses.
    Paused,
    /// One large answer to an HTTP/1.0 request, of which the client stops reading.
    CutHttp10,
    /// The same, over a Unix socket.
    CutUnix,
    /// One large answer in one frame, of which the client stops reading.
    CutFrame,
    /// One message over a WebSocket, whose handler is busy with it for seconds.
    BusySocket,
}

/// When and how the shutdown begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Whether the clock runs from when the process listens, and not from when it is ready.
    pub during_startup: bool,
    /// How long after that.
    pub after_ms: u64,
    /// The signals. The first begins the shutdown.
    pub signals: &'static [Sent],
    /// How long after one of them the next is sent: while the shutdown still runs.
    pub again_after_ms: u64,
}

// === impl Framework ===

impl Framework {
    const ALL: [Self; 6] =
        [Self::Kameo, Self::Ractor, Self::Letters, Self::Plain, Self::Task, Self::Threads];
}

// === impl Trigger ===

impl Trigger {
    /// Returns the rung that the signals reach, if all of them arrive while the shutdown runs.
    #[must_use]
    pub fn rung(&self) -> Rung {
        let signals = self.signals.iter().skip(1);
        signals.fold(Rung::Graceful, |rung, sent| rung.next(sent.signal()))
    }
}

// === impl Sent ===

impl Sent {
    /// Returns the signal.
    #[must_use]
    pub fn signal(self) -> Signal {
        match self {
            Self::Interrupt => Signal::INT,
            Self::Terminate => Signal::TERM,
        }
    }
}

// === impl Client ===

impl Client {
    fn is_slow(self) -> bool {
        match self {
            Self::Http1 | Self::Http2 => false,
            Self::Slow | Self::Paused | Self::BusySocket => true,
            Self::CutHttp10 | Self::CutUnix | Self::CutFrame => true,
        }
    }

    /// Returns whether its answer is cut.
    #[must_use]
    pub fn is_cut(self) -> bool {
        matches!(self, Self::CutHttp10 | Self::CutUnix | Self::CutFrame)
    }
}

// === impl Deviation ===

impl Deviation {
    fn in_turn(turn: u64) -> Self {
        match turn % 4 {
            0 => Self::NoDrain,
            1 => Self::late_begin(turn / 4),
            2 => Self::PanickingTick,
            _ => Self::disabled(turn / 4),
        }
    }

    fn disabled(turn: u64) -> Self {
        in_turn(turn, &DISABLED).map_or(Self::KeepsActors, Self::Disabled)
    }

    fn late_begin(turn: u64) -> Self {
        Self::LateBegin(in_turn(turn, &BEGINNINGS))
    }

    /// Returns whether the shutdown ends without having drained its actors.
    #[must_use]
    pub fn leaves_actors(self) -> bool {
        match self {
            Self::KeepsActors => true,
            Self::Disabled(phase) => phase == "actor-system-terminate",
            Self::LateBegin(phase) => phase == "close-resources",
            Self::None | Self::NoDrain | Self::PanickingTick => false,
        }
    }

    /// Returns whether work behind gates may not be waited for.
    #[must_use]
    pub fn cuts_gates(self) -> bool {
        matches!(self, Self::NoDrain | Self::LateBegin(_))
    }

    #[cfg(test)]
    fn is_other_disabled(self) -> bool {
        matches!(self, Self::Disabled(_) | Self::KeepsActors)
    }
}

// === impl Plan ===

impl Plan {
    /// Returns the plan of a seed.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        plan.settle();
        plan
    }

    /// Returns the plan of a seed with this shape forced into it.
    #[must_use]
    pub fn with(seed: u64, shape: Shape) -> Self {
        let mut plan = Self::draw(seed);
        plan.force(shape);
        plan.settle();
        plan
    }

    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let has_racer = seed % 9 == 4;
        let mut departments: Vec<Department> =
            (0..rng.usize(0..=2)).map(|_| Department::draw(&mut rng)).collect();
        // The rare parts take turns, so that few seeds have all of them. A department that loses or
        // refuses messages is alone, so that the counts are exact.
        if seed.is_multiple_of(5) {
            let framework = in_turn(seed / 5, &STUCK);
            let topology = in_turn(seed / 5, &STUCK_TOPOLOGIES);
            let drawn = Department::draw(&mut rng);
            departments = vec![Department { framework, topology, is_stuck: true, ..drawn }];
        } else if seed % 10 == 7 {
            let framework = Framework::Threads;
            departments =
                vec![Department { framework, panics: true, ..Department::draw(&mut rng) }];
        } else if has_racer {
            let framework = in_turn(seed / 9, &RACED_FOR);
            departments = vec![Department { framework, ..Department::draw(&mut rng) }];
        } else if seed % 10 == 6 {
            let mut department = Department::draw(&mut rng);
            department.panic_in_turn(seed / 10);
            departments = vec![department];
        }
        let handle = pick(&mut rng, &[Handle::Kept, Handle::InBody, Handle::Dropped]);
        let pool = pick(&mut rng, &[Pool::Guard, Pool::Step, Pool::Task, Pool::Phase]);
        let consumer =
            rng.bool().then(|| Consumer { concurrency: rng.usize(1..=4), via_actor: rng.bool() });
        let is_periodic = rng.bool();
        let locks = pick(
            &mut rng,
            &[LockBackend::None, LockBackend::None, LockBackend::One, LockBackend::Shared],
        );
        let guards = rng.usize(0..=2);
        let server = pick(&mut rng, &[Server::Adieu, Server::Adieu, Server::Adieu, Server::Axum]);
        let has_later = rng.u8(0..4) == 0;
        let body = pick(&mut rng, &[Body::Serves, Body::Waits, Body::Returns, Body::Selects]);
        let subscriber = match rng.u8(0..10) {
            0 => Subscriber::Panics,
            1 => Subscriber::Blocks,
            2 => Subscriber::PanicsInSpans,
            3 => Subscriber::BlocksInSpans,
            4 => Subscriber::BlocksEverywhere,
            _ => Subscriber::Standard,
        };
        let workers = rng.usize(1..=3);
        let startup_ms = std::array::from_fn(|_| rng.u64(0..40));
        let mut clients: Vec<Client> = (0..rng.usize(1..=4))
            .map(|_| pick(&mut rng, &[Client::Http1, Client::Http2]))
            .collect();
        if seed % 8 == 3 {
            let slow = [
                Client::Slow,
                Client::Paused,
                Client::CutHttp10,
                Client::CutUnix,
                Client::CutFrame,
                Client::BusySocket,
            ];
            clients.push(in_turn(seed / 8, &slow));
        }
        let deviation =
            if seed % 13 == 2 { Deviation::in_turn(seed / 13) } else { Deviation::None };
        let trigger = Trigger {
            during_startup: rng.u8(0..5) == 0,
            after_ms: rng.u64(0..400),
            signals: match (rng.u8(0..4) == 0, rng.u8(0..4) == 0) {
                (_, true) => &[Sent::Terminate, Sent::Terminate],
                (true, false) => &[Sent::Interrupt],
                (false, false) => &[Sent::Terminate],
            },
            again_after_ms: rng.u64(30..130),
        };
        let mut plan = Self {
            seed,
            departments,
            handle,
            pool,
            consumer,
            is_periodic,
            has_racer,
            locks,
            guards,
            server,
            has_later,
            body,
            subscriber,
            workers,
            startup_ms,
            clients,
            trigger,
            deviation,
            haste: None,
        };
        // Such a service has no slow clients and no races.
        let can_be_cut_short = !has_racer && plan.clients.iter().all(|client| !client.is_slow());
        match seed % 10 {
            1 | 8 if can_be_cut_short => plan.stop_hard(),
            2 | 9 if can_be_cut_short => plan.make_hasty(),
            _ => {}
        }
        plan
    }

    /// Lets the signals reach the hard stop, or the exit, at any instant of the shutdown.
    fn stop_hard(&mut self) {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        self.trigger.signals = in_turn(self.seed / 5, &HARD);
        self.trigger.again_after_ms = rng.u64(30..250);
        self.slow_down(&mut rng);
    }

    /// Allows little time, for the whole shutdown or also for its phases.
    fn make_hasty(&mut self) {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let allowed_ms = rng.u64(300..3_000);
        let phase_ms = rng.bool().then(|| rng.u64(50..500));
        self.haste = Some(Haste { allowed_ms, phase_ms });
        self.slow_down(&mut rng);
    }

    /// Lets orders take so long that some are not done in time.
    fn slow_down(&mut self, rng: &mut fastrand::Rng) {
        let think_us = rng.u64(0..30_000);
        self.each(|it| it.think_us = think_us);
    }

    /// Returns whether there may be too little time to finish everything.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.haste.is_some() || self.trigger.rung() >= Rung::HardStop
    }

    /// Returns whether there is time and room to finish everything: then anything less is a
    /// mistake.
    #[must_use]
    pub fn must_be_lossless(&self) -> bool {
        let is_cut = self.clients.iter().any(|client| client.is_cut());
        let is_plain = self.deviation == Deviation::None;
        let has_time = is_plain && !is_cut && !self.is_cut_short();
        has_time && !self.has_failing_actors() && !self.has_racer
    }

    /// Returns whether actors process what they accept from senders that race with the drain.
    /// ractor may refuse it, and a node of the service's own accepts any message.
    #[must_use]
    pub fn must_drain_races(&self) -> bool {
        let is_strict = |it: &Department| {
            matches!(it.framework, Framework::Kameo | Framework::Task | Framework::Threads)
        };
        let has_time = !self.has_failing_actors() && !self.is_cut_short();
        self.departments.iter().all(is_strict) && has_time
    }

    /// Returns whether the messages that actors lose can be counted. ractor may not know them without
    /// letters, nor a node of the service's own.
    #[must_use]
    pub fn counts_exactly(&self) -> bool {
        let is_uncounted =
            |it: &Department| matches!(it.framework, Framework::Ractor | Framework::Plain);
        !self.departments.iter().any(is_uncounted)
    }

    fn has_failing_actors(&self) -> bool {
        self.departments.iter().any(|it| it.is_stuck || it.panics || it.on_panic.is_some())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

// === impl Department ===

impl Department {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let topologies = [
            Topology::Single,
            Topology::Siblings,
            Topology::ParentToChild,
            Topology::ChildToParent,
            Topology::OtherSystem,
            Topology::SpawnsChildren,
            Topology::Scoped,
        ];
        Self {
            framework: pick(rng, &Framework::ALL),
            topology: pick(rng, &topologies),
            think_us: rng.u64(0..2_000),
            is_stuck: false,
            panics: false,
            on_panic: None,
        }
    }

    /// Lets the handlers of the last actor panic.
    fn panic_in_turn(&mut self, turn: u64) {
        let (framework, on_panic) = in_turn(turn, &PANICKING);
        self.framework = framework;
        self.topology = in_turn(turn, &STUCK_TOPOLOGIES);
        self.on_panic = Some(on_panic);
        (self.is_stuck, self.panics) = (false, false);
    }

    fn force(&mut self, topology: Topology) {
        self.topology = topology;
        // Worker threads have a topology of their own.
        if self.framework == Framework::Threads {
            self.framework = Framework::Kameo;
        }
    }

    #[cfg(test)]
    fn without_panic(&mut self, on_panic: OnPanic) {
        if self.on_panic == Some(on_panic) {
            self.on_panic = None;
        }
    }

    #[cfg(test)]
    fn without(&mut self, topology: Topology) {
        if self.topology == topology {
            self.topology = Topology::ParentToChild;
        }
    }
}

fn in_turn<T: Copy>(turn: u64, from: &[T]) -> T {
    from[usize::try_from(turn).unwrap_or_default() % from.len()]
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_a_forced_shape_is_in_it() {
        for seed in 0..500 {
            let text = |plan: &Plan| format!("{plan}");
            assert_eq!(text(&Plan::random(seed)), text(&Plan::random(seed)));
            for shape in Shape::ALL {
                let mut with = Plan::with(seed, shape);
                let forced = text(&with);
                with.remove(shape);
                // Without it, it would be another plan.
                assert_ne!(text(&with), forced, "{shape:?} is not in {forced}");
            }
        }
    }

    /// As many seeds as `scripts/mutants` tries.
    const FIRST: std::ops::Range<u64> = 1..51;

    #[test]
    fn each_framework_is_stuck_early() {
        for framework in Framework::ALL {
            let is_stuck = |it: &Department| it.is_stuck && it.framework == framework;
            let is_drawn = |seed| Plan::random(seed).departments.iter().any(is_stuck);
            assert!(FIRST.clone().any(is_drawn), "{framework:?}");
        }
    }

    #[test]
    fn every_shape_is_drawn_early_and_has_a_name() {
        for shape in Shape::ALL {
            assert_eq!(Shape::named(shape.name()), Some(shape));
            let is_drawn = |seed| {
                let mut without = Plan::random(seed);
                let plan = without.to_string();
                without.remove(shape);
                without.to_string() != plan
            };
            assert!(FIRST.clone().any(is_drawn), "{shape:?} is not drawn");
        }
    }
}
