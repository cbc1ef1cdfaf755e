//! Start-up steps that one replica runs for the fleet.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Deadline, StartCx, StartHook, Started, Step};

use crate::lock::Lock;
use crate::lock_backend::BoxError;
use crate::once::{Once, OnceCx};
use crate::singleton::{OtherReplicas, Turn};
use crate::work::Work;

impl Lock {
    /// Wraps a step of start-up so that one replica at a time runs it, such as making sure that an
    /// index exists. See [`Lock::singleton`].
    ///
    /// The first replica to acquire the lock runs the start hook under its lease, and then releases
    /// it. The other replicas wait for that, for up to `patience`, or skip the step. The wait extends
    /// the step's start timeout, and with it the start-up budget. A replica that waits is not ready
    /// before the step is done. If the replica that runs the step fails or dies, another takes over.
    ///
    /// The stop hook runs only on the replica whose start hook ran.
    ///
    /// A backend without fences makes [`build`](adieu_core::LifecycleBuilder::build) fail.
    ///
    /// Several steps can share one lock. No two of them then run at the same time. Completion is
    /// recorded for each step, so the end of one does not count for another.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use adieu_core::{DeploymentProfile, Lifecycle, Step};
    /// use adieu_fleet::{Files, Lock, LockSpec, OtherReplicas, Owner};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join("adieu-doc-singleton-step");
    /// let locks = Arc::new(Files::open(folder)?);
    /// let lock = Lock::new(locks, LockSpec::new("orders.indexes"), &Owner::this_process())?;
    /// let indexes = Step::new("indexes").mutates_shared_state().start(async |_| { /* create */ });
    /// let lifecycle = Lifecycle::builder()
    ///     .profile(DeploymentProfile::Fleet)
    ///     .step(lock.singleton_step(indexes, OtherReplicas::Wait, Duration::from_secs(60)))
    ///     .build()?;
    /// # drop(lifecycle);
    /// # Ok(())
    /// # }
    /// ```
    pub fn singleton_step(&self, step: Step, others: OtherReplicas, patience: Duration) -> Step {
        let lock = self.clone();
        let step = refuse_on_error(step, self.check_fences());
        self.guard(step, patience).wrap(async move |start: StartHook, cx: StartCx| {
            let until = Deadline::after(patience).min(cx.deadline());
            let which = Work::step(cx.step());
            match lock.singleton_of(which, others, until, |_| start.start(cx)).await? {
                Turn::Ran(started) => Ok(started),
                Turn::Waited => Ok(Started::skipped("done by another replica")),
                Turn::Skipped(holder) => {
                    Ok::<_, BoxError>(Started::skipped(format!("run by {}", holder.owner)))
                }
            }
        })
    }

    /// Makes a step of start-up that runs once for the whole fleet and version, such as a migration.
    /// See [`Lock::once_per_fleet`].
    ///
    /// `start` receives the number of the attempt and the lease. The wait for another replica that
    /// runs the step, for up to `patience`, extends the step's start timeout.
    ///
    /// An invalid version and a backend without fences make
    /// [`build`](adieu_core::LifecycleBuilder::build) fail.
    ///
    /// Several steps can share one lock, also with the same version, because the id of the step is
    /// part of the marker.
    ///
    /// `start` replaces the start hook of `step`, which contributes its id, its dependencies and its
    /// timeouts.
    pub fn once_per_fleet_step<F, Fut, E>(
        &self,
        step: Step,
        version: impl Into<String>,
        patience: Duration,
        start: F,
    ) -> Step
    where
        F: FnOnce(OnceCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let (lock, version) = (self.clone(), version.into());
        let step = refuse_on_error(step, self.check_fences());
        let step = refuse_on_error(step, self.check_version(&version));
        self.guard(step, patience).start(async move |cx: StartCx| {
            let until = Deadline::after(patience).min(cx.deadline());
            let which = Work::step(cx.step());
            match lock.once_per_fleet_of(which, &version, until, start).await? {
                Once::Ran(()) => Ok(Started::from(())),
                Once::AlreadyDone => Ok::<_, BoxError>(Started::skipped("already done")),
            }
        })
    }

    fn guard(&self, step: Step, patience: Duration) -> Step {
        let step = step.mutates_shared_state().singleton_guarded().extend_start_timeout(patience);
        let step = match self.capability() {
            Some(capability) => step.requires(Arc::clone(capability)),
            None => step,
        };
        match self.locks().is_local() {
            Some(reason) => step.process_local(reason),
            None => step,
        }
    }
}

/// Makes the lifecycle fail when it is built, rather than when the process starts.
pub(crate) fn refuse_on_error<E>(step: Step, checked: Result<(), E>) -> Step
where
    E: std::error::Error + 'static,
{
    match checked {
        Ok(()) => step,
        Err(error) => step.refuse(adieu_core::adapter::error_text(&error)),
    }
}
