//! The configuration with which the process runs: a file, this process's environment, and the
//! variables of the manifest.

use std::path::Path;

use adieu::{Config, Format, Plan};

use super::place::Place;
use super::workload::Override;
use crate::ending::Failure;
use adieu_core::adapter::error_text;

/// Reads the file, or what the environment says, and proves its plan.
pub(crate) fn read(path: Option<&Path>) -> Result<(Config, Plan), Failure> {
    let place = path.map_or(String::new(), |path| format!("{}: ", path.display()));
    with_variables(path, environment())
        .map_err(|problem| Failure::input(format!("{place}{problem}")))
}

/// The same with the variables that a manifest sets.
///
/// # Errors
///
/// With the place of a variable that is wrong, and what is.
pub(crate) fn overridden(
    path: Option<&Path>,
    overrides: &[Override],
) -> Result<(Config, Plan), (Place, String)> {
    let mut variables = environment();
    variables.retain(|(name, _)| overrides.iter().all(|found| found.name != *name));
    for one in overrides {
        variables.push((one.name.clone(), one.value.clone()));
        // One by one, so that the first that is wrong is named.
        let read = with_variables(path, variables.clone());
        read.map_err(|problem| (one.place.clone(), problem)).map(drop)?;
    }
    with_variables(path, variables).map_err(|problem| (Place::start(), problem))
}

/// The file that the configuration is in, if it is in one.
pub(crate) fn file_of(path: Option<&Path>) -> Option<std::path::PathBuf> {
    let named = std::env::var_os(adieu::config::CONFIG_VAR).filter(|path| !path.is_empty());
    path.map(Path::to_owned).or_else(|| named.map(Into::into))
}

/// The variables of this process that change a configuration.
pub(crate) fn environment() -> Vec<(String, String)> {
    let all = std::env::vars_os();
    let named =
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    named.filter(|(name, _)| name.starts_with("ADIEU__")).collect()
}

fn with_variables(
    path: Option<&Path>,
    variables: Vec<(String, String)>,
) -> Result<(Config, Plan), String> {
    let config = match file_of(path) {
        Some(file) => Config::read_with_vars(file, variables),
        None => Config::parse_with_vars("", Format::Toml, variables),
    };
    let proved = config.and_then(|config| config.plan().map(|plan| (config, plan)));
    proved.map_err(|error| error_text(&error))
}
