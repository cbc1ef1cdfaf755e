//! The state behind every handle, split by what changes together.
//!
//! The order in which its locks may be taken is in `locks.rs`.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::accounts::Accounts;
use super::core::Core;
use super::declared::Declared;
use super::drains::Drains;
use super::engine::Engine;
use super::extensions::Extensions;
use super::locks;
use super::process::Process;
use super::progress::Progress;
use super::refusals::Refusals;
use super::run::{Run, Undescribed};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::plan::{PhaseId, PlanBuilder, PlanError};
use crate::reason::Reason;
use crate::status::Status;
use crate::sync::OrderedMutex;
use crate::time::now;

/// Brings a check up to date.
pub(super) type Refresh = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Shared {
    config: Config,
    journal: Journal,
    /// The declarations, and the run.
    pub(super) core: OrderedMutex<Core>,
    /// The progress that all handles can see and wait for.
    pub(super) progress: Progress,
    /// The connection to the driver.
    pub(super) engine: Engine,
    /// The gates, and the cordon.
    pub(super) drains: OrderedMutex<Drains>,
    /// The sources of work that are not gates.
    pub(super) accounts: OrderedMutex<Accounts>,
    /// Brings checks up to date that depend on the time.
    pub(super) refreshes: OrderedMutex<Vec<Refresh>>,
    /// Signals, exit guards, watchdog.
    pub(super) process: Process,
    /// The errors that were returned because the shutdown had begun.
    pub(super) refusals: OrderedMutex<Refusals>,
    /// The values that adapters share.
    pub(super) extensions: OrderedMutex<Extensions>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(config: Config, plan: PlanBuilder) -> Self {
        Self {
            journal: Journal::new(),
            core: OrderedMutex::new(locks::CORE, Core::new(&config, plan)),
            progress: Progress::new(),
            engine: Engine::new(),
            drains: OrderedMutex::new(locks::DRAINS, Drains::default()),
            accounts: OrderedMutex::new(locks::ACCOUNTS, Accounts::default()),
            refreshes: OrderedMutex::new(locks::REFRESHES, Vec::new()),
            process: Process::new(config.reserve, config.report_file.clone()),
            refusals: OrderedMutex::new(locks::REFUSALS, Refusals::default()),
            extensions: OrderedMutex::new(locks::EXTENSIONS, Extensions::default()),
            config,
        }
    }

    /// Returns a number that no other living shutdown has.
    pub(super) fn key(shared: &Arc<Self>) -> usize {
        Arc::as_ptr(shared).addr()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the runtime on which tasks run, if one is known.
    pub(crate) fn home(&self) -> Option<Handle> {
        self.core.lock().home.clone()
    }

    pub(super) fn phase_id(&self, phase: &str) -> Result<PhaseId, PlanError> {
        self.core.lock().declared.phase_id(phase)
    }

    /// Adds the gate of a loop, cordoned if the process is.
    pub(crate) fn add_loop_gate(&self, gate: &Gate) {
        self.drains.lock().add_loop_gate(gate);
    }

    /// Reads or changes the run and the declarations under the lock; `None` before the shutdown has
    /// begun. `visit` must not call code of the application.
    pub(super) fn with_run<T>(
        &self,
        visit: impl FnOnce(&mut Run, &mut Declared) -> T,
    ) -> Option<T> {
        let mut core = self.core.lock();
        let Core { declared, run, .. } = &mut *core;
        run.as_mut().map(|run| visit(run, declared))
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.with_run(|run, _| run.cx.reason.clone())
    }

    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.with_run(|run, _| Deadline::at(run.cx.deadline.get()))
    }

    pub(super) fn status(&self) -> Status {
        let stage = self.progress.stage();
        let status = self.with_run(|run, _| run.status(stage, now()));
        // Without the lock: descriptions are code of the application.
        status.map_or_else(|| Status::before(stage), Undescribed::describe)
    }
}
