//! Environment variables that override keys.
//!
//! `ADIEU__PHASES__SERVICE_UNBIND__TIMEOUT` is `phases.service-unbind.timeout`. Two underscores
//! separate keys, because one stands for a dash, and because Kubernetes sets variables such as
//! `ADIEU_SERVICE_HOST` in every pod if there is a service called `adieu`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{ConfigError, section};

const PREFIX: &str = "ADIEU__";

/// The block of a file, as a variable would name it.
const BLOCK: &str = "COORDINATED_SHUTDOWN";

/// The maximum number of parts of a variable's name. More than any key has; tables are read by
/// recursion.
const MOST_PARTS: usize = 8;

/// The variable that set each key, for error messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins(HashMap<String, String>);

pub(super) fn of_process() -> impl Iterator<Item = (String, String)> {
    // A variable that is not Unicode cannot be one of ours.
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

pub(super) fn overlay(
    block: &mut Value,
    vars: impl IntoIterator<Item = (String, String)>,
) -> Result<Origins, ConfigError> {
    let mut origins = Origins::default();
    let mut vars: Vec<_> = vars.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    vars.sort();
    for (name, value) in vars {
        if name.matches("__").count() > MOST_PARTS {
            return Err(ConfigError::Invalid {
                path: name.chars().take(60).collect(),
                problem: "the variable has more parts than any key".into(),
            });
        }
        check_block(&name)?;
        let mut table = &mut *block;
        let mut path = Vec::new();
        for part in name[PREFIX.len()..].split("__") {
            let entries = table.as_object_mut().ok_or_else(|| ConfigError::Invalid {
                path: name.clone(),
                problem: format!("{} is a value, not a table", path.join(".")),
            })?;
            let key =
                existing(entries, part).unwrap_or_else(|| part.to_lowercase().replace('_', "-"));
            // A variable overrides the file, even if the file uses another name of the key. Two
            // variables for one key are an error, which is found when the keys are read.
            for same in section::same_as(&key) {
                if !origins.has_set(&path, same) {
                    entries.remove(*same);
                }
            }
            path.push(key.clone());
            table = entries.entry(key).or_insert_with(|| Value::Object(Map::new()));
        }
        *table = Value::String(value);
        if let Some(same) = section::same_path(&path)
            && !origins.0.contains_key(&same.join("."))
        {
            section::take(block, same);
        }
        origins.0.insert(path.join("."), name);
    }
    Ok(origins)
}

/// Variables name the keys of the block, not the block itself.
fn check_block(name: &str) -> Result<(), ConfigError> {
    let key = &name[PREFIX.len()..];
    let (first, rest) = key.split_once("__").unwrap_or((key, ""));
    if !first.eq_ignore_ascii_case(BLOCK) {
        return Ok(());
    }
    let problem = match rest {
        "" => "omit the name of the block, and name a key".to_owned(),
        rest => format!("omit the name of the block: {PREFIX}{rest}"),
    };
    Err(ConfigError::Invalid { path: name.to_owned(), problem })
}

/// Returns the existing key that differs from this one only in case and dashes.
fn existing(entries: &Map<String, Value>, part: &str) -> Option<String> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    entries.keys().find(|key| plain(key) == plain(part)).cloned()
}

// === impl Origins ===

impl Origins {
    /// Returns whether a variable has set this key of the table at `path`.
    fn has_set(&self, path: &[String], key: &str) -> bool {
        let path = path.iter().map(String::as_str).chain([key]).collect::<Vec<_>>();
        self.0.contains_key(&path.join("."))
    }

    /// Adds the variable that set the key to the error, if one did.
    pub(super) fn explain(&self, block: &str, error: ConfigError) -> ConfigError {
        let name = |path: String| {
            let inner = path.strip_prefix(block).unwrap_or(&path).trim_start_matches('.');
            match self.0.get(inner) {
                Some(var) => format!("{path} (set by {var})"),
                None => path,
            }
        };
        match error {
            ConfigError::UnknownKey { path, nearest } => {
                ConfigError::UnknownKey { path: name(path), nearest }
            }
            ConfigError::Invalid { path, problem } => {
                ConfigError::Invalid { path: name(path), problem }
            }
            ConfigError::Plan { path, problem } => ConfigError::Plan { path: name(path), problem },
            other @ (ConfigError::Read { .. }
            | ConfigError::UnknownFormat { .. }
            | ConfigError::NoHocon
            | ConfigError::Syntax { .. }
            | ConfigError::Contradiction { .. }
            | ConfigError::File { .. }) => other,
        }
    }
}
