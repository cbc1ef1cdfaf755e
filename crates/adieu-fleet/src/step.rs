//! Start-up steps that one replica does for all.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Deadline, StartCx, StartHook, Started, Step};

use crate::lock::Lock;
use crate::locks::BoxError;
use crate::once::{Once, OnceCx};
use crate::singleton::{Others, Turn};
use crate::work::Work;

impl Lock {
    /// Makes a step of start-up one that a single replica does at a time, such as making sure that
    /// an index exists. See [`Lock::singleton`].
    ///
    /// The first to get the lock runs its start under the lease, and releases it. The others wait
    /// for that, for up to `patience`, or skip it. The wait counts in the time that the step has to
    /// start, so in the budget of start-up; nobody who waits is ready before it is done. If the one
    /// that runs it fails or dies, another takes over.
    ///
    /// Its stop runs only on the replica whose start ran.
    ///
    /// A backend without fences makes the assembly of the lifecycle fail.
    ///
    /// Several steps can share one lock. Then no two of them run at the same time, and each is done:
    /// a replica that waits for one of them, or skips it, is not misled by another.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use adieu_core::{DeploymentProfile, Lifecycle, Step};
    /// use adieu_fleet::{Files, Lock, LockSpec, Others, Owner};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join("adieu-doc-singleton-step");
    /// let locks = Arc::new(Files::open(folder)?);
    /// let lock = Lock::new(locks, LockSpec::new("orders.indexes"), &Owner::this_process())?;
    /// let indexes = Step::new("indexes").mutates_shared_state().start(async |_| { /* create */ });
    /// let lifecycle = Lifecycle::builder()
    ///     .profile(DeploymentProfile::Fleet)
    ///     .step(lock.singleton_step(indexes, Others::Wait, Duration::from_secs(60)))
    ///     .build()?;
    /// # drop(lifecycle);
    /// # Ok(())
    /// # }
    /// ```
    pub fn singleton_step(&self, step: Step, others: Others, patience: Duration) -> Step {
        let lock = self.clone();
        let step = refuse_if(step, self.must_have_fences());
        self.guard(step, patience).wrap(async move |start: StartHook, cx: StartCx| {
            let until = Deadline::after(patience).min(cx.deadline());
            let which = Work::step(cx.step());
            match lock.singleton_of(which, others, until, |_| start.start(cx)).await? {
                Turn::Ran(started) => Ok(started),
                Turn::Waited => Ok(Started::skipped("another replica has done it")),
                Turn::Skipped(holder) => {
                    Ok::<_, BoxError>(Started::skipped(format!("{} does it", holder.owner)))
                }
            }
        })
    }

    /// Makes a step of start-up one that is done once for the whole fleet and version, such as a
    /// migration. See [`Lock::once_per_fleet`].
    ///
    /// `start` is told which attempt it is, and its fence. It has nothing to stop. The wait for
    /// another replica that is at it, for up to `patience`, counts in the time that the step has to
    /// start.
    ///
    /// A version that is not a name and a backend without fences make the assembly of the lifecycle
    /// fail.
    ///
    /// Several steps can share one lock, also with the same version: the id of the step counts, too.
    ///
    /// What the step itself was given to start is not run: it brings its id, what it requires and
    /// provides, and its timeouts.
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
        let step = refuse_if(step, self.must_have_fences());
        let step = refuse_if(step, self.must_know_version(&version));
        self.guard(step, patience).start(async move |cx: StartCx| {
            let until = Deadline::after(patience).min(cx.deadline());
            let which = Work::step(cx.step());
            match lock.once_per_fleet_of(which, &version, until, start).await? {
                Once::Ran(()) => Ok(Started::from(())),
                Once::AlreadyDone => Ok::<_, BoxError>(Started::skipped("it is done already")),
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
            Some(what) => step.process_local(what),
            None => step,
        }
    }
}

/// Lets the assembly of the lifecycle fail, rather than the start of the process.
pub(crate) fn refuse_if<E>(step: Step, checked: Result<(), E>) -> Step
where
    E: std::error::Error + 'static,
{
    match checked {
        Ok(()) => step,
        Err(error) => step.refuse(adieu_core::adapter::error_text(&error)),
    }
}
