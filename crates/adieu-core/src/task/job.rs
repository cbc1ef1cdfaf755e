//! Turns a registered function into a job that can be started.
//!
//! Registered tasks are boxed once, when they are added. Starting a task spawns its future without a
//! box, which would double the cost of a task.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::context::inside;
use super::crew::{Crew, EndedTasks};
use super::end::{Ended, TaskId, end_of};
use super::span::TaskSpan;
use super::{RunsOn, TaskCx, TaskResult};
use crate::shield::shielded;

/// A task that was added and has not started.
pub(crate) trait Job: Send {
    fn start(self: Box<Self>, cx: TaskCx, task: TaskId, on: RunsOn, crew: &mut Crew);
}

/// A blocking function, which runs on a thread of its own.
pub(crate) struct Blocking<F> {
    pub(crate) name: Arc<str>,
    pub(crate) f: F,
}

// === impl Job ===

impl<F, Fut> Job for F
where
    F: FnOnce(TaskCx) -> Fut + Send + 'static,
    Fut: Future<Output: TaskResult> + Send + 'static,
{
    fn start(self: Box<Self>, cx: TaskCx, task: TaskId, on: RunsOn, crew: &mut Crew) {
        let reports = Arc::clone(crew.ended());
        let stage = Stage::Called { call: Some((self, cx)) };
        crew.spawn(task, on, Running { task, reports, span: TaskSpan::default(), stage });
    }
}

pin_project! {
    /// A running task. Written by hand, because nested async blocks would store the captures of the
    /// function three times, and spawning copies the whole task.
    struct Running<F, Fut> {
        task: TaskId,
        reports: Arc<EndedTasks>,
        span: TaskSpan,
        #[pin]
        stage: Stage<F, Fut>,
    }

    impl<F, Fut> PinnedDrop for Running<F, Fut> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if !matches!(this.stage.as_mut().project(), StageProjection::Over) {
                // The task was aborted. Its end is reported after its values were dropped.
                let _ = shielded(|| this.stage.set(Stage::Over));
                this.reports.report(*this.task, Ended::Aborted);
            }
        }
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<F, Fut> {
        /// The function is called inside the future, so that its code before the first `await` delays
        /// neither other tasks nor the timer.
        Called { call: Option<(Box<F>, TaskCx)> },
        Awaited { #[pin] work: Fut },
        Over,
    }
}

impl<F, Fut> Future for Running<F, Fut>
where
    F: FnOnce(TaskCx) -> Fut,
    Fut: Future<Output: TaskResult>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let StageProjection::Called { call: Some((_, given)) } = this.stage.as_mut().project() {
            *this.span = TaskSpan::open(given.phase_cx(), *this.task);
        }
        let polled = inside(this.reports.key, || {
            this.span.enter(|| {
                if let StageProjection::Called { call } = this.stage.as_mut().project() {
                    let (f, given) = call.take().expect("a future is not polled after a panic");
                    let work = f(given);
                    this.stage.set(Stage::Awaited { work });
                }
                let polled = match this.stage.as_mut().project() {
                    StageProjection::Awaited { work } => work.poll(cx).map(end_of),
                    StageProjection::Called { .. } | StageProjection::Over => Poll::Pending,
                };
                if polled.is_ready() {
                    this.stage.set(Stage::Over);
                }
                polled
            })
        });
        let ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(ended)) => ended,
            Err(message) => {
                let _ = shielded(|| this.stage.set(Stage::Over));
                Ended::Panicked(message)
            }
        };
        // The values of the task were dropped, so later phases may start.
        this.reports.report(*this.task, ended);
        Poll::Ready(())
    }
}

impl<F, R> Job for Blocking<F>
where
    F: FnOnce(TaskCx) -> R + Send + 'static,
    R: TaskResult,
{
    fn start(self: Box<Self>, cx: TaskCx, task: TaskId, _: RunsOn, crew: &mut Crew) {
        let Blocking { name, f } = *self;
        let key = crew.ended().key;
        let work = move || {
            let mut span = TaskSpan::open(cx.phase_cx(), task);
            inside(key, || span.enter(|| end_of(f(cx)))).unwrap_or_else(Ended::Panicked)
        };
        crew.spawn_blocking(task, &name, Box::new(work));
    }
}

/// Awaits `work`. Returns [`Ended::Panicked`] if it panics.
pub(crate) async fn catch(work: impl Future<Output = Ended>) -> Ended {
    caught(work).await.unwrap_or_else(Ended::Panicked)
}

/// Awaits `work`. Returns the message if it panics.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Arc<str>> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match shielded(|| work.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(message) => Poll::Ready(Err(message)),
    })
    .await
}
