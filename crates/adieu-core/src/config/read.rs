//! Turns a parsed document into a [`Config`].

use std::time::Duration;

use serde_json::{Map, Value};

use super::section::Section;
use super::{Config, ConfigError, Format, KillAfter, LameDuck, section, vars};
use crate::phase::Phase;
use crate::plan::{Order, PhaseChange};
use crate::policy::PolicyChange;
use crate::reason::Reason;

pub(super) fn config(
    mut document: Value,
    format: Format,
    vars: impl IntoIterator<Item = (String, String)>,
) -> Result<Config, ConfigError> {
    let when_down = take(&mut document, &["akka", "cluster", "run-coordinated-shutdown-when-down"]);
    let (path, mut block) = block(document)?;
    if let (Some(value), Some(table)) = (when_down, block.as_object_mut()) {
        table.entry("run-when-down").or_insert(value);
    }
    let origins = vars::overlay(&mut block, vars)?;
    read(&path, &block, format).map_err(|error| origins.explain(&path, error))
}

/// The block that is ours, and where it is. A document without one is itself the block.
fn block(mut document: Value) -> Result<(String, Value), ConfigError> {
    let akka = take(&mut document, &["akka", "coordinated-shutdown"]);
    let plain = take(&mut document, &["coordinated-shutdown"]);
    match (akka, plain) {
        (Some(_), Some(_)) => Err(ConfigError::Contradiction {
            problem: "both akka.coordinated-shutdown and coordinated-shutdown are there: keep one"
                .into(),
        }),
        (Some(block), None) => Ok(("akka.coordinated-shutdown".into(), block)),
        (None, Some(block)) => Ok(("coordinated-shutdown".into(), block)),
        // An Akka configuration that says nothing of shutdown leaves all as it is.
        (None, None) if document.get("akka").is_some() => {
            Ok((String::new(), Value::Object(Map::new())))
        }
        (None, None) => Ok((String::new(), document)),
    }
}

/// Takes what is at this path out of the document.
pub(super) fn take(document: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, before) = path.split_last()?;
    let table = before.iter().try_fold(document, |table, key| table.get_mut(key))?;
    table.as_object_mut()?.remove(*last)
}

fn read(path: &str, block: &Value, format: Format) -> Result<Config, ConfigError> {
    let mut config = Config::new();
    let mut keys = Section::new(path, block, format.bare_numbers_are_millis())?;
    if path.is_empty() {
        // So that a misspelt block is recognised as such.
        keys.value(&["coordinated-shutdown"])?;
    }

    if let Some((path, value)) = keys.value(&["kill-after"])? {
        config.kill_after = match value.as_str() {
            Some("auto") => KillAfter::Detect,
            Some("none" | "never") => KillAfter::Never,
            Some(_) | None => KillAfter::After(keys.as_duration(&path, value)?),
        };
    }
    set(&mut config.reserve, keys.duration(&["reserve"])?);
    if let Some((path, value)) = keys.value(&["lame-duck"])? {
        config.lame_duck = match value.as_str() {
            Some("auto") => LameDuck::Auto,
            Some("none") => LameDuck::For(Duration::ZERO),
            Some(_) | None => LameDuck::For(keys.as_duration(&path, value)?),
        };
    }
    set(&mut config.lame_duck_min, keys.duration(&["lame-duck-min"])?);
    set(&mut config.unready_after, keys.duration(&["unready-after"])?);
    set(&mut config.strict, keys.switch(&["strict"])?);
    set(&mut config.order, order(&mut keys)?);
    set(&mut config.default_phase_timeout, keys.duration(&["default-phase-timeout"])?);
    let drain_timeout = match keys.value(section::DRAIN_TIMEOUT)? {
        Some((_, value)) if value.as_str() == Some("auto") => None,
        Some((path, value)) => Some((keys.as_duration(&path, value)?, path)),
        None => None,
    };
    config.report_file = keys.text(&["report-file"])?.map(Into::into);

    let base = policy(&mut keys)?;
    set(&mut config.policies.base.terminate_actor_system, base.terminate_actor_system);
    set(&mut config.policies.base.exit_process, base.exit_process);
    set(&mut config.policies.base.exit_code, base.exit_code);

    let triggers = &mut config.triggers;
    set(&mut triggers.actor_system_terminate, keys.switch(&["run-by-actor-system-terminate"])?);
    set(&mut triggers.process_hook, keys.switch(section::PROCESS_HOOK)?);
    set(&mut triggers.downed, keys.switch(&["run-when-down"])?);

    for (reason, mut keys) in keys.tables("reason-overrides")? {
        let change = policy(&mut keys)?;
        keys.finish()?;
        let known = config.policies.overrides.entry(reason_name(reason)).or_default();
        *known = PolicyChange {
            terminate_actor_system: change.terminate_actor_system.or(known.terminate_actor_system),
            exit_process: change.exit_process.or(known.exit_process),
            exit_code: change.exit_code.or(known.exit_code),
        };
    }
    for (phase, mut keys) in keys.tables("phases")? {
        let change = PhaseChange {
            depends_on: keys.names(&["depends-on"])?.map(phases),
            after: keys.names(&["after"])?.map(phases).unwrap_or_default(),
            before: keys.names(&["before"])?.map(phases).unwrap_or_default(),
            timeout: keys.duration(&["timeout"])?,
            recover: keys.switch(&["recover"])?,
            enabled: keys.switch(&["enabled"])?,
        };
        keys.finish()?;
        config.phases.insert(Phase::new(phase), change);
    }
    if let Some((timeout, path)) = drain_timeout {
        if config.sets_timeout_of(&Phase::SERVICE_REQUESTS_DONE) {
            let other = keys.path_of(&section::DRAIN_PHASE.join("."));
            let problem = format!("means the same as {other}: write one of them");
            return Err(ConfigError::Invalid { path, problem });
        }
        config = config.drain_timeout(timeout);
    }
    keys.finish()?;

    config.check()?;
    let _proved = config.plan_builder()?;
    Ok(config)
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

fn phases(names: Vec<String>) -> Vec<Phase> {
    names.into_iter().map(Phase::new).collect()
}

fn order(keys: &mut Section<'_>) -> Result<Option<Order>, ConfigError> {
    match keys.text(&["order"])?.as_deref() {
        None => Ok(None),
        Some("dag") => Ok(Some(Order::Dag)),
        Some("sequential") => Ok(Some(Order::Sequential)),
        Some(other) => Err(ConfigError::Invalid {
            path: keys.path_of("order"),
            problem: format!("expected dag or sequential, found {other}"),
        }),
    }
}

fn policy(keys: &mut Section<'_>) -> Result<PolicyChange, ConfigError> {
    let exit_code = match keys.integer(&["exit-code"])? {
        None => None,
        // What the process says is one byte; -1 is 255, on the JVM as here.
        Some(code @ -128..=255) => Some(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        Some(code) => {
            return Err(ConfigError::Invalid {
                path: keys.path_of("exit-code"),
                problem: format!("expected an exit code from -128 to 255, found {code}"),
            });
        }
    };
    Ok(PolicyChange {
        terminate_actor_system: keys.switch(&["terminate-actor-system"])?,
        exit_process: keys.switch(section::EXIT_PROCESS)?,
        exit_code,
    })
}

/// Our name for a reason that may be given as Akka's class name, such as
/// `akka.actor.CoordinatedShutdown$ClusterDowningReason$`. An application's own stays as it is.
fn reason_name(key: &str) -> String {
    let class = key.trim_end_matches('$').rsplit(['$', '.', '+']).next().unwrap_or(key);
    let plain = |name: &str| name.to_lowercase().replace('-', "");
    let class = plain(class.strip_suffix("Reason").unwrap_or(class));
    let known = [
        (Reason::ProcessTerminate(crate::signals::Signal::TERM), "processterminate"),
        (Reason::ProcessExit, "processexit"),
        (Reason::ProcessExit, "jvmexit"),
        (Reason::ProcessExit, "clrexit"),
        (Reason::ActorSystemTerminate, "actorsystemterminate"),
        (Reason::ClusterLeaving, "clusterleaving"),
        (Reason::ClusterDowning, "clusterdowning"),
        (Reason::ClusterJoinUnsuccessful, "clusterjoinunsuccessful"),
        (Reason::IncompatibleConfiguration, "incompatibleconfiguration"),
        (Reason::IncompatibleConfiguration, "incompatibleconfigurationdetected"),
        (Reason::Unknown, "unknown"),
    ];
    let found = known.iter().find(|(_, name)| *name == class);
    found.map_or_else(|| key.to_owned(), |(reason, _)| reason.name().to_owned())
}
