//! The configuration with which the process runs: a file, and the variables of its environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use adieu::{Config, Format, Plan};

use super::place::{Finding, Level, Place};
use super::workload::{ConfigFile, Workload};
use crate::ending::Failure;
use crate::tables;
use adieu_core::adapter::error_text;

/// The variables of an environment, by name.
pub(crate) type Variables = Vec<(String, String)>;

/// Reads the file under these variables, and checks its plan. Without a file, only the variables
/// count.
pub(crate) fn read(path: Option<&Path>, variables: Variables) -> Result<(Config, Plan), Failure> {
    ConfigSource::Here(path).read(variables).map_err(Failure::input)
}

/// Reads the configuration under the variables of a workload. The file that its manifest carries
/// replaces the one at `path`.
///
/// # Errors
///
/// Returns the place of the variable or the file that is wrong, and the problem.
pub(crate) fn of_workload(
    path: Option<&Path>,
    workload: &Workload,
) -> Result<(Config, Plan), (Place, String)> {
    let from = ConfigSource::of(path, workload);
    let mut variables = substitutes(workload);
    let place = match from {
        ConfigSource::Carried(found) => found.place.clone(),
        ConfigSource::Here(_) => Place::start(),
    };
    let _ = from.read(variables.clone()).map_err(|problem| (place.clone(), problem))?;
    for one in &workload.overrides {
        variables.push((one.name.clone(), one.value.clone()));
        // One by one, so that the first wrong variable is named.
        let read = from.read(variables.clone());
        read.map_err(|problem| (one.place.clone(), problem)).map(drop)?;
    }
    from.read(variables).map_err(|problem| (place, problem))
}

/// Returns whether variables of the workload or a file in its manifest may change the configuration.
pub(crate) fn is_own(path: Option<&Path>, workload: &Workload) -> bool {
    let from = ConfigSource::of(path, workload);
    !workload.overrides.is_empty()
        || matches!(from, ConfigSource::Carried(_))
        || !from.substituted().is_empty()
}

/// Returns whether the file can be read only with variables that a manifest may set.
pub(crate) fn needs_variables(path: Option<&Path>) -> bool {
    !ConfigSource::Here(path).substituted().is_empty()
}

/// Returns the findings about the configuration file of a workload, and about the variables that it
/// substitutes.
pub(crate) fn about(path: Option<&Path>, workload: &Workload) -> Vec<Finding> {
    let mut findings = hidden(path, workload);
    findings.extend(about_file(path, workload));
    findings
}

fn about_file(path: Option<&Path>, workload: &Workload) -> Option<Finding> {
    let found = workload.configured.as_ref()?;
    let (place, file) = (found.place.clone(), &found.path);
    if let Some(doubt) = found.doubt {
        let problem = format!("the configuration is in {file}: {doubt}");
        let advice = "write an absolute path without .. into ADIEU_CONFIG";
        return Some(Finding::new(Level::Unknown, place, problem, advice));
    }
    match &found.text {
        Some(text) if includes(text) => {
            let problem = format!("{file} includes other files, which cannot be seen here");
            let advice = "write them into it";
            Some(Finding::new(Level::Unknown, place, problem, advice))
        }
        Some(_) => {
            let variables = substitutes(workload);
            let same = ConfigSource::Carried(found).read(variables.clone()).ok()?.0
                == ConfigSource::Here(path).read(variables).ok()?.0;
            let problem = format!("the manifest carries {file}, which differs from --config");
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

/// Returns the variables of the workload that a configuration may substitute.
fn substitutes(workload: &Workload) -> Variables {
    let all = workload.environment.values.iter();
    let others = all.filter(|(name, _)| !name.starts_with(OVERRIDES));
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Finds substituted variables whose values cannot be seen in the manifest.
fn hidden(path: Option<&Path>, workload: &Workload) -> Vec<Finding> {
    let environment = &workload.environment;
    let mut findings = Vec::new();
    for name in ConfigSource::of(path, workload).substituted() {
        let place = environment.hidden.get(&name).or(environment.hidden_source.as_ref());
        let Some(place) = place.filter(|_| !environment.values.contains_key(&name)) else {
            continue;
        };
        let problem =
            format!("the configuration substitutes {name}, and its value cannot be seen here");
        let advice = "write its value into the manifest";
        findings.push(Finding::new(Level::Unknown, place.clone(), problem, advice));
    }
    findings
}

/// Returns whether a text in HOCON may include other files.
fn includes(text: &str) -> bool {
    let starts = ["\"", "file(", "required(", "url(", "classpath(", "package("];
    text.split("include").skip(1).any(|rest| {
        let rest = rest.trim_start();
        starts.iter().any(|start| rest.starts_with(start))
    })
}

/// The source of a configuration.
#[derive(Clone, Copy)]
enum ConfigSource<'a> {
    /// The manifest.
    Carried(&'a ConfigFile),
    /// A file on this machine, or no file.
    Here(Option<&'a Path>),
}

impl<'a> ConfigSource<'a> {
    fn of(path: Option<&'a Path>, workload: &'a Workload) -> Self {
        match workload.configured.as_ref().filter(|found| found.text.is_some()) {
            Some(found) => Self::Carried(found),
            None => Self::Here(path),
        }
    }

    fn read(self, variables: Variables) -> Result<(Config, Plan), String> {
        let config = match self {
            Self::Here(path) => match file_of(path) {
                Some(file) => Config::read_with_vars(file, variables),
                None => Config::parse_with_vars("", Format::Toml, variables),
            },
            Self::Carried(ConfigFile { path, text, .. }) => {
                let text = text.as_deref().unwrap_or_default();
                let format = Format::of(Path::new(path));
                format.and_then(|format| Config::parse_with_vars(text, format, variables))
            }
        };
        let proved = config.and_then(|config| {
            tables::validate(&config)?;
            config.plan().map(|plan| (config, plan))
        });
        proved.map_err(|error| error_text(&error))
    }

    /// Returns the names of the environment variables that the configuration substitutes. If it
    /// cannot be parsed there are none, and reading it reports why.
    fn substituted(self) -> Vec<String> {
        let names = match self {
            Self::Here(path) => file_of(path).map(Config::variables_of_file),
            Self::Carried(ConfigFile { path, text, .. }) => {
                let text = text.as_deref().unwrap_or_default();
                let format = Format::of(Path::new(path));
                Some(format.and_then(|format| Config::variables_of(text, format)))
            }
        };
        names.and_then(Result::ok).unwrap_or_default()
    }
}

/// Returns the configuration file: the one at `path`, or the one that `ADIEU_CONFIG` names here.
pub(crate) fn file_of(path: Option<&Path>) -> Option<PathBuf> {
    let named = std::env::var_os(adieu::config::CONFIG_VAR).filter(|path| !path.is_empty());
    path.map(Path::to_owned).or_else(|| named.map(Into::into))
}

/// The beginning of variables that override keys.
const OVERRIDES: &str = "ADIEU__";

/// Returns the variables of this process that override keys.
pub(crate) fn overrides_here() -> Variables {
    all_here().into_iter().filter(|(name, _)| name.starts_with(OVERRIDES)).collect()
}

/// Returns the names of the variables of this process that change the configuration in this file.
pub(crate) fn applied_here(path: Option<&Path>) -> BTreeSet<String> {
    let substituted = ConfigSource::Here(path).substituted();
    let all = all_here().into_iter().map(|(name, _)| name);
    all.filter(|name| name.starts_with(OVERRIDES) || substituted.contains(name)).collect()
}

fn all_here() -> Variables {
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
