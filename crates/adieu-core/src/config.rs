//! What can be set, and the texts it can be set in.
//!
//! A configuration is a block of keys, under `coordinated-shutdown`, `akka.coordinated-shutdown` or
//! `pekko.coordinated-shutdown`, in TOML, JSON or (feature `hocon`) HOCON. A document that has
//! none is itself the block. Environment variables override any key:
//! `ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT=7s` sets `phases.service-unbind.timeout`.
//!
//! | key | default | what it sets |
//! |---|---|---|
//! | `kill-after` | `auto` | what the platform allows; `none` if nobody kills us |
//! | `reserve` | `3s` | what only the closing phases and the exit may spend; 100 ms at least |
//! | `lame-duck` | `auto` | how long, at most, to serve on when not ready any more: `auto` is 5 s after a signal, less if there is little time, and none at a terminal; never more than nine tenths of its phase, so 4.5 s unless `before-service-unbind` has more than its 5 s |
//! | `lame-duck-min` | `4s` | how long at least, also when nobody comes, but no longer than `lame-duck`: what routers usually need to hear of it. After that it ends when nobody has come for a second |
//! | `drain-timeout` | `auto` | how long admitted work may take to finish when the doors have closed: the timeout of `service-requests-done`. `auto` is what the deadline leaves beyond the reserve and the worst case of the later phases, and `default-phase-timeout` at least; where no deadline is known it is 10 s. With `0s`, work is cancelled at once |
//! | `unready-after` | `0s` | how long the process stays ready after the shutdown has begun |
//! | `strict` | `off` | refuse, rather than warn, when the worst case does not fit |
//! | `order` | `dag` | `sequential` runs one phase after another |
//! | `default-phase-timeout` | `5s` | for phases that say nothing else |
//! | `terminate-actor-system` | `on` | whether `actor-system-terminate` terminates the actor system |
//! | `exit-process`, `exit-jvm`, `exit-clr` | `off` | whether the process ends with the last phase |
//! | `exit-code` | `0` | the exit code of a clean shutdown |
//! | `run-by-actor-system-terminate` | `on` | whether terminating the actor system runs the shutdown |
//! | `run-by-process-hook`, `run-by-jvm-shutdown-hook`, `run-by-clr-shutdown-hook` | `on` | whether [`main`](crate::main) installs signals and runs the shutdown when its body ends, and whether [`ExitGuard`](crate::ExitGuard) runs it; `akka.jvm-shutdown-hooks = off` switches it off, too |
//! | `run-when-down` | `on` | whether being put out of the cluster runs the shutdown |
//! | `report-file` | none | where [`main`](crate::main) writes the report as JSON |
//! | `reason-overrides.REASON.{exit-code, exit-process, terminate-actor-system}` | none | the same, for one reason, by the name that it has in the report: `SIGTERM`, `process-exit`; `process-terminate` is every signal |
//! | `phases.NAME.{timeout, recover, enabled}` | as built in | how a phase behaves |
//! | `phases.NAME.depends-on` | as built in | replaces what a phase waits for |
//! | `phases.NAME.{after, before}` | none | adds to what a phase, or another one, waits for |
//!
//! Durations carry a unit: `5s`, `250 ms`, `1m 30s`. In HOCON a bare number is milliseconds, as
//! it is in Akka; elsewhere it is refused. An unknown key is an error.

mod blocks;
mod duration;
mod error;
mod foreign;
mod format;
mod hocon;
mod read;
mod section;
mod vars;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[doc(hidden)]
pub use blocks::Block;
pub use error::ConfigError;
pub use format::Format;

use crate::budget::RESERVE;
use crate::phase::Phase;
use crate::plan::{LONGEST, Order, PhaseChange, Plan, PlanBuilder, PlanError};
use crate::platform::{Platform, Unit};
use crate::policy::{Policies, PolicyChange};
use crate::reason::Reason;

const SHORTEST_RESERVE: Duration = Duration::from_millis(100);

/// A window that is as good as none: a phase must have some time.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(1);

/// What routers usually need to hear that a process is not ready any more.
const ROUTERS: Duration = Duration::from_secs(4);

/// The variable that names a configuration file for [`Config::from_env`].
pub const CONFIG_VAR: &str = "ADIEU_CONFIG";

/// How the shutdown behaves. See the table of keys in [`config`](crate::config).
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
#[must_use = "a configuration does nothing until a shutdown is made from it"]
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

/// When the platform kills the process that it has told to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillAfter {
    /// Whatever the environment suggests when signals are installed; see [`Platform`].
    #[default]
    Detect,
    /// Nobody kills us. The phases' own timeouts still bound the shutdown.
    Never,
    /// This long after its signal.
    After(Duration),
}

/// When the platform kills, and how that is known.
pub(crate) struct Resolved {
    /// `None` if it does not.
    pub(crate) kill_after: Option<Duration>,
    pub(crate) source: Source,
    /// What to do to have it known.
    pub(crate) advice: Option<String>,
}

/// How it is known when the platform kills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Known(String),
    /// It is what this platform usually does.
    Assumed(Platform),
}

/// The times of a [`Config`] that are compared with what the platform allows; see
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

/// How long the process serves on when it is not ready any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LameDuck {
    /// Five seconds after a signal, less if there is little time; none at a terminal.
    Auto,
    For(Duration),
}

/// What runs the shutdown by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Triggers {
    pub(crate) actor_system_terminate: bool,
    pub(crate) process_hook: bool,
    pub(crate) downed: bool,
}

// === impl Config ===

impl Config {
    /// The defaults.
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

    /// The four switches that tests of applications need: the shutdown terminates no actor
    /// system, and nothing runs it but a call: no terminating system, no signal, no downing.
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

    /// Reads a configuration from text.
    ///
    /// # Errors
    ///
    /// If the text is not in that format, a key is unknown or has a wrong value, the phases do not
    /// make a plan, or switches contradict each other.
    pub fn parse(text: &str, format: Format) -> Result<Self, ConfigError> {
        Self::parse_with_vars(text, format, std::iter::empty())
    }

    /// Reads a configuration from text, and lets environment variables override its keys.
    ///
    /// Variables that do not begin with `ADIEU__` are left alone.
    ///
    /// # Errors
    ///
    /// As [`Config::parse`].
    pub fn parse_with_vars(
        text: &str,
        format: Format,
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        read::config(format.parse(text)?, format, vars)
    }

    /// Reads a configuration file, `.toml`, `.json` or `.conf`, and lets this process's
    /// environment variables override its keys.
    ///
    /// # Errors
    ///
    /// As [`Config::parse`]; also if the file cannot be read, is not a regular file or is larger
    /// than 4 MiB, or if its ending is unknown.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::read_with_vars(path, vars::of_process())
    }

    /// Reads a configuration file, and lets these variables override its keys, and no others.
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
        let read = format.read(path).and_then(|text| read::config(text, format, vars));
        let mut config = read.map_err(|error| error.in_file(path))?;
        config.blocks.set_file(path);
        Ok(config)
    }

    /// Reads each table under this name, which belongs to another crate of this workspace.
    #[doc(hidden)]
    pub fn read_block<T>(
        &self,
        name: &'static str,
        read: impl FnMut(&str, &mut Block<'_>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        self.blocks.read(name, read)
    }

    /// The configuration that this process's environment describes: the file that `ADIEU_CONFIG`
    /// names, if it does, and what the `ADIEU__` variables override.
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

    /// What the platform allows.
    pub fn kill_after(mut self, kill_after: KillAfter) -> Self {
        self.kill_after = kill_after;
        self
    }

    /// What only the closing phases and the exit may spend; at most a quarter of what is allowed.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.reserve = reserve;
        self
    }

    /// Whether to refuse, rather than warn, when the worst case does not fit.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether phases that do not depend on each other run side by side.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Whether [`Phase::ACTOR_SYSTEM_TERMINATE`] terminates the actor system.
    pub fn terminate_actor_system(mut self, terminate: bool) -> Self {
        self.policies.base.terminate_actor_system = terminate;
        self
    }

    /// Whether the process ends with the last phase, even if its main function goes on.
    pub fn exit_process(mut self, exit: bool) -> Self {
        self.policies.base.exit_process = exit;
        self
    }

    /// The exit code of a clean shutdown.
    pub fn exit_code(mut self, code: u8) -> Self {
        self.policies.base.exit_code = code;
        self
    }

    /// The exit code of a shutdown for this reason, however it ends. Each signal is a reason of its
    /// own.
    pub fn exit_code_for(mut self, reason: &Reason, code: u8) -> Self {
        self.override_for(reason).exit_code = Some(code);
        self
    }

    /// Whether the process ends with the last phase of a shutdown for this reason.
    pub fn exit_process_for(mut self, reason: &Reason, exit: bool) -> Self {
        self.override_for(reason).exit_process = Some(exit);
        self
    }

    /// Whether [`Phase::ACTOR_SYSTEM_TERMINATE`] of a shutdown for this reason terminates the actor
    /// system.
    pub fn terminate_actor_system_for(mut self, reason: &Reason, terminate: bool) -> Self {
        self.override_for(reason).terminate_actor_system = Some(terminate);
        self
    }

    fn override_for(&mut self, reason: &Reason) -> &mut PolicyChange {
        self.policies.overrides.entry(reason.name().to_owned()).or_default()
    }

    /// How long a phase may take that says nothing else.
    pub fn default_phase_timeout(mut self, timeout: Duration) -> Self {
        self.default_phase_timeout = timeout;
        self
    }

    /// How long this phase may take.
    pub fn phase_timeout(mut self, phase: impl Into<Phase>, timeout: Duration) -> Self {
        self.phases.entry(phase.into()).or_default().timeout = Some(timeout);
        self
    }

    /// Whether the shutdown goes on when a task of this phase fails.
    pub fn phase_recovers(mut self, phase: impl Into<Phase>, recover: bool) -> Self {
        self.phases.entry(phase.into()).or_default().recover = Some(recover);
        self
    }

    /// Whether this phase runs at all.
    pub fn phase_enabled(mut self, phase: impl Into<Phase>, enabled: bool) -> Self {
        self.phases.entry(phase.into()).or_default().enabled = Some(enabled);
        self
    }

    /// Whether terminating the actor system runs the shutdown.
    pub fn run_by_actor_system_terminate(mut self, run: bool) -> Self {
        self.triggers.actor_system_terminate = run;
        self
    }

    /// Whether [`main`](crate::main) installs signals and runs the shutdown when its body ends, and
    /// whether [`ExitGuard`](crate::ExitGuard) runs it.
    pub fn run_by_process_hook(mut self, run: bool) -> Self {
        self.triggers.process_hook = run;
        self
    }

    /// Whether being put out of the cluster runs the shutdown.
    pub fn run_when_down(mut self, run: bool) -> Self {
        self.triggers.downed = run;
        self
    }

    /// How long, at most, the process serves on when it is not ready any more.
    pub fn lame_duck(mut self, most: Duration) -> Self {
        self.lame_duck = LameDuck::For(most);
        self
    }

    /// How long it does so at least, also when nobody comes; no longer than at most.
    ///
    /// Four seconds at first, which is what routers usually need to hear of it: of a service that
    /// is seldom asked, that nobody comes for a while says nothing about them.
    pub fn lame_duck_min(mut self, least: Duration) -> Self {
        self.lame_duck_min = least;
        self
    }

    /// How long admitted work may take to finish when the doors have closed: the timeout of
    /// [`Phase::SERVICE_REQUESTS_DONE`]. Without it, as long as the deadline leaves beyond the
    /// reserve and the worst case of the later phases; ten seconds where no deadline is known.
    ///
    /// With zero, work is cancelled at once.
    pub fn drain_timeout(self, timeout: Duration) -> Self {
        self.phase_timeout(Phase::SERVICE_REQUESTS_DONE, timeout.max(AT_ONCE))
    }

    /// How long after the shutdown has begun the process stops being ready; at the latest when its
    /// doors close. For services of one replica, which routers would otherwise find gone.
    pub fn unready_after(mut self, delay: Duration) -> Self {
        self.unready_after = delay;
        self
    }

    /// Where [`main`](crate::main) writes the report as JSON.
    pub fn report_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.report_file = Some(path.into());
        self
    }

    /// The times that are compared with what the platform allows.
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

    /// Whether this configuration itself says how long the phase may take.
    #[must_use]
    pub fn sets_timeout_of(&self, phase: &Phase) -> bool {
        self.phases.get(phase).is_some_and(|change| change.timeout.is_some())
    }

    /// The plan that this configuration describes.
    ///
    /// # Errors
    ///
    /// If its phases do not make one.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        Ok(self.plan_builder()?.build())
    }

    pub(crate) fn plan_builder(&self) -> Result<PlanBuilder, ConfigError> {
        let at = |path: String| move |problem: PlanError| ConfigError::Plan { path, problem };
        let mut plan = Plan::builder();
        plan.default_timeout(self.default_phase_timeout)
            .map_err(at("default-phase-timeout".into()))?;
        plan.order(self.order);
        plan.apply(&self.phases).map_err(|problem| at(self.path_of(&problem))(problem))?;
        // The lame duck must fit into its phase, unless somebody has set that by hand.
        let unbind = Phase::BEFORE_SERVICE_UNBIND;
        if let (LameDuck::For(most), false) = (self.lame_duck, self.sets_timeout_of(&unbind)) {
            let fits = most / 9 * 10 + Duration::from_millis(500);
            if fits > self.default_phase_timeout {
                plan.timeout(unbind, fits).map_err(at("lame-duck".into()))?;
            }
        }
        Ok(plan)
    }

    /// The key that is to blame for this, from our block on.
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
            PlanError::ZeroTimeout { phase } | PlanError::EndlessTimeout { phase } => {
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

    /// Refuses switches that contradict each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let KillAfter::After(Duration::ZERO) = self.kill_after {
            return Err(ConfigError::Contradiction {
                problem: "kill-after is zero, which leaves no time at all; write none if nobody \
                          kills the process"
                    .into(),
            });
        }
        if self.reserve < SHORTEST_RESERVE {
            return Err(ConfigError::Contradiction {
                problem: "reserve is too short to close down in: 100ms is the least".into(),
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
                let problem = format!("{key} is endless: a year is the most");
                return Err(ConfigError::Contradiction { problem });
            }
        }
        if !self.triggers.actor_system_terminate {
            return Ok(());
        }
        // Terminating the system would run the shutdown, which would wait for a termination
        // that it was told not to bring about.
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

// === impl KillAfter ===

impl KillAfter {
    /// How long that is, and how we know. May ask systemd, which takes a second at most.
    pub(crate) fn resolve(self, env: impl Fn(&str) -> Option<String>) -> Resolved {
        let known = |kill_after, how: &str| Resolved {
            kill_after,
            source: Source::Known(how.into()),
            advice: None,
        };
        match self {
            Self::Never => known(None, "configured"),
            Self::After(after) => known(Some(after), "configured"),
            Self::Detect => {
                // Not ours, so a value that makes no sense is passed over; the line that says how
                // the deadline was found then names another source.
                let seconds = |name| {
                    let seconds = env(name).and_then(|value| value.trim().parse::<u64>().ok());
                    seconds.map(Duration::from_secs).filter(|span| *span <= LONGEST)
                };
                if let Some(grace) = seconds("TERMINATION_GRACE_PERIOD_SECONDS") {
                    let spent = seconds("PRESTOP_SECONDS").unwrap_or_default();
                    let left = grace.saturating_sub(spent).max(Duration::from_secs(1));
                    return known(Some(left), "from TERMINATION_GRACE_PERIOD_SECONDS");
                }
                let platform = Platform::detect();
                let mut advice = None;
                if platform == Platform::Systemd {
                    match ask_systemd() {
                        Ok(resolved) => return resolved,
                        Err(how_to_tell) => advice = Some(how_to_tell),
                    }
                }
                let kill_after = platform.kill_after();
                Resolved { kill_after, source: Source::Assumed(platform), advice }
            }
        }
    }
}

// === impl Source ===

impl Source {
    pub(crate) fn configured() -> Self {
        Self::Known("configured".into())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(how) => f.write_str(how),
            Self::Assumed(platform) if platform.kill_after().is_some() => {
                write!(f, "assumed for platform {platform}")
            }
            Self::Assumed(platform) => write!(f, "none on platform {platform}"),
        }
    }
}

/// What the unit of this process says, or else how to tell this process.
fn ask_systemd() -> Result<Resolved, String> {
    let unit = Unit::current().ok_or_else(|| "the unit of this process is not known".to_owned());
    let known = unit.and_then(|unit| Ok((unit.stop_timeout()?, unit)));
    known
        .map(|(kill_after, unit)| {
            let source = Source::Known(format!("TimeoutStopSec of {}", unit.name));
            Resolved { kill_after, source, advice: None }
        })
        .map_err(|problem: String| {
            format!(
                "TimeoutStopSec is not known, 90s are assumed: {problem}; put the value of \
                 TimeoutStopSec into the unit as well, as Environment=ADIEU__KILL_AFTER=..., or \
                 set kill-after"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_period_is_taken_from_the_environment_if_it_makes_sense() {
        let resolve = |grace: &str, prestop: Option<&str>| {
            let env = |name: &str| match name {
                "TERMINATION_GRACE_PERIOD_SECONDS" => Some(grace.to_owned()),
                "PRESTOP_SECONDS" => prestop.map(str::to_owned),
                _ => None,
            };
            let Resolved { kill_after, source, .. } = KillAfter::Detect.resolve(env);
            source.to_string().starts_with("from TERMINATION").then_some(kill_after).flatten()
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(resolve("45", None), seconds(45));
        assert_eq!(resolve("45", Some("10")), seconds(35));
        assert_eq!(resolve("5", Some("10")), seconds(1));
        for nonsense in ["45s", "", "-1", "18446744073709551615"] {
            assert_eq!(resolve(nonsense, None), None, "{nonsense}");
        }
        let after = KillAfter::After(Duration::from_secs(7));
        assert_eq!(after.resolve(|_| None).kill_after, seconds(7));
    }
}
