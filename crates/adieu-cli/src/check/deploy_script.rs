//! Scripts that start containers with `docker run` or `podman run`, and stop the old ones.

use super::container_stop::{self, Does};
use super::input::{Manifest, Source};
use super::place::{Finding, Level, Place, Wrong};
use super::programs::{base, is_harmless, without_sudo};
use super::run_line::{self, PROGRAMS};
use super::script::{self, Script, Variables, Word};
use super::workload::Workload;

/// Programs that a deployment uses, and that stop nothing.
const TOOLS: [&str; 9] = ["curl", "wget", "git", "aws", "gcloud", "az", "read", "nc", "openssl"];

/// Whether a text is a script that starts containers.
pub(crate) fn is_one(text: &str) -> bool {
    let lines =
        || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let starts = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| ["sudo", "exec"].contains(word));
        let program = words.next().and_then(|first| first.rsplit('/').next()).unwrap_or_default();
        let verb = words.find(|word| !word.starts_with('-'));
        PROGRAMS.contains(&program) && matches!(verb, Some("run" | "create" | "container"))
    };
    let is_script = text.starts_with("#!") || lines().next().is_some_and(starts);
    is_script && lines().any(starts)
}

pub(crate) fn read(source: &Source<'_>, into: &mut Manifest) -> Result<(), Wrong> {
    let Script::Commands(commands) = script::read(source.text, &Variables::new(), &[]) else {
        let problem =
            "this script does more than start containers: what it runs cannot be seen here";
        let advice = "give the docker run line alone";
        return into.add(Workload::unknown("script", source.name, Place::start(), problem, advice));
    };
    let (mut workloads, mut stops, mut unseen) = (Vec::new(), Vec::new(), None);
    for command in &commands {
        let place = Place::at(command.line, "");
        let words = in_front(&command.words);
        if let Some(workload) = run_line::of_words(words, &Variables::new(), &place, source)? {
            workloads.push(workload);
            continue;
        }
        match container_stop::of(words) {
            Some(Does::Nothing) => {}
            Some(Does::Stops(stop)) => stops.push((stop, place)),
            None if words.is_empty() || leaves_alone(words) => {}
            Some(Does::Unseen) | None => {
                let name = words.first().map(base).unwrap_or_default().to_owned();
                unseen = unseen.or(Some((name, place)));
            }
        }
    }
    for mut workload in workloads {
        let fix = format!("docker stop --time SECONDS {} in its place", workload.name);
        let own = stops.iter().filter(|(stop, _)| stop.is_for(&workload.name)).cloned();
        container_stop::apply(&own.collect::<Vec<_>>(), &fix, &mut workload);
        if let Some((name, place)) = &unseen {
            let problem = format!("what {name} does to the container cannot be seen here");
            let advice = "give the docker run line alone";
            workload.findings.push(Finding::new(Level::Unknown, place.clone(), problem, advice));
        }
        into.add(workload)?;
    }
    Ok(())
}

/// The command itself, after `sudo` and `exec`.
fn in_front(words: &[Word]) -> &[Word] {
    let words = match words {
        [exec, rest @ ..] if exec.text == "exec" => rest,
        words => words,
    };
    without_sudo(words)
}

fn leaves_alone(words: &[Word]) -> bool {
    let Some(first) = words.first().filter(|first| first.is_known) else { return false };
    is_harmless(base(first)) || TOOLS.contains(&base(first))
}
