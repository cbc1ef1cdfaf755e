//! What a step does: its start, which hands over its stop.
//!
//! A start returns what stops it. So there is nothing to stop unless a start has ended well, and
//! it can be stopped only once, because it is a function that can be called only once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::context::{StartCx, StopCx};
use crate::task::{BoxError, TaskResult};

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The start of a step, for those who put something around it; see [`Step::wrap`](crate::Step::wrap).
#[must_use = "a start that nobody calls does not start anything"]
pub struct StartHook(Box<dyn FnOnce(StartCx) -> Pending<Result<Started, BoxError>> + Send>);

/// The stop of a step that has started; see [`Started::wrap_stop`].
#[must_use = "a stop that nobody calls does not stop anything"]
pub struct StopHook(Box<dyn FnOnce(StopCx) -> Pending<Result<(), BoxError>> + Send>);

/// How a start went that did not fail: what was started, and with that what stops it; or that it
/// was skipped.
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
#[must_use = "what was started must be stopped"]
#[derive(Debug)]
pub struct Started(pub(super) How);

#[derive(Debug)]
pub(super) enum How {
    Up(Option<StopHook>),
    Skipped(Arc<str>),
}

/// What a start may return: nothing, [`Started`], or a result of either.
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
    /// It has started, and this stops it.
    pub fn stopped_by<F, Fut>(stop: F) -> Self
    where
        F: FnOnce(StopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        Self(How::Up(Some(StopHook::new(stop))))
    }

    /// It was not to be started here, and `why`: somebody else does it. It counts as started for
    /// those who depend on it, and is not stopped.
    pub fn skipped(why: impl Into<Arc<str>>) -> Self {
        Self(How::Skipped(why.into()))
    }

    /// Whether it was skipped.
    #[must_use]
    pub fn is_skipped(&self) -> bool {
        matches!(self.0, How::Skipped(_))
    }

    /// Puts something around the stop: `f` is called in its place, and calls it. What was skipped
    /// stays skipped.
    pub fn wrap_stop<F, Fut>(self, f: F) -> Self
    where
        F: FnOnce(StopHook, StopCx) -> Fut + Send + 'static,
        Fut: Future<Output: TaskResult> + Send + 'static,
    {
        match self.0 {
            How::Skipped(why) => Self(How::Skipped(why)),
            How::Up(stop) => {
                let stop = stop.unwrap_or_else(|| StopHook::new(async |_| {}));
                Self::stopped_by(move |cx| f(stop, cx))
            }
        }
    }

    /// Both stops, the one it has first. The second is called also when the first has failed.
    pub(super) fn and_then(self, then: Option<StopHook>) -> Self {
        match (self.0, then) {
            (How::Up(None), then) => Self(How::Up(then)),
            (How::Up(Some(first)), Some(then)) => Self::stopped_by(async move |cx: StopCx| {
                let ended = first.stop(cx.clone()).await;
                then.stop(cx).await.and(ended)
            }),
            (how, _) => Self(how),
        }
    }
}

impl From<()> for Started {
    fn from((): ()) -> Self {
        Self(How::Up(None))
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
        // Called inside the future, so that a panic before its first `await` is caught, too.
        Self(Box::new(|cx| Box::pin(async move { start(cx).await.into_started() })))
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// What the start fails with.
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

    /// Stops it.
    ///
    /// # Errors
    ///
    /// What the stop fails with.
    pub async fn stop(self, cx: StopCx) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        (self.0)(cx).await
    }
}

impl fmt::Debug for StopHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopHook").finish_non_exhaustive()
    }
}
