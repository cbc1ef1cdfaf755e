//! The configuration of a shutdown, and its file formats.
//!
//! A configuration is a block of keys, under `coordinated-shutdown`, `akka.coordinated-shutdown` or
//! `pekko.coordinated-shutdown`, in TOML, JSON or (feature `hocon`) HOCON. A document without such a
//! block is itself the block. Environment variables override any key:
//! `ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT=7s` sets `phases.service-unbind.timeout`.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `kill-after` | `auto` | the time from the platform's signal to the kill. `auto` detects it; `none` means that the platform does not kill |
//! | `reserve` | `3s` | the time that only the closing phases and the exit may spend; at least 100 ms |
//! | `lame-duck` | `auto` | the longest time to serve requests after the process has become unready. `auto` is 5 s after a signal and when the cluster stops this node, less if there is little time, and none at a terminal. It is never more than nine tenths of its phase, so 4.5 s unless `before-service-unbind` has more than its 5 s |
//! | `lame-duck-min` | `4s` | the shortest time to do so, at most `lame-duck`, even without requests: routers usually need that long to react. After it the lame duck ends when no request has arrived for one second |
//! | `drain-timeout` | `auto` | how long admitted work may take to finish after listeners and gates have closed: the timeout of `service-requests-done`. `auto` is the time that the deadline leaves beyond the reserve and the worst case of the later phases, at least `default-phase-timeout`, and 10 s if no deadline is known. With `0s`, work is cancelled at once |
//! | `unready-after` | `0s` | how long the process stays ready after the shutdown has begun |
//! | `strict` | `off` | whether a worst case that does not fit is an error instead of a warning |
//! | `order` | `dag` | `sequential` runs one phase after another |
//! | `default-phase-timeout` | `5s` | the timeout of phases that do not set one |
//! | `terminate-actor-system` | `on` | whether `actor-system-terminate` terminates the actor system |
//! | `exit-process`, `exit-jvm`, `exit-clr` | `off` | whether the process exits after the last phase |
//! | `exit-code` | `0` | the exit code of a clean shutdown |
//! | `run-by-actor-system-terminate` | `on` | whether terminating the actor system runs the shutdown |
//! | `run-by-process-hook`, `run-by-jvm-shutdown-hook`, `run-by-clr-shutdown-hook` | `on` | whether [`main`](crate::main) installs signals and runs the shutdown when its body ends, and whether [`ExitGuard`](crate::ExitGuard) runs it; `akka.jvm-shutdown-hooks = off` also switches it off |
//! | `run-when-down` | `on` | whether removal from the cluster runs the shutdown |
//! | `report-file` | none | where the report is written as JSON before the process ends: by [`main`](crate::main), an [`ExitGuard`](crate::ExitGuard), `exit-process` or the watchdog |
//! | `reason-overrides.REASON.{exit-code, exit-process, terminate-actor-system}` | none | the same keys for one reason, by its name in the report, such as `SIGTERM` or `process-exit`; `process-terminate` stands for every signal |
//! | `phases.NAME.{timeout, recover, enabled}` | as built in | the properties of a phase |
//! | `phases.NAME.depends-on` | as built in | replaces the dependencies of the phase |
//! | `phases.NAME.after` | none | adds dependencies to the phase |
//! | `phases.NAME.before` | none | makes other phases depend on this one |
//!
//! Beside the block, or inside it, other crates have tables: `resilience` and `cluster`. Their keys
//! are in the documentation of those crates.
//!
//! Durations have a unit: `5s`, `250 ms`, `1m 30s`. In HOCON a number without a unit is in
//! milliseconds, as in Akka; in the other formats it is an error. An unknown key is an error.

pub(crate) mod blocks;
mod document;
mod duration;
mod error;
mod foreign;
mod format;
mod hocon;
mod kill_after;
mod read;
mod section;
mod setters;
mod text_file;
mod vars;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blocks::Block;
pub use error::ConfigError;
pub use format::Format;
pub use kill_after::KillAfter;
pub(crate) use kill_after::{Resolved, Source};

use crate::budget::RESERVE;
use crate::phase::Phase;
use crate::plan::{LONGEST, Order, PhaseChange, Plan, PlanBuilder, PlanError};
use crate::policy::{Policies, PolicyChange};

const SHORTEST_RESERVE: Duration = Duration::from_millis(100);

/// The drain window for a `drain-timeout` of zero, because the timeout of a phase must not be zero.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(1);

/// The time that routers usually need to notice that a process has become unready.
const ROUTERS: Duration = Duration::from_secs(4);

/// The environment variable with the path of the configuration file; see [`Config::from_env`].
pub const CONFIG_VAR: &str = "ADIEU_CONFIG";

/// The configuration of a shutdown. The module [`config`](crate::config) has a table of the keys.
///
/// ```
/// use adieu_core::{Config, Format};
///
/// let config = Config::parse(r#"
///     [coordinated-shutdown]
///     kill-after = "25s"
///
///     [coordinated-shutdown.phases.flush-metrics]
///     after = ["before-actor-system-terminate"]
///     timeout = "3s"
/// "#, Format::Toml)?;
/// assert!(config.plan()?.phase("flush-metrics").is_some());
/// # Ok::<(), adieu_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a configuration does nothing until a shutdown is created from it"]
pub struct Config {
    pub(crate) kill_after: KillAfter,
    pub(crate) reserve: Duration,
    pub(crate) strict: bool,
    pub(crate) order: Order,
    pub(crate) default_phase_timeout: Duration,
    pub(crate) policies: Policies,
    pub(crate) triggers: Triggers,
    pub(crate) lame_duck: LameDuck,
    pub(crate) lame_duck_min: Duration,
    pub(crate) unready_after: Duration,
    pub(crate) report_file: Option<PathBuf>,
    pub(crate) phases: BTreeMap<Phase, PhaseChange>,
    pub(crate) blocks: blocks::Blocks,
}

/// The times of a [`Config`] that are compared with the time that the platform allows; see
/// [`Config::times`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// `kill-after`.
    pub kill_after: KillAfter,
    /// `reserve`.
    pub reserve: Duration,
    /// `lame-duck`; `None` if it is `auto`.
    pub lame_duck: Option<Duration>,
    /// `lame-duck-min`.
    pub lame_duck_min: Duration,
    /// `unready-after`.
    pub unready_after: Duration,
}

/// How long the process serves requests after it has become unready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LameDuck {
    /// Five seconds after a signal, less if there is little time; none at a terminal.
    Auto,
    For(Duration),
}

/// The events that run the shutdown automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Triggers {
    pub(crate) actor_system_terminate: bool,
    pub(crate) process_hook: bool,
    pub(crate) downed: bool,
}

// === impl Config ===

impl Config {
    /// Creates the default configuration.
    pub fn new() -> Self {
        Self {
            kill_after: KillAfter::Detect,
            reserve: RESERVE,
            strict: false,
            order: Order::Dag,
            default_phase_timeout: Duration::from_secs(5),
            policies: Policies::default(),
            triggers: Triggers { actor_system_terminate: true, process_hook: true, downed: true },
            lame_duck: LameDuck::Auto,
            lame_duck_min: ROUTERS,
            unready_after: Duration::ZERO,
            report_file: None,
            phases: BTreeMap::new(),
            blocks: blocks::Blocks::default(),
        }
    }

    /// Creates a configuration for tests of applications.
    ///
    /// The shutdown has no deadline and no lame duck, and terminates no actor system. Only a call
    /// runs it: not a terminating actor system, a signal or a removal from the cluster.
    ///
    /// In a test of a service with actors, turn
    /// [`terminate_actor_system`](Self::terminate_actor_system) on, or drain the actors with
    /// `ActorSystem::shutdown`. Otherwise actors that have work at the end make the outcome unclean.
    pub fn for_tests() -> Self {
        let mut config = Self::new();
        config.kill_after = KillAfter::Never;
        config.lame_duck = LameDuck::For(Duration::ZERO);
        config.lame_duck_min = Duration::ZERO;
        config.policies.base.terminate_actor_system = false;
        config.triggers =
            Triggers { actor_system_terminate: false, process_hook: false, downed: false };
        config
    }

    /// Reads a configuration from text, and nothing from the environment: substitutions in HOCON
    /// find only keys of the text.
    ///
    /// # Errors
    ///
    /// If the text has a syntax error, a key is unknown or has an invalid value, the phases form no
    /// valid plan, or switches contradict each other.
    pub fn parse(text: &str, format: Format) -> Result<Self, ConfigError> {
        Self::parse_with_vars(text, format, std::iter::empty())
    }

    /// Reads a configuration from text. The given variables override its keys if their names begin
    /// with `ADIEU__`, and are the environment of substitutions in HOCON.
    ///
    /// # Errors
    ///
    /// As [`Config::parse`].
    pub fn parse_with_vars(
        text: &str,
        format: Format,
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let vars: Vec<_> = vars.into_iter().collect();
        read::config(format.parse(text, &vars)?, format, vars)
    }

    /// Reads a configuration file: `.toml`, `.json`, `.conf` or `.hocon`. The environment variables of
    /// this process override its keys, and are the environment of substitutions in HOCON.
    ///
    /// # Errors
    ///
    /// As [`Config::parse`]; also if the file cannot be read, is not a regular file, is larger than
    /// 4 MiB, or has an unknown extension.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::read_with_vars(path, vars::of_process())
    }

    /// Reads a configuration file. Only the given variables override its keys, and only they are the
    /// environment of substitutions in HOCON.
    ///
    /// # Errors
    ///
    /// As [`Config::read`].
    pub fn read_with_vars(
        path: impl AsRef<Path>,
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        let vars: Vec<_> = vars.into_iter().collect();
        let read = format.read(path, &vars).and_then(|text| read::config(text, format, vars));
        let mut config = read.map_err(|error| error.in_file(path))?;
        config.blocks.set_file(path);
        Ok(config)
    }

    /// Returns the names of the environment variables that a configuration file in HOCON
    /// substitutes, with those of the files that it includes. Other formats substitute none.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has a syntax error.
    pub fn variables_of_file(path: impl AsRef<Path>) -> Result<Vec<String>, ConfigError> {
        let path = path.as_ref();
        let read = |format: Format| format.variables(&text_file::text_of(path)?, path.parent());
        Format::of(path).and_then(read).map_err(|error| error.in_file(path))
    }

    /// Returns the names of the environment variables that a text in HOCON substitutes. Other
    /// formats substitute none.
    ///
    /// # Errors
    ///
    /// If the text has a syntax error.
    pub fn variables_of(text: &str, format: Format) -> Result<Vec<String>, ConfigError> {
        format.variables(text, None)
    }

    pub(crate) fn read_block<T>(
        &self,
        name: &'static str,
        read: impl FnMut(&str, &mut Block<'_>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        self.blocks.read(name, read)
    }

    pub(crate) fn read_table<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&mut Block<'_>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.blocks.read_one(name, read)
    }

    pub(crate) fn has_table(&self, name: &str) -> bool {
        self.blocks.has(name)
    }

    /// Reads the configuration from the environment: the file in `ADIEU_CONFIG`, if that is set, and
    /// the `ADIEU__` variables, which override its keys.
    ///
    /// # Errors
    ///
    /// As [`Config::read`].
    pub fn from_env() -> Result<Self, ConfigError> {
        match std::env::var_os(CONFIG_VAR).filter(|path| !path.is_empty()) {
            Some(path) => Self::read(PathBuf::from(path)),
            None => Self::parse_with_vars("", Format::Toml, vars::of_process()),
        }
    }

    /// Returns the times that are compared with the time that the platform allows.
    #[must_use]
    pub fn times(&self) -> Times {
        Times {
            kill_after: self.kill_after,
            reserve: self.reserve,
            lame_duck: match self.lame_duck {
                LameDuck::Auto => None,
                LameDuck::For(most) => Some(most),
            },
            lame_duck_min: self.lame_duck_min,
            unready_after: self.unready_after,
        }
    }

    /// Returns whether this configuration sets the timeout of the phase.
    #[must_use]
    pub fn sets_timeout_of(&self, phase: &Phase) -> bool {
        self.phases.get(phase).is_some_and(|change| change.timeout.is_some())
    }

    /// Returns the plan that this configuration describes.
    ///
    /// # Errors
    ///
    /// If its phases form no valid plan.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        Ok(self.plan_builder()?.build())
    }

    pub(crate) fn plan_builder(&self) -> Result<PlanBuilder, ConfigError> {
        let at = |path: String| move |problem: PlanError| ConfigError::Plan { path, problem };
        let mut plan = Plan::builder();
        plan.set_default_timeout(self.default_phase_timeout)
            .map_err(at("default-phase-timeout".into()))?;
        plan.set_order(self.order);
        plan.apply(&self.phases).map_err(|problem| at(self.path_of(&problem))(problem))?;
        // The lame duck must fit into its phase, unless the phase's timeout is configured.
        let unbind = Phase::BEFORE_SERVICE_UNBIND;
        if let (LameDuck::For(most), false) = (self.lame_duck, self.sets_timeout_of(&unbind)) {
            let fits = most / 9 * 10 + Duration::from_millis(500);
            if fits > self.default_phase_timeout {
                plan.set_timeout(unbind, fits).map_err(at("lame-duck".into()))?;
            }
        }
        Ok(plan)
    }

    /// Returns the path of the key that causes the problem, relative to our block.
    fn path_of(&self, problem: &PlanError) -> String {
        let under = |phase: &Phase, key: &str| format!("phases.{phase}{key}");
        match problem {
            PlanError::UnknownPhase { phase: Some(phase), name, .. } => {
                let change = self.phases.get(phase);
                let names = |list: &[Phase]| list.contains(name);
                let key = change.map_or("", |change| match () {
                    () if change.depends_on.as_deref().is_some_and(names) => ".depends-on",
                    () if names(&change.after) => ".after",
                    () if names(&change.before) => ".before",
                    () => "",
                });
                under(phase, key)
            }
            PlanError::ZeroTimeout { phase } | PlanError::TimeoutTooLong { phase } => {
                under(phase, ".timeout")
            }
            PlanError::Misspelt { phase, .. } | PlanError::DuplicatePhase { phase } => {
                under(phase, "")
            }
            PlanError::EmptyName | PlanError::Cycle { .. } | PlanError::UnknownPhase { .. } => {
                "phases".into()
            }
        }
    }

    /// Returns an error if values contradict each other or are out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let KillAfter::After(Duration::ZERO) = self.kill_after {
            return Err(ConfigError::Contradiction {
                problem: "kill-after is zero, which leaves no time; write none if the platform \
                          does not kill the process"
                    .into(),
            });
        }
        if self.reserve < SHORTEST_RESERVE {
            return Err(ConfigError::Contradiction {
                problem: "reserve is too short: at least 100ms required".into(),
            });
        }
        let kill_after =
            if let KillAfter::After(after) = self.kill_after { after } else { Duration::ZERO };
        let lame_duck =
            if let LameDuck::For(most) = self.lame_duck { most } else { Duration::ZERO };
        for (key, span) in [
            ("kill-after", kill_after),
            ("reserve", self.reserve),
            ("lame-duck", lame_duck),
            ("lame-duck-min", self.lame_duck_min),
            ("unready-after", self.unready_after),
        ] {
            if span > LONGEST {
                let problem = format!("{key} is longer than the maximum (one year)");
                return Err(ConfigError::Contradiction { problem });
            }
        }
        if !self.triggers.actor_system_terminate {
            return Ok(());
        }
        // Terminating the system would run the shutdown, which would then wait for a termination that
        // it does not carry out.
        if !self.policies.base.terminate_actor_system {
            return Err(ConfigError::Contradiction {
                problem: "run-by-actor-system-terminate is on and terminate-actor-system is off: \
                          switch both on or both off"
                    .into(),
            });
        }
        let refuses = |change: &PolicyChange| change.terminate_actor_system == Some(false);
        match self.policies.overrides.iter().find(|(_, change)| refuses(change)) {
            Some((reason, _)) => Err(ConfigError::Contradiction {
                problem: format!(
                    "run-by-actor-system-terminate is on and reason-overrides.{reason} switches \
                     terminate-actor-system off"
                ),
            }),
            None => Ok(()),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}
