//! Spawns, aborts and joins the tasks of a shutdown. The driver owns the crew, so every running task
//! has an owner.
//!
//! Async tasks of the application run on its runtime, those of the library on the library's own.
//! Blocking tasks run on threads of their own, so they start and end even if all workers of the
//! runtime are blocked.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::RunsOn;
use super::end::{Ended, TaskId};
use crate::shield::{drop_shielded, shielded};
use crate::sync::lock;
use crate::time::{Duration, Instant, now};

/// The maximum number of threads for blocking tasks. Further tasks wait, so that a phase cannot use up
/// all threads of the system.
const MAX_THREADS: usize = 256;

pub(crate) struct Crew {
    runtime: Handle,
    /// The runtime of the library's own tasks; the same as `runtime` if there is no other.
    own_runtime: Handle,
    ended: Arc<EndedTasks>,
    /// By task id: ids are assigned in the order in which tasks start. Kept until the shutdown is
    /// over, because dropping the handle of an ended task frees its memory, which can wait.
    handles: Vec<Option<JoinHandle<()>>>,
    threads: Threads,
    /// Ends that the crew has found itself, and that have not been returned yet.
    done: VecDeque<Done>,
    /// Ends that tasks have reported, and that have not been returned yet.
    reported: std::vec::IntoIter<Reported>,
}

/// The end of a task.
pub(crate) struct Done {
    pub(crate) task: TaskId,
    pub(crate) at: Instant,
    pub(crate) ended: Ended,
}

/// The list in which tasks report their ends. A task reports after everything that it owns was
/// dropped. A `JoinSet` does the same at twice the cost.
pub(super) struct EndedTasks {
    /// Identifies the shutdown.
    pub(super) key: usize,
    list: Mutex<Vec<Reported>>,
    /// The instant that reported times are relative to.
    origin: Instant,
    /// Notifies the driver that the list is not empty.
    nudge: Arc<Notify>,
}

/// The end of a task in half the space of [`Done`], because there may be very many.
struct Reported {
    task: TaskId,
    nanos: u64,
    /// `None` if the task finished.
    ended: Option<Box<Ended>>,
}

struct Threads {
    running: HashSet<TaskId>,
    waiting: VecDeque<(TaskId, String, Work)>,
}

type Work = Box<dyn FnOnce() -> Ended + Send>;

// === impl EndedTasks ===

impl EndedTasks {
    pub(super) fn report(&self, task: TaskId, ended: Ended) {
        let ended = (!matches!(ended, Ended::Finished)).then(|| Box::new(ended));
        let nanos = now().saturating_duration_since(self.origin).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let mut list = lock(&self.list);
        let was_empty = list.is_empty();
        list.push(Reported { task, nanos, ended });
        drop(list);
        // If the list was not empty, the driver was notified and has not read it yet.
        if was_empty {
            self.nudge.notify_one();
        }
    }
}

// === impl Crew ===

impl Crew {
    /// Creates a crew without tasks. `key` identifies the shutdown. Async tasks of the application run
    /// on `runtime`, those of the library on `own_runtime`. `nudge` is notified when tasks have ended.
    pub(crate) fn new(
        key: usize,
        runtime: Handle,
        own_runtime: Option<Handle>,
        nudge: Arc<Notify>,
    ) -> Self {
        Self {
            own_runtime: own_runtime.unwrap_or_else(|| runtime.clone()),
            runtime,
            ended: Arc::new(EndedTasks { key, list: Mutex::default(), origin: now(), nudge }),
            handles: Vec::new(),
            threads: Threads { running: HashSet::new(), waiting: VecDeque::new() },
            done: VecDeque::new(),
            reported: Vec::new().into_iter(),
        }
    }

    /// Starts further tasks on these runtimes.
    pub(crate) fn move_to(&mut self, runtime: Handle, own_runtime: Option<Handle>) {
        self.own_runtime = own_runtime.unwrap_or_else(|| runtime.clone());
        self.runtime = runtime;
    }

    /// Returns the list in which a task reports its end.
    pub(super) fn ended(&self) -> &Arc<EndedTasks> {
        &self.ended
    }

    pub(crate) fn reserve(&mut self, tasks: usize) {
        self.handles.reserve(tasks);
        lock(&self.ended.list).reserve(tasks);
    }

    /// Spawns a task, which reports its end.
    pub(super) fn spawn(
        &mut self,
        task: TaskId,
        on: RunsOn,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let runtime = match on {
            RunsOn::Home => &self.runtime,
            RunsOn::Own => &self.own_runtime,
        };
        let handle = runtime.spawn(work);
        if self.handles.len() <= task.0 {
            self.handles.resize_with(task.0 + 1, || None);
        }
        self.handles[task.0] = Some(handle);
    }

    pub(super) fn spawn_blocking(&mut self, task: TaskId, name: &str, work: Work) {
        self.threads.waiting.push_back((task, format!("adieu {name}"), work));
        self.start_threads();
    }

    /// Aborts a task. An async task is over when it has reported its end. A thread cannot be stopped,
    /// so it is left behind at once.
    pub(crate) fn abort(&mut self, task: TaskId) {
        if let Some(Some(handle)) = self.handles.get(task.0) {
            handle.abort();
        } else if self.threads.running.remove(&task) {
            self.done.push_back(Done { task, at: now(), ended: Ended::LeftBehind });
            self.start_threads(); // A thread that was left behind must not delay waiting tasks.
        } else if let Some(at) = self.threads.waiting.iter().position(|(id, ..)| *id == task) {
            drop_shielded(self.threads.waiting.remove(at));
            self.done.push_back(Done { task, at: now(), ended: Ended::Aborted });
        }
    }

    /// Returns tasks that have ended, `most` at a time.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Done> {
        let mut batch = Vec::new();
        while batch.len() < most
            && let Some(done) = self.try_next()
        {
            if batch.is_empty() {
                batch.reserve_exact(most.min(self.done.len() + self.reported.len() + 1));
            }
            batch.push(done);
        }
        batch
    }

    fn try_next(&mut self) -> Option<Done> {
        let done = match self.done.pop_front() {
            Some(done) => done,
            None => self.next_reported()?,
        };
        // The length is checked first: most phases have no threads, and hashing is expensive here.
        if !self.threads.running.is_empty() && self.threads.running.remove(&done.task) {
            self.start_threads();
        }
        Some(done)
    }

    fn next_reported(&mut self) -> Option<Done> {
        if self.reported.len() == 0 {
            self.reported = std::mem::take(&mut *lock(&self.ended.list)).into_iter();
        }
        let Reported { task, nanos, ended } = self.reported.next()?;
        let at = self.ended.origin + Duration::from_nanos(nanos);
        Some(Done { task, at, ended: ended.map_or(Ended::Finished, |ended| *ended) })
    }

    /// Starts threads that are never joined. A thread that does not end must not keep the process
    /// alive, as a thread of the runtime's blocking pool would.
    fn start_threads(&mut self) {
        while self.threads.running.len() < MAX_THREADS
            && let Some((task, name, work)) = self.threads.waiting.pop_front()
        {
            let (reports, runtime) = (Arc::clone(&self.ended), self.runtime.clone());
            let thread = std::thread::Builder::new().name(name);
            let run = move || {
                let _entered = runtime.enter();
                let ended = work();
                reports.report(task, ended);
            };
            // Shielded: if no thread can be started, the task is dropped here.
            let spawned = shielded(|| thread.spawn(run).map_err(|error| error.to_string()));
            match spawned.unwrap_or_else(|message| Err(message.to_string())) {
                Ok(_) => {
                    self.threads.running.insert(task);
                }
                Err(error) => {
                    let error = format!("failed to start a thread for the task: {error}");
                    self.done.push_back(Done {
                        task,
                        at: now(),
                        ended: Ended::Failed(error.into()),
                    });
                }
            }
        }
    }
}
