//! The configuration, in the forms in which a manifest can contain it.

use std::path::Path;

use adieu::{Config, Format};
use serde_json::Value;

use crate::check::{config_file, overrides_here};
use crate::ending::Failure;
use adieu_core::adapter::error_text;

/// A configuration that a manifest contains.
pub(super) struct Carried {
    /// The file, if there is one: its extension and its text.
    pub(super) file: Option<(&'static str, String)>,
    /// The file and the variables as variables alone, if these can express the whole file.
    pub(super) flat: Option<Vec<(String, String)>>,
    /// Variables that override the file.
    pub(super) variables: Vec<(String, String)>,
}

/// The tables in which a configuration may be.
const BLOCKS: [&[&str]; 2] = [&["akka", "coordinated-shutdown"], &["coordinated-shutdown"]];

// === impl Carried ===

impl Carried {
    /// Reads the configuration that was checked, as text.
    pub(super) fn read(path: Option<&Path>) -> Result<Self, Failure> {
        let variables = overrides_here();
        let Some(path) = config_file(path) else {
            return Ok(Self { file: None, flat: Some(variables.clone()), variables });
        };
        let wrong = |problem: String| Failure::input(format!("{}: {problem}", path.display()));
        let format = Format::of(&path).map_err(|error| wrong(error_text(&error)))?;
        let checked = Config::read_with_vars(&path, variables.clone());
        let checked = checked.map_err(|error| wrong(error_text(&error)))?;
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        // Included files are not carried.
        if Config::parse_with_vars(&text, format, variables.clone()).ok().as_ref() != Some(&checked)
        {
            let problem =
                "includes other files, which a manifest cannot contain: copy them into the file";
            return Err(wrong(problem.into()));
        }
        let (ending, block) = match format {
            Format::Toml => ("toml", toml::from_str::<Value>(&text).ok()),
            Format::Json => ("json", serde_json::from_str(&text).ok()),
            Format::Hocon | _ => ("conf", None),
        };
        let flat = block.and_then(|block| flatten(&block, &variables)).filter(|flat| {
            let read = Config::parse_with_vars("", Format::Toml, flat.iter().cloned());
            read.ok().as_ref() == Some(&checked)
        });
        Ok(Self { file: Some((ending, text)), flat, variables })
    }

    /// Returns the path of the file on the machine of the service.
    pub(super) fn target(&self, name: &str) -> Option<String> {
        self.file.as_ref().map(|(ending, _)| format!("/etc/{name}/shutdown.{ending}"))
    }
}

/// Returns the keys of a configuration as variables; those in `over` have priority.
fn flatten(document: &Value, over: &[(String, String)]) -> Option<Vec<(String, String)>> {
    let block =
        BLOCKS.iter().find_map(|path| path.iter().try_fold(document, |at, key| at.get(key)));
    let mut variables = Vec::new();
    add(block.unwrap_or(document), "ADIEU", &mut variables)?;
    variables.retain(|(name, _)| over.iter().all(|(other, _)| other != name));
    variables.extend(over.iter().cloned());
    Some(variables)
}

fn add(value: &Value, name: &str, variables: &mut Vec<(String, String)>) -> Option<()> {
    let text = match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let name = format!("{name}__{}", key.to_uppercase().replace('-', "_"));
                add(value, &name, variables)?;
            }
            return Some(());
        }
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let items = items.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
            items.join(",")
        }
        Value::Null => return None,
    };
    variables.push((name.into(), text));
    Some(())
}
