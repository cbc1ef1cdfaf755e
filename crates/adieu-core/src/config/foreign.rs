//! Handles the keys outside our block in a configuration of Akka, Akka.NET or Pekko.
//!
//! Unrelated keys are ignored. The keys of a cluster are kept for the crate that has clusters. Keys
//! that are spelt almost like these are an error, because a misspelt block would otherwise silently
//! leave every key at its default.

use serde_json::{Map, Value};

use super::{ConfigError, section};
use crate::names::nearest;

/// The paths at which our block may be.
pub(super) const PLACES: [&[&str]; 3] = [&["akka", BLOCK], &["pekko", BLOCK], &[BLOCK]];

/// The root keys of the frameworks whose configuration may contain our block.
pub(super) const ROOTS: [&str; 2] = ["akka", "pekko"];

const BLOCK: &str = "coordinated-shutdown";
const HOOKS: &str = "jvm-shutdown-hooks";
const WHEN_DOWN: &str = "run-coordinated-shutdown-when-down";

/// Keys outside our block that concern it.
pub(super) struct AkkaKeys {
    pub(super) run_when_down: Option<Value>,
    /// False if all hooks of the framework are switched off.
    pub(super) shutdown_hooks: bool,
    /// The other keys of `akka.cluster` or `pekko.cluster`, by the path of the table.
    pub(super) clusters: Vec<(String, Value)>,
}

// === impl AkkaKeys ===

impl AkkaKeys {
    /// Sets the corresponding keys of our block.
    pub(super) fn put_into(self, block: &mut Map<String, Value>) {
        if let Some(value) = self.run_when_down {
            block.entry("run-when-down").or_insert(value);
        }
        // Akka registers its hook only if both keys are on.
        if !self.shutdown_hooks {
            block.retain(|key, _| !section::PROCESS_HOOK.contains(&key.as_str()));
            block.insert(section::PROCESS_HOOK[0].into(), Value::Bool(false));
        }
    }
}

/// Removes the keys that concern us from the document, and rejects keys that are almost like them.
pub(super) fn take(document: &mut Value) -> Result<AkkaKeys, ConfigError> {
    let mut outside = AkkaKeys { run_when_down: None, shutdown_hooks: true, clusters: Vec::new() };
    if document.get(BLOCK).is_some() || has_root(document) {
        reject_similar(document, "", &[BLOCK])?;
    }
    for root in ROOTS {
        let Some(framework) = document.get_mut(root) else { continue };
        reject_similar(framework, root, &[BLOCK, HOOKS])?;
        if let Some(value) = section::take(framework, &[HOOKS]) {
            let path = format!("{root}.{HOOKS}");
            outside.shutdown_hooks &= section::as_switch(&path, &value)?;
        }
        if let Some(cluster) = framework.get_mut("cluster") {
            reject_similar(cluster, &format!("{root}.cluster"), &[WHEN_DOWN])?;
            outside.run_when_down =
                section::take(cluster, &[WHEN_DOWN]).or(outside.run_when_down.take());
            outside.clusters.push((format!("{root}.cluster"), cluster.take()));
        }
    }
    Ok(outside)
}

fn has_root(document: &Value) -> bool {
    ROOTS.iter().any(|root| document.get(root).is_some())
}

/// Returns an error if a key of the table is spelt almost like one of ours.
fn reject_similar(table: &Value, path: &str, ours: &[&'static str]) -> Result<(), ConfigError> {
    let Some(table) = table.as_object() else { return Ok(()) };
    let whole = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let foreign = table.keys().filter(|key| !ours.contains(&key.as_str()));
    for key in foreign {
        if let Some(near) = nearest(key, ours.iter().copied()) {
            return Err(ConfigError::UnknownKey { path: whole(key), nearest: Some(whole(near)) });
        }
    }
    Ok(())
}
