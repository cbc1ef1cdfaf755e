//! Turns a parsed document into a [`Config`].

use std::time::Duration;

use serde_json::{Map, Value};

use super::blocks::{self, Blocks};
use super::section::Section;
use super::{Config, ConfigError, Format, KillAfter, LameDuck, foreign, section, vars};
use crate::phase::Phase;
use crate::plan::{Order, PhaseChange};
use crate::policy::{ANY_SIGNAL, PolicyChange};
use crate::reason::Reason;
use crate::signals::Signal;

pub(super) fn config(
    mut document: Value,
    format: Format,
    vars: impl IntoIterator<Item = (String, String)>,
) -> Result<Config, ConfigError> {
    let mut outside = foreign::take(&mut document)?;
    let clusters = std::mem::take(&mut outside.clusters);
    let others = blocks::take(&mut document);
    let (path, mut block) = block(document)?;
    if let Some(table) = block.as_object_mut() {
        outside.put_into(table);
        blocks::put_into(table, others)?;
    }
    let origins = vars::overlay(&mut block, vars)?;
    let mut others = blocks::take(&mut block);
    others.extend(clusters);
    let read = read(&path, &block, format).map_err(|error| origins.explain(&path, error));
    Ok(Config { blocks: Blocks::new(others, format, origins), ..read? })
}

/// Returns our block and its path. A document without such a block is itself the block.
fn block(mut document: Value) -> Result<(String, Value), ConfigError> {
    let mut found = Vec::new();
    for place in foreign::PLACES {
        found.extend(section::take(&mut document, place).map(|block| (place.join("."), block)));
    }
    let first = found.pop();
    match (first, found.pop()) {
        (Some((one, _)), Some((other, _))) => Err(ConfigError::Contradiction {
            problem: format!("both {other} and {one} are set: remove one"),
        }),
        (Some(found), None) => Ok(found),
        // A configuration of Akka without our block changes nothing.
        (None, _) if foreign::ROOTS.iter().any(|root| document.get(root).is_some()) => {
            Ok((String::new(), Value::Object(Map::new())))
        }
        (None, _) => Ok((String::new(), document)),
    }
}

fn read(path: &str, block: &Value, format: Format) -> Result<Config, ConfigError> {
    let mut config = Config::new();
    let mut keys = Section::new(path, block, format.bare_numbers_are_millis())?;
    if path.is_empty() {
        // Makes the name of the block a known key, so that a misspelt block is recognised.
        keys.value(&["coordinated-shutdown"])?;
        keys.value(blocks::NAMES)?;
    }

    read_times(&mut keys, &mut config)?;
    set(&mut config.strict, keys.switch(&["strict"])?);
    set(&mut config.order, order(&mut keys)?);
    config.report_file = keys.text(&["report-file"])?.map(Into::into);
    read_policies(&mut keys, &mut config)?;
    read_triggers(&mut keys, &mut config)?;
    read_phases(&mut keys, &mut config)?;
    let config = read_drain_timeout(&mut keys, config)?;
    keys.finish()?;

    config.check()?;
    let _proved = config.plan_builder().map_err(|error| error.within(path))?;
    Ok(config)
}

/// Reads the keys that set a time of the whole shutdown, except `drain-timeout`.
fn read_times(keys: &mut Section<'_>, config: &mut Config) -> Result<(), ConfigError> {
    if let Some((path, value)) = keys.value(&["kill-after"])? {
        config.kill_after = match value.as_str() {
            Some("auto") => KillAfter::Detect,
            Some("none" | "never") => KillAfter::Never,
            Some(_) | None => {
                KillAfter::After(keys.as_duration_or(&path, value, "auto or none")?)
            }
        };
    }
    set(&mut config.reserve, keys.duration(&["reserve"])?);
    if let Some((path, value)) = keys.value(&["lame-duck"])? {
        config.lame_duck = match value.as_str() {
            Some("auto") => LameDuck::Auto,
            Some("none") => LameDuck::For(Duration::ZERO),
            Some(_) | None => LameDuck::For(keys.as_duration_or(&path, value, "auto or none")?),
        };
    }
    set(&mut config.lame_duck_min, keys.duration(&["lame-duck-min"])?);
    set(&mut config.unready_after, keys.duration(&["unready-after"])?);
    set(&mut config.default_phase_timeout, keys.duration(&["default-phase-timeout"])?);
    Ok(())
}

/// Reads the actions at the end, and how they differ by reason.
fn read_policies(keys: &mut Section<'_>, config: &mut Config) -> Result<(), ConfigError> {
    let base = policy(keys)?;
    set(&mut config.policies.base.terminate_actor_system, base.terminate_actor_system);
    set(&mut config.policies.base.exit_process, base.exit_process);
    set(&mut config.policies.base.exit_code, base.exit_code);

    for (reason, mut keys) in keys.tables("reason-overrides")? {
        let change = policy(&mut keys)?;
        for name in reason_names(reason, &keys)? {
            let known = config.policies.overrides.entry(name).or_default();
            *known = PolicyChange {
                terminate_actor_system: change
                    .terminate_actor_system
                    .or(known.terminate_actor_system),
                exit_process: change.exit_process.or(known.exit_process),
                exit_code: change.exit_code.or(known.exit_code),
            };
        }
        keys.finish()?;
    }
    Ok(())
}

/// Reads which events begin a shutdown.
fn read_triggers(keys: &mut Section<'_>, config: &mut Config) -> Result<(), ConfigError> {
    let triggers = &mut config.triggers;
    set(&mut triggers.actor_system_terminate, keys.switch(&["run-by-actor-system-terminate"])?);
    set(&mut triggers.process_hook, keys.switch(section::PROCESS_HOOK)?);
    set(&mut triggers.downed, keys.switch(&["run-when-down"])?);
    Ok(())
}

/// Reads the table of each phase.
fn read_phases(keys: &mut Section<'_>, config: &mut Config) -> Result<(), ConfigError> {
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
    Ok(())
}

/// Reads `drain-timeout`, which is another name for the timeout of a phase.
fn read_drain_timeout(keys: &mut Section<'_>, config: Config) -> Result<Config, ConfigError> {
    let (timeout, path) = match keys.value(section::DRAIN_TIMEOUT)? {
        Some((path, value)) if value.as_str() != Some("auto") => {
            (keys.as_duration_or(&path, value, "auto")?, path)
        }
        Some(_) | None => return Ok(config),
    };
    if config.sets_timeout_of(&Phase::SERVICE_REQUESTS_DONE) {
        let other = keys.path_of(&section::DRAIN_PHASE.join("."));
        let problem = format!("means the same as {other}: write one of them");
        return Err(ConfigError::Invalid { path, problem });
    }
    Ok(config.drain_timeout(timeout))
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
        // An exit code is one byte; -1 is 255, as on the JVM.
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

/// Returns our names for a reason. The key may be a class name of Akka, such as
/// `akka.actor.CoordinatedShutdown$ClusterDowningReason$`. The name of a custom reason is unchanged.
fn reason_names(key: &str, keys: &Section<'_>) -> Result<Vec<String>, ConfigError> {
    let class = key.trim_end_matches('$').rsplit(['$', '.', '+']).next().unwrap_or(key);
    let plain = |name: &str| name.to_lowercase().replace('-', "");
    let class = plain(class.strip_suffix("Reason").unwrap_or(class));
    let exit = Reason::ProcessExit;
    let names = match class.as_str() {
        "processterminate" => vec![ANY_SIGNAL],
        "processexit" => vec![exit.name()],
        // The hooks of the JVM and the CLR also run when a signal ends the process.
        "jvmexit" | "clrexit" => vec![exit.name(), ANY_SIGNAL],
        "actorsystemterminate" => vec![Reason::ActorSystemTerminate.name()],
        "clusterleaving" => vec![Reason::ClusterLeaving.name()],
        "clusterdowning" => vec![Reason::ClusterDowning.name()],
        "clusterjoinunsuccessful" => vec![Reason::ClusterJoinUnsuccessful.name()],
        "incompatibleconfiguration" | "incompatibleconfigurationdetected" => {
            vec![Reason::IncompatibleConfiguration.name()]
        }
        "unknown" => vec![Reason::Unknown.name()],
        // A name that begins with SIG is never a custom reason, so a misspelt signal is an error.
        _ if key.starts_with("SIG") || Signal::of_name(key).is_some() => match Signal::of_name(key)
        {
            Some(signal) => vec![signal.name()],
            None => {
                let problem = format!("{key} is not a signal: write its name, such as SIGTERM");
                return Err(ConfigError::Invalid { path: keys.path().to_owned(), problem });
            }
        },
        _ => vec![key],
    };
    Ok(names.into_iter().map(str::to_owned).collect())
}
