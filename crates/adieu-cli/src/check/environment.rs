//! What a manifest says about the environment of the process.

use std::collections::BTreeMap;

use super::place::{Finding, Fix, Level, Place};
use super::script::Variables;
use super::workload::{GRACE_VAR, Override, PRE_STOP_VAR, Told, Workload};

/// Variables that override keys of the configuration.
const OVERRIDES: &str = "ADIEU__";

/// The variables, of which the last value counts.
#[derive(Default)]
pub(crate) struct Environment {
    /// No value if it is set, but what to cannot be seen.
    variables: BTreeMap<String, (Option<String>, Place)>,
    /// Where variables come from that cannot be seen at all.
    unseen: Vec<Place>,
}

impl Environment {
    pub(crate) fn set(&mut self, name: &str, value: &str, place: Place) {
        self.variables.insert(name.trim().into(), (Some(value.into()), place));
    }

    /// Takes `NAME=value`. A name alone is passed on from somewhere else.
    pub(crate) fn set_pair(&mut self, pair: &str, place: Place) {
        match pair.split_once('=') {
            Some((name, value)) => self.set(name, value, place),
            None => self.set_unseen(pair, place),
        }
    }

    /// Takes a value in which `mark` stands for something that is filled in later, and `mark` twice
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
        self.variables.insert(name.trim().into(), (None, place));
    }

    /// Variables are set there, and it cannot be seen which.
    pub(crate) fn add_unseen(&mut self, place: Place) {
        self.unseen.push(place);
    }

    /// Forgets what has been set, as an empty assignment of systemd does.
    pub(crate) fn clear(&mut self) {
        self.variables.clear();
    }

    /// Takes the lines of an env file, unless they are set already.
    pub(crate) fn add_file(&mut self, text: &str, file: &str) {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            let line = line.strip_prefix("export ").unwrap_or(line);
            let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#'))
            else {
                continue;
            };
            let value = value.trim();
            let quotes = ['"', '\''].into_iter();
            let unquoted = quotes
                .filter_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
                .next()
                .unwrap_or(value);
            let place = Place { file: Some(file.into()), ..Place::at(at + 1, name.trim()) };
            self.set(name, unquoted, place);
        }
    }

    /// Those whose values are known, for scripts.
    pub(crate) fn values(&self) -> Variables {
        let known = self.variables.iter();
        known.filter_map(|(name, (value, _))| Some((name.clone(), value.clone()?))).collect()
    }

    /// Tells the workload what the process learns from this.
    pub(crate) fn apply(self, workload: &mut Workload) {
        for (name, (value, place)) in self.variables {
            let matters = name == GRACE_VAR || name == PRE_STOP_VAR || name.starts_with(OVERRIDES);
            if !matters {
                continue;
            }
            match value {
                Some(value) if name.starts_with(OVERRIDES) => {
                    workload.overrides.push(Override { name, value, place });
                }
                Some(value) => {
                    if workload.told.hear(&name, &value) {
                        workload.told_at = Some(place);
                    }
                }
                None => {
                    let problem = format!(
                        "{name} decides how the process stops, and its value cannot be seen here"
                    );
                    let advice = "write its value into the manifest";
                    let is_told = !name.starts_with(OVERRIDES);
                    workload.has_unseen_variables |= name == GRACE_VAR;
                    let fix = if is_told { Fix::Told } else { Fix::None };
                    let finding = Finding::new(Level::Unknown, place, problem, advice);
                    workload.findings.push(finding.fixed_by(fix));
                }
            }
        }
        if let Some(place) = self.unseen.into_iter().next() {
            let problem = format!(
                "what this sets cannot be seen here: it may set {GRACE_VAR} or {OVERRIDES}…"
            );
            let advice = "write those two kinds of variables into the manifest";
            workload.findings.push(Finding::new(Level::Note, place, problem, advice));
            workload.has_unseen_variables |= workload.told == Told::default();
        }
    }
}
