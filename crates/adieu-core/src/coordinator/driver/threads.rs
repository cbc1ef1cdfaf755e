//! Decides which threads call [`Driver::step`], and publishes the report at the end.
//!
//! On a multi-threaded runtime, two callers do:
//!
//! - a task on that runtime. It is fast, because the tasks that it starts run nearby.
//! - a thread, the stand-in, which makes a step every 20 ms. Tasks that block all workers of the runtime
//!   would block the first caller, too. Because of the stand-in, deadlines hold and lines are logged when
//!   all workers are blocked. It has a small runtime of its own. The library's own tasks run there: those
//!   that only wait and signal, such as the lame duck and drains.
//!
//! On a current-thread runtime, only the task makes steps. It shares the clock of that runtime, which
//! tests pause. Without any runtime, a thread with a runtime of its own makes them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tracing::error;

use super::super::await_error::AwaitError;
use super::super::engine::Movable;
use super::super::locks;
use super::super::shared::Shared;
use super::{Beginning, Driver};
use crate::sync::OrderedMutex;
use crate::time::now;
use crate::watchdog::FINAL_LINE_WAIT;

/// How often the stand-in makes a step.
const STAND_IN: Duration = Duration::from_millis(20);

type SharedDriver = Arc<OrderedMutex<Driver>>;

/// Starts a driver, on the runtime `home` if there is one.
pub(in crate::coordinator) fn start(
    shared: &Arc<Shared>,
    home: Option<Handle>,
    beginning: Beginning,
) {
    let generation = shared.progress.generation();
    let Some(home) = home else {
        return start_on_own_thread(shared, generation, beginning);
    };
    let has_workers = home.runtime_flavor() != RuntimeFlavor::CurrentThread;
    let stand_in = if has_workers { StandIn::start(shared, generation) } else { None };
    let own = stand_in.as_ref().map(|stand_in| stand_in.runtime.clone());
    let Some(driver) = Driver::new(shared, home.clone(), own, beginning) else { return };
    let driver = shareable(driver);
    let movable: Arc<dyn Movable> = Arc::clone(&driver) as _;
    shared.engine.set_driver(Arc::downgrade(&movable));
    // The runtime owns the task. It ends with the report, and every wait for the report joins it.
    if has_workers {
        // The first step is made here, unless this is a task. To wake a worker for it costs more, and
        // most allocators serve the main thread faster than a worker.
        if tokio::task::try_id().is_none() {
            driver.lock().step();
        }
        home.spawn(drive(Arc::clone(shared), Arc::clone(&driver), None));
        if let Some(stand_in) = stand_in {
            stand_in.give(driver);
        }
    } else {
        let lost = ReportLost::new(shared, generation);
        home.spawn(drive(Arc::clone(shared), driver, Some(lost)));
    }
}

/// ProgressCounts a running shutdown to another runtime, because its own no longer polls tasks.
///
/// Tasks that were started stay where they are, and have their time. The others run on `runtime`.
pub(in crate::coordinator) fn take_over(shared: &Arc<Shared>, runtime: &Handle) {
    if let Some(driver) = shared.engine.driver() {
        driver.move_to(runtime);
    }
}

impl Movable for OrderedMutex<Driver> {
    fn move_to(self: Arc<Self>, runtime: &Handle) {
        let shared = Arc::clone(&self.lock().shared);
        let stand_in = StandIn::start(&shared, shared.progress.generation());
        let own = stand_in.as_ref().map(|stand_in| stand_in.runtime.clone());
        self.lock().crew.move_to(runtime.clone(), own);
        // The task on the old runtime may wait for the next nudge, and would consume it.
        shared.engine.nudge.notify_one();
        runtime.spawn(drive(shared, Arc::clone(&self), None));
        if let Some(stand_in) = stand_in {
            stand_in.give(self);
        }
    }
}

/// Makes steps until the shutdown is over. `lost` if there is no stand-in.
async fn drive(shared: Arc<Shared>, driver: SharedDriver, lost: Option<ReportLost>) {
    let mut timer = pin!(tokio::time::sleep_until(now().into()));
    loop {
        let (over, due) = {
            let mut driver = driver.lock();
            (driver.step(), driver.due)
        };
        let is_alone = lost.is_some();
        if over {
            if !driver.lock().has_report {
                return; // The stand-in has published it. The runtime may be dropped at any moment.
            }
            if is_alone {
                let _ = shared.journal().flush(FINAL_LINE_WAIT);
            } else {
                // Does not block the worker, because other tasks may need it.
                let _ = tokio::time::timeout(FINAL_LINE_WAIT, shared.journal().idle()).await;
            }
            publish(&shared, &driver);
            drop(lost);
            return;
        }
        if is_alone {
            shared.journal().catch_up();
        }
        if timer.deadline().into_std() != due {
            timer.as_mut().reset(due.into());
        }
        tokio::select! {
            biased;
            () = shared.engine.nudge.notified() => {}
            () = timer.as_mut() => {}
        }
    }
}

/// Publishes the report, once. The caller has waited for the log to write the last line.
fn publish(shared: &Shared, driver: &OrderedMutex<Driver>) {
    if !std::mem::take(&mut driver.lock().has_report) {
        return;
    }
    if let Some(report) = shared.with_run(|run, _| run.take_report()).flatten() {
        shared.finish(report);
    }
}

fn shareable(driver: Driver) -> SharedDriver {
    Arc::new(OrderedMutex::new(locks::DRIVER, driver))
}

/// A thread that makes steps when the runtime does not, and a runtime for the library's own tasks.
struct StandIn {
    runtime: Handle,
    driver: std::sync::mpsc::Sender<SharedDriver>,
}

impl StandIn {
    /// Starts the thread, which waits for its driver. Returns `None`, and logs it, if that fails.
    fn start(shared: &Arc<Shared>, generation: u64) -> Option<Self> {
        let started = Self::try_start(shared, generation);
        let log = |error| {
            let log = move || error!(%error, "failed to start the stand-in thread");
            shared.journal().log(log);
        };
        started.map_err(log).ok()
    }

    fn try_start(shared: &Arc<Shared>, generation: u64) -> std::io::Result<Self> {
        // Only timers: sockets need file descriptors, which may be exhausted.
        let own = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let runtime = own.handle().clone();
        let (driver, given) = std::sync::mpsc::channel::<SharedDriver>();
        let shared = Arc::clone(shared);
        std::thread::Builder::new().name("adieu".into()).spawn(move || {
            if let Ok(driver) = given.recv() {
                own.block_on(stand_in(&driver, ReportLost::new(&shared, generation)));
            }
            // A task that has not ended may be inside a destructor of the application.
            own.shutdown_background();
        })?;
        Ok(Self { runtime, driver })
    }

    fn give(self, driver: SharedDriver) {
        let _ = self.driver.send(driver);
    }
}

async fn stand_in(driver: &OrderedMutex<Driver>, mut lost: ReportLost) {
    loop {
        // Before the step: the first step has been made, and the task makes the next ones.
        tokio::time::sleep(STAND_IN).await;
        let over = driver.lock().step();
        if over {
            let _ = lost.shared.journal().flush(FINAL_LINE_WAIT);
            publish(&lost.shared, driver);
            // The report is not lost, even if the task has taken it and not yet published it.
            let _ = lost.generation.take();
            return;
        }
    }
}

fn start_on_own_thread(shared: &Arc<Shared>, generation: u64, beginning: Beginning) {
    let lost = ReportLost::new(shared, generation);
    let spawned = std::thread::Builder::new().name("adieu".into()).spawn({
        let shared = Arc::clone(shared);
        move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    return shared
                        .journal()
                        .log(move || error!(%error, "failed to build a runtime"));
                }
            };
            if let Some(driver) = Driver::new(&shared, runtime.handle().clone(), None, beginning) {
                runtime.block_on(drive(shared, shareable(driver), Some(lost)));
            }
        }
    });
    if let Err(error) = spawned {
        shared.journal().log(move || error!(%error, "failed to start a thread for the shutdown"));
    }
}

/// Publishes, when it is dropped with the driver, that there will be no report.
struct ReportLost {
    shared: Arc<Shared>,
    /// `None` if the report is not lost.
    generation: Option<u64>,
}

impl ReportLost {
    fn new(shared: &Arc<Shared>, generation: u64) -> Self {
        Self { shared: Arc::clone(shared), generation: Some(generation) }
    }
}

impl Drop for ReportLost {
    fn drop(&mut self) {
        if let Some(generation) = self.generation {
            let panicked = std::thread::panicking();
            let why = if panicked { AwaitError::DriverPanicked } else { AwaitError::RuntimeGone };
            self.shared.progress.lose(generation, why);
        }
    }
}
