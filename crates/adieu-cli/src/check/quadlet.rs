//! Quadlets: containers of podman that systemd starts and stops.
//!
//! systemd stops them with `podman rm --force`, which kills after the container's own timeout. So
//! that one counts, and `TimeoutStopSec` only if it is shorter.

use std::time::Duration;

use super::ini::Ini;
use super::input::{Manifest, Source};
use super::place::{Place, Wrong};
use super::script;
use super::shell;
use super::stop_signal::StopSignal;
use super::systemd;
use super::workload::{Grace, Supervisor, Workload};

const SECTIONS: [&str; 3] = ["Container", "Kube", "Pod"];

pub(crate) fn is_one(file: &Ini) -> bool {
    SECTIONS.iter().any(|section| file.has(section))
}

pub(crate) fn read(mut file: Ini, source: &Source<'_>, into: &mut Manifest) -> Result<(), Wrong> {
    systemd::merge_drop_ins(&mut file, source)?;
    let Some(place) = file.place_of("Container") else {
        let place = SECTIONS.iter().find_map(|section| file.place_of(section));
        let problem = "what this quadlet runs is described in another file";
        let advice = "check that file: the manifest of a [Kube], the containers of a [Pod]";
        let place = place.unwrap_or_else(Place::start);
        return into.add(Workload::unknown("quadlet", source.name, place, problem, advice));
    };
    let section = "Container";
    let mut workload = Workload::new(Supervisor::Quadlet, "quadlet", source.name, place.clone());
    let number = |text: &str, place: &Place| {
        let problem = format!("must be a number of seconds such as 30, not {text}");
        let wrong = Wrong { place: place.clone(), problem };
        text.trim().parse().map(Duration::from_secs).map_err(|_| wrong)
    };
    let args = file.list(section, "PodmanArgs").into_iter();
    let args = args.flat_map(|one| {
        script::split(&one.value).into_iter().map(|word| (word, one.place.clone()))
    });
    let args: Vec<_> = args.collect();
    let option = |name: &str| {
        args.iter().enumerate().rev().find_map(|(at, (word, place))| {
            let value = match word.strip_prefix(name)? {
                "" => args.get(at + 1)?.0.as_str(),
                value => value.strip_prefix('=')?,
            };
            Some((value.to_owned(), place.clone()))
        })
    };
    let set =
        |key: &str| file.last(section, key).map(|found| (found.value.clone(), found.place.clone()));
    if let Some((value, place)) = set("StopTimeout").or_else(|| option("--stop-timeout")) {
        workload.grace = Grace::said(Some(number(&value, &place)?), place);
    }
    workload.cap = systemd::cap(&systemd::grace(&file)?);
    if let Some((text, place)) = set("StopSignal").or_else(|| option("--stop-signal")) {
        workload.signals.push(StopSignal { text, place, fix: "StopSignal=SIGTERM".into() });
    }
    let environment = systemd::environment(&file, section);
    let command = ["Entrypoint", "Exec"].into_iter().filter_map(|key| file.last(section, key));
    let command: Vec<_> = command.collect();
    if let Some(first) = command.first() {
        let words = command.iter().flat_map(|found| script::words(&found.value));
        let words: Vec<_> = words.collect();
        let front = shell::front(&words, &environment.values());
        workload.findings.extend(front.finding(first.place.clone()));
    }
    environment.apply(&mut workload);
    into.add(workload)
}
