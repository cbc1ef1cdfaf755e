//! The tasks that are running: spawned, aborted, joined. The driver owns it, so all that runs has
//! an owner.
//!
//! Async tasks run on the user's runtime, those of the library on its own. Blocking ones run on threads of their own that need no
//! runtime, so they start and end also when all of the runtime's workers are blocked.

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

/// Blocking tasks beyond this many wait their turn, so that a phase cannot use up all threads.
const MOST_THREADS: usize = 256;

pub(crate) struct Crew {
    runtime: Handle,
    /// Where the library's own tasks run; the same if it has no runtime of its own.
    own_runtime: Handle,
    ended: Arc<EndedTasks>,
    /// By task id: ids are handed out in the order in which tasks start. Kept until all is over:
    /// to drop the handle of a task that has ended is to free it, and that can wait.
    handles: Vec<Option<JoinHandle<()>>>,
    threads: Threads,
    /// Over, and not yet handed out: threads, and what tasks have reported.
    done: VecDeque<Done>,
    reported: std::vec::IntoIter<Reported>,
}

/// A task's end.
pub(crate) struct Done {
    pub(crate) task: TaskId,
    pub(crate) at: Instant,
    pub(crate) ended: Ended,
}

/// Where tasks report their ends. Each reports itself, when all that it held has been dropped: a
/// `JoinSet` does the same for twice the price.
pub(super) struct EndedTasks {
    /// Names the shutdown.
    pub(super) key: usize,
    list: Mutex<Vec<Reported>>,
    /// What times are counted from.
    origin: Instant,
    /// Tells the driver that there is something in the list.
    nudge: Arc<Notify>,
}

/// A task's end, in half the space: there may be very many, and most of them have finished.
struct Reported {
    task: TaskId,
    nanos: u64,
    /// `None` if it finished.
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
        // Otherwise it has been told, and has not looked yet.
        if was_empty {
            self.nudge.notify_one();
        }
    }
}

// === impl Crew ===

impl Crew {
    /// `key` names the shutdown. Async tasks of the application run on `runtime`, those of the
    /// library on `own_runtime`. `nudge` is notified when tasks have ended.
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

    /// From now on, tasks are started on these runtimes.
    pub(crate) fn move_to(&mut self, runtime: Handle, own_runtime: Option<Handle>) {
        self.own_runtime = own_runtime.unwrap_or_else(|| runtime.clone());
        self.runtime = runtime;
    }

    /// For a task that is about to be started.
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

    /// Aborts a task. It is over when it has reported so; a thread is left behind at once.
    pub(crate) fn abort(&mut self, task: TaskId) {
        if let Some(Some(handle)) = self.handles.get(task.0) {
            handle.abort();
        } else if self.threads.running.remove(&task) {
            self.done.push_back(Done { task, at: now(), ended: Ended::LeftBehind });
            self.start_threads(); // Those who wait for their turn do not wait for it.
        } else if let Some(at) = self.threads.waiting.iter().position(|(id, ..)| *id == task) {
            drop_shielded(self.threads.waiting.remove(at));
            self.done.push_back(Done { task, at: now(), ended: Ended::Aborted });
        }
    }

    /// Tasks that have ended, so many at most.
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
        // Looked at first: most phases have none, and hashing costs as much as all the rest.
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

    /// Starts threads that nobody joins: one that will not end must not keep the process alive, as
    /// a thread of the runtime's pool would.
    fn start_threads(&mut self) {
        while self.threads.running.len() < MOST_THREADS
            && let Some((task, name, work)) = self.threads.waiting.pop_front()
        {
            let (reports, runtime) = (Arc::clone(&self.ended), self.runtime.clone());
            let thread = std::thread::Builder::new().name(name);
            let run = move || {
                let _entered = runtime.enter();
                let ended = work();
                reports.report(task, ended);
            };
            // Shielded: without a thread, the task is dropped here.
            let spawned = shielded(|| thread.spawn(run).map_err(|error| error.to_string()));
            match spawned.unwrap_or_else(|message| Err(message.to_string())) {
                Ok(_) => {
                    self.threads.running.insert(task);
                }
                Err(error) => {
                    let error = format!("failed to start its thread: {error}");
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
