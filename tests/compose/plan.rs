//! Decides the parts of a random service, its load and its trigger. Pure: a seed in, a plan out.

use std::fmt;

/// Parts that can be left out of random plans, or forced into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Issue 14, item 1: the handle of the actor system is dropped while its actors have work.
    DroppedHandle,
    /// Item 2: the pool that actors use is a lifecycle step.
    PoolStep,
    /// Item 2: the pool that actors use is closed by a task in `close-resources`.
    PoolTask,
    /// Item 2: the pool that actors use is closed by a task in a phase after the last one.
    PoolPhase,
    /// Item 3: an actor sends to its sibling.
    Siblings,
    /// Items 3 and 17: an actor sends to its parent.
    ChildToParent,
    /// Item 4: an actor on a worker thread sends to another thread.
    Threads,
    /// Item 4: a worker thread panics while it is drained, and others send to it.
    PanickedWorker,
    /// Item 5: an actor hangs, and is killed with messages in its mailbox.
    Stuck,
    /// Item 6: tasks send to actors that are being drained, until they are refused.
    Racer,
    /// Item 7: a client reads a large answer slowly and steadily.
    SlowReader,
    /// Item 7: a client reads a large answer over HTTP/2 with pauses.
    PausedReader,
    /// Item 8: the answer to an HTTP/1.0 request is cut because its client stops reading.
    CutHttp10,
    /// Like item 8, over a Unix socket.
    CutUnix,
    /// Item 9: two singleton steps share one lock, and a loop asks for a lock without waiting.
    SharedLock,
    /// Item 10: the log's subscriber panics.
    PanickingSubscriber,
    /// Item 10: the log's subscriber blocks.
    BlockingSubscriber,
    /// Item 11: the signal arrives while the service starts up.
    StartupSignal,
    /// Like item 3: an actor sends to an actor of another system on the same shutdown.
    OtherSystem,
    /// Like item 18: an actor spawns a child for an order, also while it is drained.
    SpawnsChildren,
    /// Like item 3: a task that an actor has spawned, in its name, sends to its sibling.
    Scoped,
    /// Like item 1: the future of the server is dropped when the shutdown begins.
    DroppedServer,
    /// `axum::serve` with a layer serves, instead of a server of adieu.
    Layer,
    /// Handlers answer, and leave the order to a task that holds a pass of another gate.
    Later,
    /// The phase that waits for admitted work is disabled.
    NoDrain,
    /// Another phase is disabled, or the shutdown does not terminate its actors.
    Disabled,
    /// The shutdown begins at a later phase.
    LateBegin,
    /// A tick that has accepted an order panics when gates close.
    PanickingTick,
    /// Like item 7: `axum::serve` with a layer sends a large answer as one frame, and it is cut.
    CutFrame,
}

/// Whose actors hang, in turn, and how orders go to them. kameo's twice: it drops the messages in a
/// mailbox, so that most can be lost there.
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

/// Whose actors are raced for, in turn.
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
    /// Whose actors.
    pub framework: Framework,
    /// How an order goes through them.
    pub topology: Topology,
    /// How long each takes for an order.
    pub think_us: u64,
    /// Whether the last of them hangs after a while.
    pub is_stuck: bool,
    /// Whether the second worker thread panics during the drain.
    pub panics: bool,
}

/// Whose actors.
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
}

/// When and how the shutdown begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Whether the clock runs from when the process listens, and not from when it is ready.
    pub during_startup: bool,
    /// How long after that.
    pub after_ms: u64,
    /// SIGINT instead of SIGTERM.
    pub is_interrupt: bool,
    /// A second SIGTERM, this long after the first: while the shutdown still runs.
    pub again_after_ms: Option<u64>,
}

// === impl Framework ===

impl Framework {
    const ALL: [Self; 6] =
        [Self::Kameo, Self::Ractor, Self::Letters, Self::Plain, Self::Task, Self::Threads];
}

// === impl Client ===

impl Client {
    fn is_slow(self) -> bool {
        match self {
            Self::Http1 | Self::Http2 => false,
            Self::Slow | Self::Paused => true,
            Self::CutHttp10 | Self::CutUnix | Self::CutFrame => true,
        }
    }

    /// Whether its answer is cut.
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

    /// Whether the shutdown ends without having drained its actors.
    #[must_use]
    pub fn leaves_actors(self) -> bool {
        match self {
            Self::KeepsActors => true,
            Self::Disabled(phase) => phase == "actor-system-terminate",
            Self::LateBegin(phase) => phase == "close-resources",
            Self::None | Self::NoDrain | Self::PanickingTick => false,
        }
    }

    /// Whether work behind gates may not be waited for.
    #[must_use]
    pub fn cuts_gates(self) -> bool {
        matches!(self, Self::NoDrain | Self::LateBegin(_))
    }

    #[cfg(test)]
    fn is_other_disabled(self) -> bool {
        matches!(self, Self::Disabled(_) | Self::KeepsActors)
    }
}

// === impl Shape ===

impl Shape {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::DroppedHandle,
        Self::PoolStep,
        Self::PoolTask,
        Self::PoolPhase,
        Self::Siblings,
        Self::ChildToParent,
        Self::Threads,
        Self::PanickedWorker,
        Self::Stuck,
        Self::Racer,
        Self::SlowReader,
        Self::PausedReader,
        Self::CutHttp10,
        Self::CutUnix,
        Self::SharedLock,
        Self::PanickingSubscriber,
        Self::BlockingSubscriber,
        Self::StartupSignal,
        Self::OtherSystem,
        Self::SpawnsChildren,
        Self::Scoped,
        Self::DroppedServer,
        Self::Layer,
        Self::Later,
        Self::NoDrain,
        Self::Disabled,
        Self::LateBegin,
        Self::PanickingTick,
        Self::CutFrame,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DroppedHandle => "dropped-handle",
            Self::PoolStep => "pool-step",
            Self::PoolTask => "pool-task",
            Self::PoolPhase => "pool-phase",
            Self::Siblings => "siblings",
            Self::ChildToParent => "child-to-parent",
            Self::Threads => "threads",
            Self::PanickedWorker => "panicked-worker",
            Self::Stuck => "stuck",
            Self::Racer => "racer",
            Self::SlowReader => "slow-reader",
            Self::PausedReader => "paused-reader",
            Self::CutHttp10 => "cut-http10",
            Self::CutUnix => "cut-unix",
            Self::SharedLock => "shared-lock",
            Self::PanickingSubscriber => "panicking-subscriber",
            Self::BlockingSubscriber => "blocking-subscriber",
            Self::StartupSignal => "startup-signal",
            Self::OtherSystem => "other-system",
            Self::SpawnsChildren => "spawns-children",
            Self::Scoped => "scoped",
            Self::DroppedServer => "dropped-server",
            Self::Layer => "layer",
            Self::Later => "later",
            Self::NoDrain => "no-drain",
            Self::Disabled => "disabled",
            Self::LateBegin => "late-begin",
            Self::PanickingTick => "panicking-tick",
            Self::CutFrame => "cut-frame",
        }
    }

    /// The shape of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
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
            ];
            clients.push(in_turn(seed / 8, &slow));
        }
        let deviation =
            if seed % 13 == 2 { Deviation::in_turn(seed / 13) } else { Deviation::None };
        let trigger = Trigger {
            during_startup: rng.u8(0..5) == 0,
            after_ms: rng.u64(0..400),
            is_interrupt: rng.u8(0..4) == 0,
            again_after_ms: (rng.u8(0..4) == 0).then(|| rng.u64(30..130)),
        };
        Self {
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
        }
    }

    #[cfg(test)]
    fn remove(&mut self, shape: Shape) {
        let has_actors = !self.departments.is_empty();
        match shape {
            // Without actors these are plain and old.
            Shape::PoolStep if has_actors && self.pool == Pool::Step => self.pool = Pool::Guard,
            Shape::PoolTask if has_actors && self.pool == Pool::Task => self.pool = Pool::Guard,
            Shape::PoolPhase if self.pool == Pool::Phase => self.pool = Pool::Guard,
            Shape::PoolStep | Shape::PoolTask | Shape::PoolPhase => {}
            Shape::DroppedHandle => self.handle = Handle::Kept,
            Shape::Siblings => self.each(|it| it.without(Topology::Siblings)),
            Shape::ChildToParent => self.each(|it| it.without(Topology::ChildToParent)),
            Shape::Threads => self.each(|it| {
                if it.framework == Framework::Threads {
                    it.framework = Framework::Kameo;
                }
            }),
            Shape::PanickedWorker => self.each(|it| it.panics = false),
            Shape::Stuck => self.each(|it| it.is_stuck = false),
            Shape::Racer => self.has_racer = false,
            Shape::SlowReader => self.clients.retain(|client| *client != Client::Slow),
            Shape::PausedReader => self.clients.retain(|client| *client != Client::Paused),
            Shape::CutHttp10 => self.clients.retain(|client| *client != Client::CutHttp10),
            Shape::CutUnix => self.clients.retain(|client| *client != Client::CutUnix),
            Shape::SharedLock if self.locks == LockBackend::Shared => self.locks = LockBackend::One,
            Shape::SharedLock => {}
            Shape::PanickingSubscriber if self.subscriber == Subscriber::Panics => {
                self.subscriber = Subscriber::Standard;
            }
            Shape::BlockingSubscriber if self.subscriber == Subscriber::Blocks => {
                self.subscriber = Subscriber::Standard;
            }
            Shape::PanickingSubscriber | Shape::BlockingSubscriber => {}
            Shape::StartupSignal => self.trigger.during_startup = false,
            Shape::OtherSystem => self.each(|it| it.without(Topology::OtherSystem)),
            Shape::SpawnsChildren => self.each(|it| it.without(Topology::SpawnsChildren)),
            Shape::Scoped => self.each(|it| it.without(Topology::Scoped)),
            Shape::DroppedServer if self.body == Body::Selects => self.body = Body::Serves,
            Shape::DroppedServer => {}
            Shape::Layer => self.server = Server::Adieu,
            Shape::Later => self.has_later = false,
            Shape::NoDrain => self.remove_deviation(Deviation::NoDrain),
            Shape::Disabled if self.deviation.is_other_disabled() => {
                self.deviation = Deviation::None;
            }
            Shape::LateBegin if matches!(self.deviation, Deviation::LateBegin(_)) => {
                self.deviation = Deviation::None;
            }
            Shape::Disabled | Shape::LateBegin => {}
            Shape::PanickingTick => self.remove_deviation(Deviation::PanickingTick),
            Shape::CutFrame => self.clients.retain(|client| *client != Client::CutFrame),
        }
    }

    #[cfg(test)]
    fn remove_deviation(&mut self, deviation: Deviation) {
        if self.deviation == deviation {
            self.deviation = Deviation::None;
        }
    }

    fn force(&mut self, shape: Shape) {
        // A deviation excludes most shapes, and so does a client that needs a layer.
        self.deviation = Deviation::None;
        self.clients.retain(|client| *client != Client::CutFrame);
        let needs_actors = matches!(
            shape,
            Shape::DroppedHandle
                | Shape::PoolStep
                | Shape::PoolTask
                | Shape::PoolPhase
                | Shape::Siblings
                | Shape::ChildToParent
                | Shape::Threads
                | Shape::PanickedWorker
                | Shape::Stuck
                | Shape::Racer
                | Shape::OtherSystem
                | Shape::SpawnsChildren
                | Shape::Scoped
        );
        if needs_actors {
            self.need_actors();
        }
        // A slow client needs a service that starts and logs as usual.
        let excludes_slow_clients = matches!(
            shape,
            Shape::PanickingSubscriber
                | Shape::BlockingSubscriber
                | Shape::StartupSignal
                | Shape::Layer
                | Shape::Later
        );
        if excludes_slow_clients {
            self.clients.retain(|client| !client.is_slow());
        }
        match shape {
            // A body that waits for the end keeps its variables.
            Shape::DroppedHandle if self.body == Body::Waits => self.handle = Handle::Dropped,
            Shape::DroppedHandle if self.handle == Handle::Kept => self.handle = Handle::InBody,
            Shape::DroppedHandle => {}
            Shape::PoolStep => self.pool = Pool::Step,
            Shape::PoolTask => self.pool = Pool::Task,
            Shape::PoolPhase => self.pool = Pool::Phase,
            Shape::Siblings => self.each(|it| it.force(Topology::Siblings)),
            Shape::ChildToParent => self.each(|it| it.force(Topology::ChildToParent)),
            Shape::Threads => self.each(|it| it.framework = Framework::Threads),
            Shape::PanickedWorker => self.each(|it| {
                it.framework = Framework::Threads;
                (it.panics, it.is_stuck) = (true, false);
            }),
            Shape::Stuck => self.each(|it| it.is_stuck = true),
            Shape::Racer => self.has_racer = true,
            Shape::SlowReader => self.clients.push(Client::Slow),
            Shape::PausedReader => self.clients.push(Client::Paused),
            Shape::CutHttp10 => self.clients.push(Client::CutHttp10),
            Shape::CutUnix => self.clients.push(Client::CutUnix),
            Shape::SharedLock => self.locks = LockBackend::Shared,
            Shape::PanickingSubscriber => self.subscriber = Subscriber::Panics,
            Shape::BlockingSubscriber => self.subscriber = Subscriber::Blocks,
            Shape::StartupSignal => {
                self.trigger.during_startup = true;
                // The signal arrives during the longest step with the highest probability.
                self.trigger.after_ms %= self.startup_ms.iter().sum::<u64>().max(1);
            }
            Shape::OtherSystem => self.each(|it| it.force(Topology::OtherSystem)),
            Shape::SpawnsChildren => self.each(|it| {
                it.force(Topology::SpawnsChildren);
                if it.framework == Framework::Plain {
                    it.framework = Framework::Task;
                }
            }),
            Shape::Scoped => self.each(|it| {
                it.force(Topology::Scoped);
                it.is_stuck = false;
                if it.framework == Framework::Plain {
                    it.framework = Framework::Task;
                }
            }),
            Shape::DroppedServer => {
                self.body = Body::Selects;
                self.server = Server::Adieu;
            }
            Shape::Layer => {
                self.server = Server::Axum;
                self.body = Body::Serves;
            }
            Shape::Later => {
                self.has_later = true;
                self.each(|it| (it.is_stuck, it.panics) = (false, false));
            }
            Shape::NoDrain => self.deviation = Deviation::NoDrain,
            Shape::Disabled => self.deviation = Deviation::disabled(self.seed),
            Shape::LateBegin => self.deviation = Deviation::late_begin(self.seed),
            Shape::PanickingTick => self.deviation = Deviation::PanickingTick,
            Shape::CutFrame => {
                self.clients.retain(|client| !client.is_slow());
                self.clients.push(Client::CutFrame);
            }
        }
    }

    fn need_actors(&mut self) {
        if self.departments.is_empty() {
            let mut rng = fastrand::Rng::with_seed(self.seed);
            self.departments.push(Department::draw(&mut rng));
        }
    }

    /// Takes out what makes no sense together.
    fn settle(&mut self) {
        self.settle_deviation();
        if self.departments.is_empty() {
            self.has_racer = false;
        }
        self.each(|it| {
            // Only a worker thread can panic alone, and what hangs before it panics does not.
            it.panics &= it.framework == Framework::Threads && !it.is_stuck;
            // A node of the service's own needs a handle of the system to spawn another, and has no
            // identity. Only actors may send to an actor that hangs, so that messages are counted in
            // time.
            let is_plain = it.framework == Framework::Plain;
            if is_plain && it.topology == Topology::SpawnsChildren {
                it.topology = Topology::ParentToChild;
            }
            if (is_plain || it.is_stuck) && it.topology == Topology::Scoped {
                it.topology = Topology::Siblings;
            }
        });
        // Orders that such tasks lose are not among the dead letters.
        if self.has_failing_actors() {
            self.has_later = false;
        }
        // axum drops its connections with its future, and does not wait for slow clients.
        let has_slow = self.clients.iter().any(|client| client.is_slow());
        if has_slow || self.body == Body::Selects {
            self.server = Server::Adieu;
        }
        // A server of adieu waits for the client of one frame, too, but the layer has to cut it.
        if self.clients.contains(&Client::CutFrame) {
            self.server = Server::Axum;
            self.body = Body::Returns;
        }
        // A race needs several threads.
        if self.has_racer {
            self.workers = 3;
        }
        // A slow client needs a service that is there for its first bytes.
        if self.clients.iter().any(|client| client.is_slow()) {
            self.trigger.during_startup = false;
            self.trigger.after_ms = self.trigger.after_ms.max(300);
            self.trigger.again_after_ms = None;
            self.subscriber = Subscriber::Standard;
        }
    }

    /// Makes a service of which only the work behind one gate, of actors, or of a tick is lost.
    fn settle_deviation(&mut self) {
        if self.deviation == Deviation::None {
            return;
        }
        if self.deviation.leaves_actors() {
            self.need_actors();
            // A node of the service's own does not know which of its messages it has not processed.
            self.each(|it| {
                (it.is_stuck, it.panics) = (false, false);
                if it.framework == Framework::Plain {
                    it.framework = Framework::Task;
                }
            });
        } else {
            self.departments.clear();
        }
        self.has_racer = false;
        // The loop that asks for a lock is checked by a task, whose phase may not run.
        if self.locks == LockBackend::Shared {
            self.locks = LockBackend::One;
        }
        self.clients.retain(|client| !client.is_slow());
        self.server = Server::Adieu;
        self.subscriber = Subscriber::Standard;
        (self.trigger.during_startup, self.trigger.again_after_ms) = (false, None);
        self.trigger.after_ms = self.trigger.after_ms.max(100);
        match self.deviation {
            Deviation::PanickingTick => self.is_periodic = true,
            Deviation::NoDrain | Deviation::Disabled(_) | Deviation::KeepsActors => {
                self.has_later = true;
            }
            Deviation::LateBegin(_) => (self.has_later, self.body) = (true, Body::Returns),
            Deviation::None => {}
        }
        // Then the report contains orders as messages, and not as work behind a gate.
        self.has_later &= self.departments.is_empty();
    }

    fn each(&mut self, change: impl Fn(&mut Department)) {
        self.departments.iter_mut().for_each(change);
    }

    /// Whether there is time and room to finish everything: then anything less is a mistake.
    #[must_use]
    pub fn must_be_lossless(&self) -> bool {
        let is_cut = self.clients.iter().any(|client| client.is_cut());
        let is_plain = self.deviation == Deviation::None;
        is_plain && !self.has_failing_actors() && !is_cut && !self.has_racer
    }

    /// Whether actors process what they accept from senders that race with the drain. ractor may
    /// refuse it, and a node of the service's own accepts what it likes.
    #[must_use]
    pub fn must_drain_races(&self) -> bool {
        let is_strict = |it: &Department| {
            matches!(it.framework, Framework::Kameo | Framework::Task | Framework::Threads)
        };
        self.departments.iter().all(is_strict) && !self.has_failing_actors()
    }

    fn has_failing_actors(&self) -> bool {
        self.departments.iter().any(|it| it.is_stuck || it.panics)
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
        }
    }

    fn force(&mut self, topology: Topology) {
        self.topology = topology;
        // Worker threads have a topology of their own.
        if self.framework == Framework::Threads {
            self.framework = Framework::Kameo;
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
