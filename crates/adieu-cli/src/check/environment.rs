//! The environment of the process according to its manifest: its variables, and the files that are
//! mounted for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::env_file::{self, Dialect, Line};
use super::expansion::Expansion;
use super::place::{Finding, Fix, Level, Place};
use super::script::Variables;
use super::signs::{self, Sign, Signs};
use super::workload::{
    ConfigFile, GRACE_VAR, Override, PRE_STOP_VAR, SetBy, StatedTimes, VisibleVariables, Workload,
};
use super::{files, paths};

/// Variables that override keys of the configuration.
const OVERRIDES: &str = "ADIEU__";

/// The option that vouches for variables that cannot be seen.
pub(crate) const NO_HIDDEN: &str = "--no-hidden-env";

/// The variables, of which the last value counts.
#[derive(Default)]
pub(crate) struct Environment {
    /// `None` if it is set to a value that cannot be seen.
    variables: BTreeMap<String, (Option<String>, Place)>,
    /// The variables that are removed before the process starts, also those of the platform.
    removed: BTreeSet<String>,
    /// Whether all variables of the platform are removed.
    is_emptied: bool,
    /// The variables that the command sets or removes, whatever the manifest sets.
    of_command: BTreeSet<String>,
    /// The sources of variables that cannot be seen, and why.
    unseen: Vec<(Place, &'static str)>,
    /// The files that the manifest carries, by their paths where the process runs; no text if that
    /// cannot be seen.
    files: Vec<(String, Option<String>, Place)>,
    /// The folders of this machine that the process sees, by their paths where it runs.
    folders: Vec<(String, PathBuf, Place)>,
    /// The folder in which the process starts, if the manifest sets it.
    working_folder: Option<String>,
    /// The values that were copied from elsewhere in the manifest.
    expansion: Expansion,
}

impl Environment {
    pub(crate) fn set(&mut self, name: &str, value: &str, place: Place) {
        self.insert(name, Some(value.into()), place);
    }

    fn insert(&mut self, name: &str, value: Option<String>, place: Place) {
        self.removed.remove(name.trim());
        self.variables.insert(name.trim().into(), (value, place));
    }

    /// Sets a variable as the command does that starts the process; no value if that cannot be seen.
    pub(crate) fn set_by_command(&mut self, name: &str, value: Option<&str>, place: Place) {
        self.of_command.insert(name.trim().into());
        self.insert(name, value.map(Into::into), place);
    }

    /// Removes a variable for the process, also one that the platform sets.
    pub(crate) fn unset(&mut self, name: &str) {
        self.of_command.insert(name.into());
        self.removed.insert(name.into());
        self.variables.remove(name);
    }

    /// Removes a variable as a command does that may not run.
    pub(crate) fn unset_perhaps(&mut self, name: &str, place: Place) {
        let is_sign = name == signs::OF_KUBERNETES || signs::OF_SYSTEMD.contains(&name);
        if is_sign || self.has(name) {
            self.set_by_command(name, None, place);
        }
    }

    /// Sets a value that is defined elsewhere, and may be used any number of times. If there are too many
    /// of these, the value counts as one that cannot be seen.
    pub(crate) fn set_copied(&mut self, name: &str, value: Option<&str>, place: Place) {
        match value.filter(|value| self.expansion.admits(name) && self.expansion.admits(value)) {
            Some(value) => self.set(name, value, place),
            None => self.set_unseen(name, place),
        }
    }

    /// Returns the value of a variable to substitute it, unless too much was substituted before.
    pub(crate) fn substitute(&mut self, name: &str) -> Option<String> {
        let value = self.variables.get(name)?.0.as_ref()?;
        self.expansion.admits(value).then(|| value.clone())
    }

    /// Sets `NAME=value`. The value of a name alone comes from another environment.
    pub(crate) fn set_pair(&mut self, pair: &str, place: Place) {
        match pair.split_once('=') {
            Some((name, value)) => self.set(name, value, place),
            None => self.set_unseen(pair, place),
        }
    }

    /// Sets a value in which `mark` stands for something that is filled in later, and `mark` twice
    /// for itself.
    pub(crate) fn set_marked(&mut self, name: &str, value: &str, mark: char, place: Place) {
        let twice = format!("{mark}{mark}");
        match value.replace(&twice, "").contains(mark) {
            true => self.set_unseen(name, place),
            false => self.set(name, &value.replace(&twice, &mark.to_string()), place),
        }
    }

    /// The variable is set, but its value is somewhere else.
    pub(crate) fn set_unseen(&mut self, name: &str, place: Place) {
        self.insert(name, None, place);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// Variables are set there, and it cannot be seen which.
    pub(crate) fn add_unseen(&mut self, place: Place) {
        self.unseen.push((place, "the variables that this sets cannot be seen here"));
    }

    /// Forgets the variables, as an empty assignment of systemd does.
    pub(crate) fn clear(&mut self) {
        self.variables.clear();
    }

    /// Forgets all that is set, seen or not, as `env -i` does.
    pub(crate) fn forget(&mut self) {
        self.variables.clear();
        self.unseen.clear();
        self.is_emptied = true;
    }

    /// A file that the manifest puts where the process can read it.
    pub(crate) fn mount(&mut self, path: &str, text: Option<String>, place: Place) {
        self.files.push((paths::normal(path).path, text, place));
    }

    /// The same for a file that may be hidden behind another one. A hidden file is found only if there is
    /// no other at its path, and then it cannot be seen.
    pub(crate) fn mount_below(
        &mut self,
        path: &str,
        text: Option<String>,
        place: Place,
        is_hidden: bool,
    ) {
        let file = (paths::normal(path).path, text, place);
        match is_hidden {
            // The last one counts.
            true => self.files.insert(0, file),
            false => self.files.push(file),
        }
    }

    /// A folder of this machine that the manifest puts where the process can read it.
    pub(crate) fn mount_folder(&mut self, path: &str, folder: PathBuf, place: Place) {
        self.folders.push((paths::normal(path).path, folder, place));
    }

    /// The folder in which the process starts.
    pub(crate) fn set_working_folder(&mut self, path: &str) {
        self.working_folder = Some(path.into()).filter(|path: &String| path.starts_with('/'));
    }

    /// Adds the lines of an env file, whose last value counts.
    pub(crate) fn add_file(&mut self, text: &str, file: &str, dialect: Dialect) {
        let place = |at, name: &str| Place { file: Some(file.into()), ..Place::at(at, name) };
        self.add_read(text, dialect, &place);
    }

    /// The same for lines that stand in the manifest itself.
    pub(crate) fn add_lines(&mut self, text: &str, place: &Place, dialect: Dialect) {
        self.add_read(text, dialect, &|_, _| place.clone());
    }

    fn add_read(&mut self, text: &str, dialect: Dialect, place: &dyn Fn(usize, &str) -> Place) {
        for (at, line) in env_file::read(text, dialect) {
            let place = |name: &str| place(at, name);
            match line {
                Line::Set(name, Some(value)) => self.set(&name, &value, place(&name)),
                Line::Set(name, None) => self.set_unseen(&name, place(&name)),
                Line::Odd => {
                    let problem = "what this file sets from here on is not understood";
                    self.unseen.push((place(""), problem));
                }
            }
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// Returns whether there may be variables that cannot be seen.
    pub(crate) fn has_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Returns whether a variable is set that only a process with this library reads.
    pub(crate) fn is_of_adieu(&self) -> bool {
        self.variables
            .keys()
            .any(|name| name.starts_with(OVERRIDES) || name == adieu::config::CONFIG_VAR)
    }

    /// Returns the variables whose values are known, for scripts.
    pub(crate) fn values(&self) -> Variables {
        let known = self.variables.iter();
        known.filter_map(|(name, (value, _))| Some((name.clone(), value.clone()?))).collect()
    }

    /// Stores in the workload the settings that the process reads from its environment.
    pub(crate) fn apply(self, workload: &mut Workload) {
        workload.configured = self.configuration();
        workload.environment = self.visible();
        let [of_unit, of_notify] = signs::OF_SYSTEMD;
        let systemd = match (self.sign(of_unit), self.sign(of_notify)) {
            (Sign::Present, _) | (_, Sign::Present) => Sign::Present,
            // Whether the unit notifies does not matter otherwise.
            (Sign::Absent, Sign::Usual) => Sign::Unseen,
            (Sign::Usual, Sign::Absent) => Sign::Usual,
            (of_unit, Sign::Usual | Sign::Absent) => of_unit,
            (_, Sign::Unseen) => Sign::Unseen,
        };
        let kubernetes = self.sign(signs::OF_KUBERNETES);
        workload.signs = Signs { kubernetes, systemd, ..workload.signs };
        if self.is_emptied || self.of_command.iter().any(|name| is_read(name)) {
            workload.set_by = SetBy::Command;
        }
        for (name, (value, place)) in self.variables {
            if !is_read(&name) {
                continue;
            }
            match value {
                Some(value) if name.starts_with(OVERRIDES) => {
                    workload.overrides.push(Override { name, value, place });
                }
                Some(value) => {
                    if workload.stated.read_variable(&name, &value) {
                        workload.stated_at = Some(place);
                    }
                }
                None => {
                    let problem = format!(
                        "{name} decides how the process stops, and its value cannot be seen here"
                    );
                    let advice = "write its value into the manifest";
                    let is_told = !name.starts_with(OVERRIDES);
                    workload.has_unseen_variables |= name == GRACE_VAR;
                    let fix = if is_told { Fix::StateGrace } else { Fix::None };
                    let finding = Finding::new(Level::Unknown, place, problem, advice);
                    workload.findings.push(finding.fixed_by(fix));
                }
            }
        }
        if let Some((place, problem)) = self.unseen.into_iter().next() {
            let problem = format!("{problem}: it may set {GRACE_VAR} or {OVERRIDES}…");
            let advice = format!(
                "write those into the manifest, and pass {NO_HIDDEN} if this sets none of them"
            );
            let finding = Finding::new(Level::Unknown, place, problem, advice);
            workload.findings.push(finding.fixed_by(Fix::Say(NO_HIDDEN)));
            workload.has_unseen_variables |= workload.stated == StatedTimes::default();
        }
    }

    /// Returns whether the process finds a variable by which it recognises its platform. An empty one
    /// does not count.
    fn sign(&self, name: &str) -> Sign {
        match self.variables.get(name) {
            Some((Some(value), _)) if value.is_empty() => Sign::Absent,
            Some((Some(_), _)) => Sign::Present,
            Some((None, _)) => Sign::Unseen,
            None if self.is_emptied || self.removed.contains(name) => Sign::Absent,
            None => Sign::Usual,
        }
    }

    /// Returns the variables by whether their values can be seen.
    fn visible(&self) -> VisibleVariables {
        let hidden = self.variables.iter().filter(|(_, (value, _))| value.is_none());
        VisibleVariables {
            values: self.values().into_iter().collect(),
            hidden: hidden.map(|(name, (_, place))| (name.clone(), place.clone())).collect(),
            hidden_source: self.unseen.first().map(|(place, _)| place.clone()),
        }
    }

    /// Returns the file that the process reads its configuration from, if the manifest names one.
    fn configuration(&self) -> Option<ConfigFile> {
        let (path, place) = self.variables.get(adieu::config::CONFIG_VAR)?;
        let place = place.clone();
        let Some(path) = path.clone() else {
            let path = format!("the value of {}", adieu::config::CONFIG_VAR);
            return Some(ConfigFile { path, text: None, doubt: None, place });
        };
        if path.is_empty() {
            return None;
        }
        if path.contains("://") {
            let doubt = Some("this is an address, and not a path");
            return Some(ConfigFile { path, text: None, doubt, place });
        }
        let folder = self.working_folder.as_deref().unwrap_or_default();
        let named = paths::normal(&paths::joined(folder, &path));
        let found = self.mounted(&named.path);
        let doubt = match found {
            Some(_) if !named.path.starts_with('/') && !self.is_mounted(&named.path) => {
                Some("it depends on the working directory, which cannot be seen here")
            }
            Some(_) if named.has_parent => Some("where .. leads depends on links in the image"),
            _ => None,
        };
        let (text, place) = found.unwrap_or((None, place));
        Some(ConfigFile { path, text, doubt, place })
    }

    fn is_mounted(&self, path: &str) -> bool {
        self.files.iter().any(|(mounted, ..)| mounted == path)
    }

    /// Returns the content and the place of the mounted file at a path. If the path is relative, any
    /// file is one that ends like it.
    fn mounted(&self, path: &str) -> Option<(Option<String>, Place)> {
        let is_absolute = path.starts_with('/');
        let is_it = |mounted: &str| {
            mounted == path || !is_absolute && mounted.ends_with(&format!("/{path}"))
        };
        let file = self.files.iter().rev().find(|(mounted, ..)| is_it(mounted));
        if let Some((_, text, place)) = file {
            return Some((text.clone(), place.clone()));
        }
        let below = |(mounted, folder, place): &(String, PathBuf, Place)| {
            let rest = match is_absolute {
                true => path.strip_prefix(mounted.as_str())?.strip_prefix('/')?,
                false => path,
            };
            let text = String::from_utf8(files::read(&folder.join(rest)).ok()?).ok()?;
            Some((mounted.len(), Some(text), place.clone()))
        };
        // The innermost folder is the one that the process sees.
        let innermost = self.folders.iter().filter_map(below).max_by_key(|(length, ..)| *length);
        innermost.map(|(_, text, place)| (text, place))
    }
}

/// Returns whether the process reads a variable that decides how it stops.
fn is_read(name: &str) -> bool {
    name == GRACE_VAR || name == PRE_STOP_VAR || name.starts_with(OVERRIDES)
}
