//! The variables of a unit.

use std::path::Path;

use crate::check::env_file::Dialect;
use crate::check::environment::Environment;
use crate::check::ini::Ini;
use crate::check::input::Source;
use crate::check::script;
use crate::check::unit_keys::SERVICE;

/// Returns the variables of `Environment=`, `EnvironmentFile=` and `PassEnvironment=`.
pub(crate) fn environment(unit: &Ini, section: &str, source: &Source<'_>) -> Environment {
    let mut environment = Environment::default();
    for setting in unit.settings(section) {
        let place = || setting.place.clone();
        match (setting.key.as_str(), setting.value.as_str()) {
            ("Environment", "") => environment.clear(),
            ("Environment", value) => {
                for pair in script::split(value) {
                    // systemd fills in specifiers such as %i.
                    if let Some((name, value)) = pair.split_once('=') {
                        environment.set_marked(name, value, '%', place());
                    }
                }
            }
            ("PassEnvironment", value) => {
                for name in value.split_whitespace() {
                    environment.set_unseen(name, place());
                }
            }
            _ => {}
        }
    }
    // Files count more than the lines of the unit.
    for file in unit.list(section, "EnvironmentFile") {
        let (path, is_optional) = match file.value.strip_prefix('-') {
            Some(path) => (path, true),
            None => (file.value.as_str(), false),
        };
        match environment_file(path, section, source) {
            Some((name, text)) => environment.add_file(&text, &name, Dialect::Systemd),
            // An optional file beside a quadlet may be missing.
            None if is_optional && is_beside(path) && source.path.is_some() => {}
            None => environment.add_unseen(file.place.clone()),
        }
    }
    for unset in unit.list(section, "UnsetEnvironment") {
        for word in script::split(&unset.value) {
            match word.split_once('=') {
                None => environment.unset(&word),
                // Only a variable with this value is removed.
                Some((name, value)) => match environment.values().get(name) {
                    Some(set) if set == value => environment.unset(name),
                    Some(_) => {}
                    None => environment.unset_perhaps(name, unset.place.clone()),
                },
            }
        }
    }
    environment
}

/// Returns the file that a unit names, if it is there on this machine; or one of its name beside
/// the unit, from where it is copied.
fn environment_file(path: &str, section: &str, source: &Source<'_>) -> Option<(String, String)> {
    let name = Path::new(path).file_name()?.to_str()?;
    // Specifiers and patterns are filled in later.
    if path.contains(['%', '*', '?', '[']) {
        return None;
    }
    let beside = || source.beside(name).filter(|_| section == SERVICE);
    source.beside(path).or_else(beside)
}

fn is_beside(path: &str) -> bool {
    !path.starts_with('/') && !path.contains('%')
}
