//! Scripts that start containers with `docker run` or `podman run`, and stop the old ones.

use super::container_stop::{self, StopEffect};
use super::input::{Manifest, Source};
use super::place::{Finding, InputError, Level, Place};
use super::predecessors;
use super::programs::{self, base, is_harmless};
use super::run_line::{self, PROGRAMS};
use super::script::{self, Script, Variables, Word};
use super::workload::Workload;

/// Programs that a deployment uses, and that stop nothing.
const TOOLS: [&str; 9] = ["curl", "wget", "git", "aws", "gcloud", "az", "read", "nc", "openssl"];

/// Returns whether a text is a script that starts containers.
pub(crate) fn is_one(text: &str) -> bool {
    if !PROGRAMS.iter().any(|program| text.contains(program)) {
        return false;
    }
    let commands: Vec<Vec<Word>> = match script::read(text, &Variables::new(), &[]) {
        Script::Commands(commands) => commands.into_iter().map(|found| found.words).collect(),
        // Its lines show whether it is a script, but not which of its commands run.
        Script::Complex => {
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            lines.filter(|line| !line.is_empty()).map(script::words).collect()
        }
    };
    let starts = |words: &[Word]| {
        let words = programs::without_wrappers(script::after_assignments(words));
        run_line::command(words).is_some_and(|found| ["run", "create"].contains(&found.verb))
    };
    let first =
        commands.first().map(|words| programs::without_wrappers(script::after_assignments(words)));
    let begins = first.is_some_and(|words| match words.first() {
        Some(first) => PROGRAMS.contains(&base(first)) || is_harmless(base(first)),
        None => true,
    });
    (text.starts_with("#!") || begins) && commands.iter().any(|words| starts(words))
}

pub(crate) fn read(source: &Source<'_>, into: &mut Manifest) -> Result<(), InputError> {
    let Script::Commands(commands) = script::read(source.text, &Variables::new(), &[]) else {
        let problem =
            "this script has loops, conditions or substitutions: its commands cannot be seen here";
        let advice = "give the docker run line alone";
        return into.add(Workload::unknown("script", source.name, Place::start(), problem, advice));
    };
    let (mut workloads, mut stops, mut unseen) = (Vec::new(), Vec::new(), None);
    for (at, command) in commands.iter().enumerate() {
        // A loop repeats its commands.
        if commands[..at].contains(command) {
            continue;
        }
        let place = Place::at(command.line, "");
        let words = programs::without_wrappers(&command.words);
        if let Some(workload) = run_line::of_words(words, &Variables::new(), &place, source)? {
            workloads.push(workload);
            continue;
        }
        match container_stop::of(words) {
            Some(StopEffect::Nothing) => {}
            Some(StopEffect::Stops(stop)) => stops.push((stop, place)),
            None if words.is_empty() || leaves_alone(words) => {}
            Some(StopEffect::Unseen) | None => {
                let name = words.first().map(base).unwrap_or_default().to_owned();
                unseen = unseen.or(Some((name, place)));
            }
        }
    }
    let run: Vec<_> = workloads.iter().map(|workload: &Workload| workload.name.clone()).collect();
    for mut workload in workloads {
        let name = Some(workload.name.as_str()).filter(|name| !name.is_empty());
        let name = name.unwrap_or("and the name of the container");
        let fix = format!("docker stop --time SECONDS {name} in its place");
        let own = stops.iter().filter(|(stop, _)| stop.is_for(&workload.name)).cloned();
        container_stop::apply(&own.collect::<Vec<_>>(), &fix, false, &mut workload);
        let is_before = |name: &str| {
            let is_run = run.iter().any(|run| run == name);
            !is_run && predecessors::is_one(name, &workload.name)
        };
        let replaced = stops.iter().find(|(stop, _)| stop.is_hasty_for(&is_before));
        if let Some((_, place)) = replaced {
            let problem = "may stop the predecessor of this container undrained";
            let advice = "use docker stop without a time limit, and docker rm without -f after it";
            workload.findings.push(Finding::new(Level::Unknown, place.clone(), problem, advice));
        }
        if let Some((name, place)) = &unseen {
            let problem = format!("the effect of {name} on the container cannot be seen here");
            let advice = "give the docker run line alone";
            workload.findings.push(Finding::new(Level::Unknown, place.clone(), problem, advice));
        }
        into.add(workload)?;
    }
    Ok(())
}

fn leaves_alone(words: &[Word]) -> bool {
    let Some((first, rest)) = words.split_first().filter(|(first, _)| first.is_known) else {
        return false;
    };
    match base(first) {
        // It prints where a program is; with other arguments it runs one.
        "command" => {
            rest.first().is_some_and(|option| ["-v", "-V"].contains(&option.text.as_str()))
        }
        name => is_harmless(name) || TOOLS.contains(&name),
    }
}
