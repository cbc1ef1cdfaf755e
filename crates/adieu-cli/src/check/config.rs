//! The configuration with which the process runs: a file, this process's environment, and the
//! variables of the manifest.

use std::path::Path;

use adieu::{Config, Format, Plan};

use super::place::{Finding, Level, Place};
use super::workload::{Configured, Workload};
use crate::ending::Failure;
use adieu_core::adapter::error_text;

/// Reads the file, or what the environment says, and proves its plan.
pub(crate) fn read(path: Option<&Path>) -> Result<(Config, Plan), Failure> {
    let place = path.map_or(String::new(), |path| format!("{}: ", path.display()));
    with_variables(path, environment())
        .map_err(|problem| Failure::input(format!("{place}{problem}")))
}

/// The same with the variables that a manifest sets, and with the file that it carries.
///
/// # Errors
///
/// With the place of a variable or a file that is wrong, and what is.
pub(crate) fn of_workload(
    path: Option<&Path>,
    workload: &Workload,
) -> Result<(Config, Plan), (Place, String)> {
    let carried = workload.configured.as_ref().filter(|found| found.text.is_some());
    let from = match carried {
        Some(found) => From::Carried(found),
        None => From::Here(path),
    };
    let mut variables = environment();
    variables.retain(|(name, _)| workload.overrides.iter().all(|found| found.name != *name));
    let place = carried.map_or_else(Place::start, |found| found.place.clone());
    let _ = from.read(variables.clone()).map_err(|problem| (place.clone(), problem))?;
    for one in &workload.overrides {
        variables.push((one.name.clone(), one.value.clone()));
        // One by one, so that the first that is wrong is named.
        let read = from.read(variables.clone());
        read.map_err(|problem| (one.place.clone(), problem)).map(drop)?;
    }
    from.read(variables).map_err(|problem| (place, problem))
}

/// The finding about the configuration file that a manifest carries or names.
pub(crate) fn about(path: Option<&Path>, workload: &Workload) -> Option<Finding> {
    let found = workload.configured.as_ref()?;
    let (place, file) = (found.place.clone(), &found.path);
    match &found.text {
        Some(text) if includes(text) => {
            let problem = format!("{file} includes other files, which cannot be seen here");
            let advice = "write them into it";
            Some(Finding::new(Level::Unknown, place, problem, advice))
        }
        Some(_) => {
            let same = From::Carried(found).read(environment()).ok()?.0
                == From::Here(path).read(environment()).ok()?.0;
            let problem = format!("the manifest carries {file}, which says something else");
            let advice = "give --config what the manifest carries: that is what was judged";
            (!same && path.is_some()).then(|| Finding::new(Level::Warning, place, problem, advice))
        }
        None if file_of(path).is_some() => None,
        None => {
            let problem = format!("the configuration is in {file}, which cannot be seen here");
            Some(Finding::new(Level::Unknown, place, problem, "give it with --config"))
        }
    }
}

/// Whether a text in HOCON is not all of the configuration.
fn includes(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("include "))
}

/// Where a configuration comes from.
enum From<'a> {
    /// The manifest.
    Carried(&'a Configured),
    /// A file or the environment of this process.
    Here(Option<&'a Path>),
}

impl From<'_> {
    fn read(&self, variables: Vec<(String, String)>) -> Result<(Config, Plan), String> {
        match self {
            Self::Here(path) => with_variables(*path, variables),
            Self::Carried(Configured { path, text, .. }) => {
                let text = text.as_deref().unwrap_or_default();
                let format = Format::of(Path::new(path));
                let config =
                    format.and_then(|format| Config::parse_with_vars(text, format, variables));
                proved(config)
            }
        }
    }
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
    proved(config)
}

fn proved(config: Result<Config, adieu::ConfigError>) -> Result<(Config, Plan), String> {
    let proved = config.and_then(|config| config.plan().map(|plan| (config, plan)));
    proved.map_err(|error| error_text(&error))
}
