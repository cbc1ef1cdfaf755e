//! The hooks of a step: a start, which returns the stop.
//!
//! A start returns the function that stops the step. So only a step that has started can be stopped,
//! and only once, because the function is `FnOnce`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::context::{StartCx, StopCx};
use crate::task::{BoxError, TaskResult};

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The start of a step, for code that wraps it; see [`Step::wrap`](crate::Step::wrap).
#[must_use = "a start hook does nothing until it is called"]
pub struct StartHook(Box<dyn FnOnce(StartCx) -> Pending<Result<Started, BoxError>> + Send>);

/// The stop of a step that has started; see [`Started::wrap_stop`].
#[must_use = "a stop hook does nothing until it is called"]
pub struct StopHook(Box<dyn FnOnce(StopCx) -> Pending<Result<(), BoxError>> + Send>);

/// The result of a successful start: the step has started, with the function that stops it, or was
/// skipped.
///
/// ```
/// # use adieu_core::{Started, Step};
/// # struct Pool;
/// # impl Pool {
/// #     async fn connect() -> Result<Self, std::io::Error> { Ok(Pool) }
/// #     async fn close(self) {}
/// # }
/// let step = Step::new("pool").start(async |_| {
///     let pool = Pool::connect().await?;
///     Ok::<_, std::io::Error>(Started::stopped_by(async move |_| pool.close().await))
/// });
/// ```
#[must_use = "a step that has started must be stopped"]
#[derive(Debug)]
pub struct Started(pub(super) StartKind);

#[derive(Debug)]
pub(super) enum StartKind {
    Up(Option<StopHook>),
    Skipped(Arc<str>),
}

/// The values that a start may return: nothing, [`Started`], or a result of either.
///
/// Sealed, as [`TaskResult`] is.
#[diagnostic::on_unimplemented(
    message = "a start must return `()`, `Started`, or a result of either, not `{Self}`",
    note = "an error must turn into `Box<dyn Error + Send + Sync>`: errors, strings and \
            `anyhow::Error` do, `Box<dyn Error>` does not"
)]
pub trait StartResult: sealed::Sealed + Send + 'static {
    #[doc(hidden)]
    fn into_started(self) -> Result<Started, BoxError>;
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals it")]
    pub trait Sealed {}
}

// === impl Started ===

impl Started {
    /// The step has started, and `stop` stops it.
    pub fn stopped_by<F, Fut>(stop: F) -> Self
    where
        F: FnOnce(StopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        Self(StartKind::Up(Some(StopHook::new(stop))))
    }

    /// The step was skipped for the reason `why`, for example because another replica runs it.
    ///
    /// For steps that depend on it, it counts as started. It is not stopped.
    pub fn skipped(why: impl Into<Arc<str>>) -> Self {
        Self(StartKind::Skipped(why.into()))
    }

    /// Wraps the stop: `f` is called instead of the stop, and gets it as an argument. A skipped step
    /// stays skipped.
    pub fn wrap_stop<F, Fut>(self, f: F) -> Self
    where
        F: FnOnce(StopHook, StopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        match self.0 {
            StartKind::Skipped(why) => Self(StartKind::Skipped(why)),
            StartKind::Up(stop) => {
                let stop = stop.unwrap_or_else(|| StopHook::new(async |_| {}));
                Self::stopped_by(move |cx| f(stop, cx))
            }
        }
    }

    /// Adds a second stop after the first. It is called even if the first has failed.
    pub(super) fn and_then(self, then: Option<StopHook>) -> Self {
        match (self.0, then) {
            (StartKind::Up(None), then) => Self(StartKind::Up(then)),
            (StartKind::Up(Some(first)), Some(then)) => {
                Self::stopped_by(async move |cx: StopCx| {
                    let ended = first.stop(cx.clone()).await;
                    then.stop(cx).await.and(ended)
                })
            }
            (how, _) => Self(how),
        }
    }
}

impl From<()> for Started {
    fn from((): ()) -> Self {
        Self(StartKind::Up(None))
    }
}

// === impl StartResult ===

impl sealed::Sealed for () {}
impl StartResult for () {
    fn into_started(self) -> Result<Started, BoxError> {
        Ok(self.into())
    }
}

impl sealed::Sealed for Started {}
impl StartResult for Started {
    fn into_started(self) -> Result<Started, BoxError> {
        Ok(self)
    }
}

impl<T: Into<Started>, E: Into<BoxError>> sealed::Sealed for Result<T, E> {}
impl<T, E> StartResult for Result<T, E>
where
    T: Into<Started> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    fn into_started(self) -> Result<Started, BoxError> {
        self.map(Into::into).map_err(Into::into)
    }
}

// === impl StartHook ===

impl StartHook {
    pub(super) fn new<F, Fut>(start: F) -> Self
    where
        F: FnOnce(StartCx) -> Fut + Send + 'static,
        Fut: Future<Output: StartResult> + Send + 'static,
    {
        // Called inside the future, so that a panic before the first `await` is also caught.
        Self(Box::new(|cx| Box::pin(async move { start(cx).await.into_started() })))
    }

    /// Calls the start.
    ///
    /// # Errors
    ///
    /// If the start fails.
    pub async fn start(
        self,
        cx: StartCx,
    ) -> Result<Started, Box<dyn std::error::Error + Send + Sync>> {
        (self.0)(cx).await
    }
}

impl fmt::Debug for StartHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartHook").finish_non_exhaustive()
    }
}

// === impl StopHook ===

impl StopHook {
    pub(super) fn new<F, Fut>(stop: F) -> Self
    where
        F: FnOnce(StopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        Self(Box::new(|cx| Box::pin(async move { stop(cx).await.into_result() })))
    }

    /// Calls the stop.
    ///
    /// # Errors
    ///
    /// If the stop fails.
    pub async fn stop(self, cx: StopCx) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        (self.0)(cx).await
    }
}

impl fmt::Debug for StopHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopHook").finish_non_exhaustive()
    }
}
