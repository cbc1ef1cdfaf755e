//! The changes with which a workload fits.

use std::time::Duration;

use adieu::{Config, KillAfter, Phase};
use serde_json::{Map, Value, json};

use super::arithmetic::{Facts, Sums, whole_seconds};
use super::needs::Needs;
use super::place::{Finding, Fix, Level, Location, Place};
use super::supervisor::Supervisor;
use super::workload::{
    Format, GRACE_VAR, PRE_STOP_VAR, STOP_TIMEOUT, SetBy, StatedTimes, Workload,
};
use crate::duration::span;

/// The changes, each `None` if it is not needed. All of them together make it fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suggestion {
    /// In the manifest: how long the platform is to wait.
    pub(crate) grace: Option<Duration>,
    /// In the manifest: a preStop that sleeps for this long; zero for no preStop.
    pub(crate) pre_stop: Option<Duration>,
    /// In the environment.
    pub(crate) stated: Option<StatedTimes>,
    /// In the configuration.
    pub(crate) lame_duck: Option<Duration>,
    /// In the configuration, of the phase `before-service-unbind`.
    pub(crate) lame_duck_phase: Option<Duration>,
    /// In the configuration.
    pub(crate) kill_after: Option<Duration>,
    /// In the configuration of the platform: the key, and the longest grace period that it allows.
    pub(crate) cap: Option<(&'static str, Duration)>,
    /// In the manifest: the lines to write.
    pub(crate) lines: Vec<String>,
    /// In the manifest: the process is started itself, or with `exec`.
    pub(crate) exec: bool,
    /// The files other than the manifest in which lines must be changed, by line.
    files: Vec<(String, String)>,
    /// On the command line of the check, if it is true.
    pub(crate) say: Option<&'static str>,
    /// Whether the environment must state the grace period, whatever it is.
    must_state_grace: bool,
}

// === impl Suggestion ===

impl Suggestion {
    pub(crate) fn of(
        needs: &Needs,
        workload: &Workload,
        facts: Facts,
        findings: &[Finding],
    ) -> Self {
        let mut new = Self::default();
        let bad = findings.iter().filter(|found| found.level <= Level::Unknown);
        for finding in bad {
            match &finding.fix {
                // Only the user can state whether such a key has an effect.
                Fix::None | Fix::Key(_) => {}
                Fix::PreStop => new.pre_stop = Some(Duration::ZERO),
                Fix::Exec => new.exec = true,
                Fix::StateGrace => new.must_state_grace = true,
                Fix::Say(option) => new.say = Some(option),
                Fix::Line(line) => {
                    if let Location::Manifest(Place { file: Some(file), .. }) = &finding.place {
                        new.files.push((line.clone(), file.clone()));
                    }
                    if !new.lines.contains(line) {
                        new.lines.push(line.clone());
                    }
                }
            }
        }
        // Each may undo the other. A process with a shorter grace period shortens its lame duck, and a
        // longer lame duck takes more time. In the second round the lame duck is set, and stays.
        for _ in 0..2 {
            new.fix_routing(needs, workload, facts);
            new.fix_time(needs, workload, facts);
        }
        new.fix_default_timeout(needs, workload, facts);
        new
    }

    /// Sets the timeout of a unit that leaves it to the machine, if the machine's may be too short.
    fn fix_default_timeout(&mut self, needs: &Needs, workload: &Workload, facts: Facts) {
        let (_, changed) = self.apply(needs, workload);
        let sums = self.sums(needs, workload, facts);
        let times = needs.config.times();
        if changed.default_stop_timeout.is_some()
            && sums.exceeds_least_stop_timeout(&changed, &times)
        {
            let grace = sums.grace.unwrap_or(sums.enough).max(sums.enough);
            self.lines.push(format!("{STOP_TIMEOUT}{}s", grace.as_secs()));
        }
    }

    /// Lengthens the lame duck; where there is none, the platform has to wait.
    fn fix_routing(&mut self, needs: &Needs, workload: &Workload, facts: Facts) {
        let sums = self.sums(needs, workload, facts);
        if sums.has_routed() {
            return;
        }
        let missing = whole_seconds(sums.lag.saturating_sub(sums.pre_stop));
        let first = needs.plan.phase(Phase::BEFORE_SERVICE_UNBIND);
        if first.is_some_and(|phase| needs.takes(phase).is_some()) {
            self.lame_duck = Some(missing);
            if self.sums(needs, workload, facts).lame_duck < missing {
                // The configured timeout of the phase is too short for it.
                let room = missing.saturating_mul(10) / 9 + Duration::from_millis(500);
                self.lame_duck_phase = Some(whole_seconds(room));
            }
        } else if workload.supervisor.has_pre_stop() {
            self.pre_stop = Some(whole_seconds(sums.lag));
        }
    }

    /// Lengthens the grace period, and sets the variable that states it to the process.
    fn fix_time(&mut self, needs: &Needs, workload: &Workload, facts: Facts) {
        (self.grace, self.stated, self.kill_after, self.cap) = (None, None, None, None);
        let is_detected = needs.config.times().kill_after == KillAfter::Detect;
        // If the process may assume several grace periods, its environment must state one. The stated
        // grace period decides how much time it needs.
        let assumptions = workload.assumptions();
        let is_sure = matches!(assumptions.as_slice(), [Some(_)])
            || workload.asks_systemd() && !workload.has_unseen_variables;
        if is_detected && (!is_sure || self.must_state_grace) {
            let enough = self.sums(needs, workload, facts).enough.as_secs();
            self.stated = Some(StatedTimes { grace: Some(enough), pre_stop: None });
        }
        let sums = self.sums(needs, workload, facts);
        if sums.grace.is_some_and(|grace| grace < sums.enough) {
            let is_set = workload.grace.span.is_none_or(|said| said >= sums.enough);
            self.grace = Some(sums.enough).filter(|_| !is_set);
            self.cap = workload
                .cap
                .as_ref()
                .filter(|cap| cap.most < sums.enough)
                .and_then(|cap| Some((cap.key?, sums.enough)));
        }
        let sums = self.sums(needs, workload, facts);
        let given = sums.grace.unwrap_or(sums.enough);
        let whole = given.saturating_sub(sums.pre_stop);
        // A drain that uses all the time that there is must leave the sidecars their part.
        let kept = if sums.drain_is_open_ended { sums.sidecars } else { Duration::ZERO };
        let left = whole.saturating_sub(kept);
        let is_stated_wrong =
            sums.believed.is_some_and(|believed| believed != left && believed != whole);
        let must_be_stated = sums.cuts_itself
            || sums.overruns
            || self.stated.is_some()
            || (self.grace.is_some() || self.cap.is_some()) && is_stated_wrong;
        self.stated = None;
        if !must_be_stated {
            return;
        }
        if let KillAfter::After(_) = needs.config.times().kill_after {
            self.kill_after = Some(left);
        } else {
            let pre_stop = sums.pre_stop.as_secs();
            let pre_stop = (pre_stop > 0).then_some(pre_stop);
            self.stated =
                Some(StatedTimes { grace: Some(given.saturating_sub(kept).as_secs()), pre_stop });
        }
    }

    /// Returns the sums with all this changed.
    fn sums(&self, needs: &Needs, workload: &Workload, facts: Facts) -> Sums {
        let (needs, workload) = self.apply(needs, workload);
        Sums::of(&needs, &workload, facts)
    }

    pub(crate) fn apply(&self, needs: &Needs, workload: &Workload) -> (Needs, Workload) {
        let mut workload = workload.clone();
        if let Some(grace) = self.grace {
            workload.grace.span = Some(grace);
        }
        if let (Some((_, most)), Some(cap)) = (self.cap, &mut workload.cap) {
            (cap.most, cap.assumed) = (most, false);
        }
        let sets_timeout = self.lines.iter().any(|line| line.starts_with(STOP_TIMEOUT))
            || self.grace.is_some() && workload.supervisor == Supervisor::Systemd
            || self.cap.is_some();
        if sets_timeout {
            workload.default_stop_timeout = None;
        }
        if let Some(pre_stop) = self.pre_stop {
            workload.pre_stop = pre_stop;
        }
        if let Some(stated) = self.stated {
            workload.stated = stated;
            workload.has_unseen_variables = false;
        }
        let is_fixed = |fix: &Fix| match fix {
            Fix::None | Fix::Key(_) => false,
            Fix::PreStop => self.pre_stop.is_some(),
            Fix::Exec => self.exec,
            Fix::StateGrace => self.stated.is_some(),
            Fix::Say(option) => self.say == Some(*option),
            Fix::Line(line) => self.lines.contains(line),
        };
        workload.has_unseen_variables &= self.say.is_none();
        workload.findings.retain(|finding| !is_fixed(&finding.fix));
        workload.signals.retain(|signal| !self.lines.contains(&signal.fix));
        workload.extra_signals.retain(|signal| !self.lines.contains(&signal.fix));
        workload.other_stops.retain(|stop| {
            let is_set = |line: &String| stop.key.is_some_and(|key| line.starts_with(key));
            !self.lines.iter().any(is_set)
        });
        (self.apply_to_config(needs), workload)
    }

    fn apply_to_config(&self, needs: &Needs) -> Needs {
        if self.configured().next().is_none() {
            return needs.clone();
        }
        let mut config = Config::clone(&needs.config);
        if let Some(lame_duck) = self.lame_duck {
            config = config.lame_duck(lame_duck);
        }
        if let Some(timeout) = self.lame_duck_phase {
            config = config.phase_timeout(Phase::BEFORE_SERVICE_UNBIND, timeout);
        }
        if let Some(kill_after) = self.kill_after {
            config = config.kill_after(KillAfter::After(kill_after));
        }
        needs.with(config)
    }

    /// Returns the changes of the configuration, by their keys.
    fn configured(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let all = [
            ("lame-duck", self.lame_duck),
            ("phases.before-service-unbind.timeout", self.lame_duck_phase),
            ("kill-after", self.kill_after),
        ];
        all.into_iter().filter_map(|(key, time)| Some((key, time?)))
    }

    /// Returns the variables to set. A configuration that several workloads share cannot be changed
    /// for one of them, and a variable in the manifest would override it: then a variable is
    /// changed.
    fn variables(&self, workload: &Workload, is_shared: bool) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if let Some(StatedTimes { grace, pre_stop }) = self.stated {
            for (var, seconds) in [(GRACE_VAR, grace), (PRE_STOP_VAR, pre_stop)] {
                all.extend(seconds.map(|seconds| (var.to_owned(), seconds.to_string())));
            }
        }
        let own = self.configured().filter(|(key, _)| is_variable(key, workload, is_shared));
        all.extend(own.map(|(key, time)| (variable(key), span(time))));
        all
    }

    /// By the keys under which it is to be set.
    pub(crate) fn to_json(&self, workload: &Workload, is_shared: bool) -> Value {
        let Self { grace, pre_stop, cap, lines, exec, say, .. } = self;
        let mut all = Map::new();
        let mut put = |key: &str, value| all.insert(key.into(), value);
        if let Some(grace) = grace {
            let value: Value = match workload.format {
                Format::NomadApi => grace.as_secs().saturating_mul(1_000_000_000).into(),
                Format::Usual | Format::CloudFormation if workload.supervisor.is_in_seconds() => {
                    grace.as_secs().into()
                }
                Format::Usual | Format::CloudFormation => span(*grace).into(),
            };
            put(workload.grace_key(), value);
        }
        if let Some((key, most)) = cap {
            put(key, span(*most).into());
        }
        if let Some(pre_stop) = pre_stop {
            put(
                "preStop",
                match pre_stop.as_secs() {
                    0 => Value::Null,
                    seconds => json!({ "sleep": { "seconds": seconds } }),
                },
            );
        }
        let variables = self.variables(workload, is_shared);
        if !variables.is_empty() {
            let variables = variables.into_iter().map(|(name, value)| (name, value.into()));
            let key = match workload.set_by {
                SetBy::Lines | SetBy::Flags => "env",
                SetBy::Command => "env_in_command",
            };
            put(key, Value::Object(variables.collect()));
        }
        for (key, time) in self.configured() {
            if !is_variable(key, workload, is_shared) {
                put(key, span(time).into());
            }
        }
        if !lines.is_empty() {
            put("lines", self.written(workload).into());
        }
        let files = self.files_of(workload, is_shared);
        if !files.is_empty() {
            let files = files.into_iter().map(|(key, file)| (key, file.into()));
            put("files", Value::Object(files.collect()));
        }
        if *exec {
            put("exec", true.into());
        }
        if let Some(say) = say {
            put("say", (*say).into());
        }
        Value::Object(all)
    }

    /// The same in the words of each file.
    pub(crate) fn lines(&self, workload: &Workload, is_shared: bool) -> Vec<String> {
        let Self { grace, pre_stop, cap, exec, say, .. } = self;
        let files = self.files_of(workload, is_shared);
        // A line in another file would override one in the manifest.
        let within = |key: &str| match files.iter().find(|(of, _)| of == key) {
            Some((_, file)) => format!(" in {file}"),
            None => String::new(),
        };
        let mut lines = Vec::new();
        let grace = grace.map(|grace| workload.grace_line(grace.as_secs()));
        lines.extend(grace.map(|line| line + &within(workload.grace_key())));
        lines.extend(cap.map(|(key, most)| format!("{key} of {} or more", span(most))));
        if let Some(pre_stop) = pre_stop {
            lines.push(match pre_stop.as_secs() {
                0 => "no preStop".into(),
                seconds => format!("preStop: {{sleep: {{seconds: {seconds}}}}}"),
            });
        }
        for (name, value) in self.variables(workload, is_shared) {
            lines.push(match workload.set_by {
                SetBy::Flags => format!("-e {name}={value} in front of the image"),
                SetBy::Command => format!("env {name}={value} in front of the process"),
                SetBy::Lines if !within(&name).is_empty() => {
                    format!("{name}={value}{}", within(&name))
                }
                SetBy::Lines => format!("{name}={value} in the environment"),
            });
        }
        lines.extend(self.written(workload).into_iter().map(|line| {
            let file = within(&line);
            line + &file
        }));
        if *exec {
            lines.push("the process itself as the command".into());
        }
        for (key, time) in self.configured() {
            if !is_variable(key, workload, is_shared) {
                lines.push(format!("{key} = \"{}\" in the configuration", span(time)));
            }
        }
        lines.extend(
            say.map(|say| format!("{say} on the command line of the check, if that is so")),
        );
        lines
    }
}

impl Suggestion {
    /// Returns the lines to write, with the grace period that the workload then has.
    fn written(&self, workload: &Workload) -> Vec<String> {
        let grace = self.grace.or(workload.allowed()).unwrap_or_default();
        let seconds = format!("--time {}", whole_seconds(grace).as_secs());
        self.lines.iter().map(|line| line.replace("--time SECONDS", &seconds)).collect()
    }

    /// Returns the files, other than the manifest, in which keys must be changed, by key.
    fn files_of(&self, workload: &Workload, is_shared: bool) -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut add = |key: &str, place: Option<&Place>| {
            let file = place.and_then(|place| place.file.clone());
            files.extend(file.map(|file| (key.to_owned(), file)));
        };
        if self.grace.is_some() {
            add(workload.grace_key(), Some(&workload.grace.place));
        }
        for (name, _) in self.variables(workload, is_shared) {
            let own = workload.overrides.iter().find(|found| found.name == name);
            let stated = workload.stated_at.as_ref().filter(|_| name == GRACE_VAR);
            add(&name, own.map(|found| &found.place).or(stated));
        }
        let written = self.written(workload);
        for (line, file) in &self.files {
            let at = self.lines.iter().position(|found| found == line);
            files.extend(at.map(|at| (written[at].clone(), file.clone())));
        }
        files
    }
}

/// Returns the variable that overrides a key of the configuration.
fn variable(key: &str) -> String {
    format!("ADIEU__{}", key.to_uppercase().replace('.', "__").replace('-', "_"))
}

fn is_variable(key: &str, workload: &Workload, is_shared: bool) -> bool {
    let variable = variable(key);
    is_shared || workload.overrides.iter().any(|found| found.name == variable)
}

#[cfg(test)]
mod tests;
