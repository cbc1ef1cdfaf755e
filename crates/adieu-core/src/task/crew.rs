//! The tasks that are running: spawned, aborted, joined. The driver owns it, so all that runs has
//! an owner.
//!
//! Async tasks run on the user's runtime. Blocking ones run on threads of their own that need no
//! runtime, so they start and end also when all of the runtime's workers are blocked.

use std::collections::{HashMap, HashSet, VecDeque};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::coordinator::machine::{Ended, TaskId};
use crate::shield::{drop_shielded, shielded};
use crate::time::{Instant, now};

/// Blocking tasks beyond this many wait their turn, so that a phase cannot use up all threads.
const MOST_THREADS: usize = 256;

pub(crate) struct Crew {
    key: usize,
    runtime: Handle,
    set: JoinSet<Done>,
    /// By task id: ids are handed out in the order in which tasks start.
    handles: Vec<Option<AbortHandle>>,
    aborted: HashMap<tokio::task::Id, TaskId>,
    threads: Threads,
    /// Over, and not yet taken in.
    done: VecDeque<Done>,
}

/// A task's end.
pub(crate) struct Done {
    pub(crate) task: TaskId,
    pub(crate) at: Instant,
    pub(crate) ended: Ended,
}

struct Threads {
    tell: mpsc::UnboundedSender<Done>,
    told: mpsc::UnboundedReceiver<Done>,
    running: HashSet<TaskId>,
    waiting: VecDeque<(TaskId, String, Work)>,
}

type Work = Box<dyn FnOnce() -> Ended + Send>;

// === impl Crew ===

impl Crew {
    /// `key` names the shutdown; its async tasks run on `runtime`.
    pub(crate) fn new(key: usize, runtime: Handle) -> Self {
        #[expect(clippy::disallowed_methods, reason = "each task sends once: bounded by the tasks")]
        let (tell, told) = mpsc::unbounded_channel();
        Self {
            key,
            runtime,
            set: JoinSet::new(),
            handles: Vec::new(),
            aborted: HashMap::new(),
            threads: Threads { tell, told, running: HashSet::new(), waiting: VecDeque::new() },
            done: VecDeque::new(),
        }
    }

    pub(crate) fn key(&self) -> usize {
        self.key
    }

    pub(crate) fn reserve(&mut self, tasks: usize) {
        self.handles.reserve(tasks);
    }

    pub(super) fn spawn(
        &mut self,
        task: TaskId,
        work: impl Future<Output = Done> + Send + 'static,
    ) {
        let handle = self.set.spawn_on(work, &self.runtime);
        if self.handles.len() <= task.0 {
            self.handles.resize_with(task.0 + 1, || None);
        }
        self.handles[task.0] = Some(handle);
    }

    pub(super) fn spawn_blocking(&mut self, task: TaskId, name: &str, work: Work) {
        self.threads.waiting.push_back((task, format!("adieu {name}"), work));
        self.start_threads();
    }

    /// Aborts a task. It is over when it has been joined; a thread is left behind at once.
    pub(crate) fn abort(&mut self, task: TaskId) {
        if let Some(Some(handle)) = self.handles.get(task.0) {
            // Only an aborted task ends without saying which it was.
            self.aborted.insert(handle.id(), task);
            handle.abort();
        } else if self.threads.running.remove(&task) {
            self.done.push_back(Done { task, at: now(), ended: Ended::LeftBehind });
            self.start_threads(); // Those who wait for their turn do not wait for it.
        } else if let Some(at) = self.threads.waiting.iter().position(|(id, ..)| *id == task) {
            drop_shielded(self.threads.waiting.remove(at));
            self.done.push_back(Done { task, at: now(), ended: Ended::Aborted });
        }
    }

    /// A task that has ended, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<Done> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        while let Some(joined) = self.set.try_join_next() {
            if let Some(done) = self.identify(joined) {
                return Some(done);
            }
        }
        let done = self.threads.told.try_recv().ok()?;
        self.thread_ended(done.task);
        Some(done)
    }

    /// Ready when `try_next` has something.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.done.is_empty() {
            return Poll::Ready(());
        }
        while let Poll::Ready(Some(joined)) = self.set.poll_join_next(cx) {
            if let Some(done) = self.identify(joined) {
                self.done.push_back(done);
                return Poll::Ready(());
            }
        }
        if let Poll::Ready(Some(done)) = self.threads.told.poll_recv(cx) {
            self.thread_ended(done.task);
            self.done.push_back(done);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn identify(&mut self, joined: Result<Done, JoinError>) -> Option<Done> {
        let done = match joined {
            Ok(done) => done,
            Err(error) => {
                let task = self.aborted.remove(&error.id()).or_else(|| {
                    // Nobody here aborted it: its runtime is going away.
                    let gone = |handle: &Option<AbortHandle>| {
                        handle.as_ref().is_some_and(|handle| handle.id() == error.id())
                    };
                    self.handles.iter().position(gone).map(TaskId)
                })?;
                Done { task, at: now(), ended: Ended::Aborted }
            }
        };
        if let Some(handle) = self.handles.get_mut(done.task.0) {
            *handle = None;
        }
        Some(done)
    }

    fn thread_ended(&mut self, task: TaskId) {
        self.threads.running.remove(&task);
        self.start_threads();
    }

    /// Starts threads that nobody joins: one that will not end must not keep the process alive, as
    /// a thread of the runtime's pool would.
    fn start_threads(&mut self) {
        while self.threads.running.len() < MOST_THREADS
            && let Some((task, name, work)) = self.threads.waiting.pop_front()
        {
            let (tell, runtime) = (self.threads.tell.clone(), self.runtime.clone());
            let thread = std::thread::Builder::new().name(name);
            let run = move || {
                let _entered = runtime.enter();
                let ended = work();
                let _ = tell.send(Done { task, at: now(), ended });
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
