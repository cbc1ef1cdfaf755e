//! Work of which the cluster runs one instance at a time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use adieu_core::TaskResult;
use adieu_fleet::Fence;
use tokio_util::sync::CancellationToken;

use crate::standing::Standing;

/// The context of one instance of a singleton.
///
/// It is cheap to clone, and can be moved into tasks that the instance spawns. Such tasks are not part
/// of the instance: join them before the instance returns. Otherwise they may run at the same time as
/// the next instance, on another node.
#[derive(Clone)]
pub struct SingletonCx {
    name: Arc<str>,
    fence: Fence,
    stop: CancellationToken,
    standing: Arc<Standing>,
}

/// This node may no longer act: another node may run the singleton, or soon will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("singleton {name} (fence {fence}) has lost its place: another node may run it")]
pub struct Displaced {
    /// The singleton.
    pub name: Arc<str>,
    /// The fence of the instance, which must no longer be used.
    pub fence: Fence,
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Instance = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;
pub(crate) type Work = Arc<dyn Fn(SingletonCx) -> Instance + Send + Sync>;

/// Erases the types of a singleton's function.
pub(crate) fn work<F, Fut>(f: F) -> Work
where
    F: Fn(SingletonCx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: TaskResult> + Send + 'static,
{
    Arc::new(move |cx| {
        let work = f(cx);
        Box::pin(async move { work.await.into_result() })
    })
}

/// Describes a panic of an instance or an entity.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("with a value that is not text"))
}

// === impl SingletonCx ===

impl SingletonCx {
    pub(crate) fn new(
        name: Arc<str>,
        fence: Fence,
        stop: CancellationToken,
        standing: Arc<Standing>,
    ) -> Self {
        Self { name, fence, stop, standing }
    }

    /// Returns the singleton's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fence of this instance, which is higher than that of every instance before. The
    /// resource that the singleton writes to must reject a fence that is lower than one it has seen.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Waits until the instance should end, because the singleton is handed to another node, or because
    /// this node may no longer act. Return soon after that: the next instance starts only then.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn stopped(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.standing.lost() => {}
        }
    }

    /// Returns whether the instance should end: it was requested to, or [`check`](Self::check) fails.
    ///
    /// An instance that was only requested to end may still write until it returns.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() || !self.standing.is_good()
    }

    /// Checks by the clock whether this instance may still act. Code that does not await must call
    /// this before each write. Succeeds after [`stopped`](Self::stopped) while the node has its place,
    /// so that an instance can finish what it has begun.
    ///
    /// # Errors
    ///
    /// If the instance may no longer act.
    pub fn check(&self) -> Result<Fence, Displaced> {
        let displaced = || Displaced { name: Arc::clone(&self.name), fence: self.fence };
        self.standing.is_good().then_some(self.fence).ok_or_else(displaced)
    }
}

impl fmt::Debug for SingletonCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingletonCx")
            .field("name", &self.name)
            .field("fence", &self.fence)
            .field("is_stopped", &self.is_stopped())
            .finish_non_exhaustive()
    }
}
