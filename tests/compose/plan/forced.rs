//! Forces a shape into a plan, removes it, and removes combinations that cannot work together.

use adieu::Rung;

use super::{
    Body, Client, Department, Deviation, Framework, Handle, LockBackend, OnPanic, PANICKING, Plan,
    Pool, Server, Shape, Subscriber, Topology, in_turn,
};

impl Plan {
    #[cfg(test)]
    pub(super) fn remove(&mut self, shape: Shape) {
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
            Shape::PanickingSubscriber => self.remove_subscriber(Subscriber::Panics),
            Shape::BlockingSubscriber => self.remove_subscriber(Subscriber::Blocks),
            Shape::PanickingSpans => self.remove_subscriber(Subscriber::PanicsInSpans),
            Shape::BlockingSpans => self.remove_subscriber(Subscriber::BlocksInSpans),
            Shape::BlockingEverywhere => self.remove_subscriber(Subscriber::BlocksEverywhere),
            Shape::HardStop if self.trigger.rung() >= Rung::HardStop => self.stop_gracefully(),
            Shape::HardStop => {}
            Shape::Haste => self.haste = None,
            Shape::PanickingHandler => self.each(|it| it.without_panic(OnPanic::Ends)),
            Shape::ContinuingHandler => self.each(|it| it.without_panic(OnPanic::Continues)),
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
            Shape::BusySocket => self.clients.retain(|client| *client != Client::BusySocket),
        }
    }

    #[cfg(test)]
    fn remove_subscriber(&mut self, subscriber: Subscriber) {
        if self.subscriber == subscriber {
            self.subscriber = Subscriber::Standard;
        }
    }

    #[cfg(test)]
    fn remove_deviation(&mut self, deviation: Deviation) {
        if self.deviation == deviation {
            self.deviation = Deviation::None;
        }
    }

    fn stop_gracefully(&mut self) {
        self.trigger.signals = &self.trigger.signals[..1];
    }

    pub(super) fn force(&mut self, shape: Shape) {
        // A deviation excludes most shapes, and so does a client that needs a layer, or too little time.
        self.deviation = Deviation::None;
        self.haste = None;
        if self.trigger.rung() >= Rung::HardStop {
            self.stop_gracefully();
        }
        self.each(|it| it.on_panic = None);
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
                | Shape::PanickingHandler
                | Shape::ContinuingHandler
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
                | Shape::HardStop
                | Shape::Haste
                | Shape::PanickingSpans
                | Shape::BlockingSpans
                | Shape::BlockingEverywhere
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
            Shape::PanickingSpans => self.subscriber = Subscriber::PanicsInSpans,
            Shape::BlockingSpans => self.subscriber = Subscriber::BlocksInSpans,
            Shape::BlockingEverywhere => self.subscriber = Subscriber::BlocksEverywhere,
            Shape::HardStop => {
                self.each(|it| (it.is_stuck, it.panics) = (false, false));
                self.stop_hard();
            }
            Shape::Haste => {
                self.each(|it| (it.is_stuck, it.panics) = (false, false));
                self.make_hasty();
            }
            Shape::PanickingHandler => self.force_panic(OnPanic::Ends),
            Shape::ContinuingHandler => self.force_panic(OnPanic::Continues),
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
            Shape::BusySocket => {
                self.clients.retain(|client| !client.is_slow());
                self.clients.push(Client::BusySocket);
            }
        }
    }

    /// Lets handlers of one department panic. It is alone, so that the counts are exact.
    fn force_panic(&mut self, on_panic: OnPanic) {
        let turns = (self.seed..).find(|turn| in_turn(*turn, &PANICKING).1 == on_panic);
        self.departments.truncate(1);
        self.each(|it| it.panic_in_turn(turns.unwrap_or_default()));
    }

    fn need_actors(&mut self) {
        if self.departments.is_empty() {
            let mut rng = fastrand::Rng::with_seed(self.seed);
            self.departments.push(Department::draw(&mut rng));
        }
    }

    /// Takes out what makes no sense together.
    pub(super) fn settle(&mut self) {
        self.settle_deviation();
        self.settle_time();
        if self.departments.is_empty() {
            self.has_racer = false;
        }
        self.each(|it| {
            // Only a worker thread can panic alone, and what hangs before it panics does not.
            it.panics &= it.framework == Framework::Threads && !it.is_stuck;
            if it.is_stuck || it.panics {
                it.on_panic = None;
            }
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
            self.stop_gracefully();
            self.subscriber = Subscriber::Standard;
        }
    }

    /// Makes a service whose losses can be counted, if it is cut short.
    fn settle_time(&mut self) {
        if self.deviation != Deviation::None {
            self.haste = None;
            if self.trigger.rung() >= Rung::HardStop {
                self.stop_gracefully();
            }
        }
        if !self.is_cut_short() {
            return;
        }
        self.has_racer = false;
        self.clients.retain(|client| !client.is_slow());
        // The task that checks the lock may not run.
        if self.locks == LockBackend::Shared {
            self.locks = LockBackend::One;
        }
        self.trigger.during_startup = false;
        // A process that ends at once drops no guards, and a body that returns begins the shutdown itself.
        self.guards = 0;
        if self.body == Body::Returns {
            self.body = Body::Serves;
        }
        self.each(|it| {
            // An actor that hangs has a timeout of its own.
            (it.is_stuck, it.panics) = (false, false);
            if it.framework == Framework::Plain {
                it.framework = Framework::Task;
            }
        });
    }

    /// Makes a service of which only the work behind one gate, of actors, or of a tick is lost.
    fn settle_deviation(&mut self) {
        if self.deviation == Deviation::None {
            return;
        }
        if self.deviation.leaves_actors() {
            self.need_actors();
            // A node of the service's own does not count the messages that it has not processed.
            self.each(|it| {
                (it.is_stuck, it.panics, it.on_panic) = (false, false, None);
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
        self.trigger.during_startup = false;
        self.stop_gracefully();
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

    pub(super) fn each(&mut self, change: impl Fn(&mut Department)) {
        self.departments.iter_mut().for_each(change);
    }
}
