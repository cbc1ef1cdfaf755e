//! Describes a whole shutdown in one line, and plays it as a timeline.
//!
//! A scenario is a list of entries, separated by `;`. An entry is a phase with one task of the same
//! name, an event at a time, or a setting:
//!
//! ```text
//! NAME DOES [timeout TIME] [own TIME] [after NAME, NAME] [before NAME] [fatal] [disabled]
//! @TIME SIGTERM | @TIME SIGINT | @TIME shorten TIME
//! kill-after TIME | reserve TIME | sequential
//! ```
//!
//! `DOES` is the duration of the task, or one of the [`faults`]: `hangs`, `listens`, `idles`, `fails`,
//! `panics`, `blocks`. `timeout` is that of the phase, `own` that of the task. A `fatal` phase does not
//! recover. The name of a built-in phase refers to that phase.

use std::time::Duration;

use adieu_core::{
    Config, KillAfter, Order, Outcome, Phase, PhaseSpec, Reason, Report, Shutdown, Signal, TaskCx,
    TaskSpec,
};

use crate::faults;
use crate::timeline::Timeline;

/// Plays a scenario, and returns its timeline.
///
/// The last line contains the outcome of the shutdown, and each task that did not finish.
///
/// # Panics
///
/// If the scenario is invalid.
pub async fn play(scenario: &str) -> String {
    let (timeline, report) = play_to_report(scenario).await;
    let mut last = format!("shutdown over: {}", report.outcome);
    for task in report.phases.iter().flat_map(|phase| &phase.tasks) {
        if task.outcome != Outcome::Finished {
            last.push_str(&format!("; {} {}", task.name, task.outcome));
        }
    }
    timeline.note(last);
    timeline.to_string()
}

/// Plays a scenario, and returns the timeline and the report.
///
/// # Panics
///
/// If the scenario is invalid.
pub async fn play_to_report(scenario: &str) -> (Timeline, Report) {
    let entries: Vec<Entry> = scenario
        .split(';')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(Entry::parse)
        .collect();
    let mut config = Config::for_tests();
    for entry in &entries {
        config = match entry {
            Entry::KillAfter(after) => config.kill_after(KillAfter::After(*after)),
            Entry::Reserve(reserve) => config.reserve(*reserve),
            Entry::Sequential => config.order(Order::Sequential),
            Entry::Phase(_) | Entry::At(..) => config,
        };
    }
    let shutdown = Shutdown::configured(config).expect("a valid configuration");
    let timeline = Timeline::new();
    let mut events = Vec::new();
    for entry in entries {
        match entry {
            Entry::Phase(phase) => phase.add_to(&shutdown, &timeline),
            Entry::At(at, event) => events.push((at, event)),
            Entry::KillAfter(_) | Entry::Reserve(_) | Entry::Sequential => {}
        }
    }
    events.sort_by_key(|(at, _)| *at);

    let began = tokio::time::Instant::now();
    let completed = if events.first().is_some_and(|(at, _)| at.is_zero()) {
        shutdown.completed()
    } else {
        shutdown.run(Reason::Unknown)
    };
    let play = async {
        for (at, event) in events {
            tokio::time::sleep_until(began + at).await;
            event.apply(&shutdown, &timeline);
        }
        std::future::pending().await
    };
    let report = tokio::select! {
        report = completed => report.expect("a running runtime"),
        never = play => never,
    };
    (timeline, (*report).clone())
}

enum Entry {
    Phase(PhaseEntry),
    At(Duration, Event),
    KillAfter(Duration),
    Reserve(Duration),
    Sequential,
}

struct PhaseEntry {
    name: String,
    behaviour: Behaviour,
    spec: PhaseSpec,
    timeout: Option<Duration>,
    own: Option<Duration>,
}

#[derive(Clone, Copy)]
enum Behaviour {
    Take(Duration),
    Hang,
    Listen,
    Idle,
    Fail,
    Panic,
    Block,
}

enum Event {
    Signal(Signal),
    Shorten(Duration),
}

// === impl Entry ===

impl Entry {
    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["kill-after", after] => Self::KillAfter(time(after)),
            ["reserve", reserve] => Self::Reserve(time(reserve)),
            ["sequential"] => Self::Sequential,
            [at, ref event @ ..] if at.starts_with('@') => {
                Self::At(time(&at[1..]), Event::parse(event))
            }
            [name, behaviour, ref rest @ ..] => {
                Self::Phase(PhaseEntry::parse(name, behaviour, rest))
            }
            _ => panic!("not an entry of a scenario: {text}"),
        }
    }
}

// === impl Event ===

impl Event {
    fn parse(words: &[&str]) -> Self {
        match words {
            ["SIGTERM"] => Self::Signal(Signal::TERM),
            ["SIGINT"] => Self::Signal(Signal::INT),
            ["shorten", left] => Self::Shorten(time(left)),
            _ => panic!("not an event of a scenario: {words:?}"),
        }
    }

    fn apply(self, shutdown: &Shutdown, timeline: &Timeline) {
        match self {
            Self::Signal(signal) => {
                timeline.note(signal.to_string());
                // The process does not exit in a scenario, so the last rung has no effect.
                let _ = shutdown.receive(signal);
            }
            Self::Shorten(left) => {
                timeline.note(format!("shortened to {}", humantime::format_duration(left)));
                shutdown.shorten(left);
            }
        }
    }
}

// === impl PhaseEntry ===

impl PhaseEntry {
    fn parse(name: &str, behaviour: &str, rest: &[&str]) -> Self {
        let mut entry = Self {
            name: name.to_owned(),
            behaviour: Behaviour::parse(behaviour),
            spec: PhaseSpec::new(name),
            timeout: None,
            own: None,
        };
        let mut words = rest.iter().copied().peekable();
        while let Some(word) = words.next() {
            let mut next = || words.next().unwrap_or_else(|| panic!("no value after {word}"));
            match word {
                "timeout" => entry.timeout = Some(time(next())),
                "own" => entry.own = Some(time(next())),
                "fatal" => entry.spec = entry.spec.recover(false),
                "disabled" => entry.spec = entry.spec.enabled(false),
                "after" | "before" => loop {
                    let named = words.next().unwrap_or_else(|| panic!("no value after {word}"));
                    let plain = named.trim_end_matches(',');
                    entry.spec = if word == "after" {
                        entry.spec.after(plain)
                    } else {
                        entry.spec.before(plain)
                    };
                    if plain == named {
                        break;
                    }
                },
                _ => panic!("not a word of a scenario: {word}"),
            }
        }
        if let Some(timeout) = entry.timeout {
            entry.spec = entry.spec.timeout(timeout);
        }
        entry
    }

    fn add_to(self, shutdown: &Shutdown, timeline: &Timeline) {
        let Self { name, behaviour, spec, timeout, own } = self;
        if Phase::BUILT_IN.iter().any(|phase| phase.as_str() == name) {
            if let Some(timeout) = timeout {
                shutdown.set_phase_timeout(&name, timeout).expect("a built-in phase");
            }
        } else {
            shutdown.add_phase(spec).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut task = TaskSpec::new(name.as_str());
        if let Some(own) = own {
            task = task.timeout(own);
        }
        let (phase, timeline) = (name.clone(), timeline.clone());
        let added = if let Behaviour::Block = behaviour {
            shutdown.add_blocking_task(phase, task, move |cx| {
                timeline.note(format!("{name} started"));
                faults::block(cx);
            })
        } else {
            shutdown.add_task(phase, task, async move |cx: TaskCx| {
                let span = timeline.start(name);
                let ended = behaviour.perform(cx).await;
                span.over();
                ended
            })
        };
        added.unwrap_or_else(|error| panic!("{error}"));
    }
}

// === impl Behaviour ===

impl Behaviour {
    fn parse(word: &str) -> Self {
        match word {
            "hangs" => Self::Hang,
            "listens" => Self::Listen,
            "idles" => Self::Idle,
            "fails" => Self::Fail,
            "panics" => Self::Panic,
            "blocks" => Self::Block,
            duration => Self::Take(time(duration)),
        }
    }

    async fn perform(self, cx: TaskCx) -> Result<(), &'static str> {
        match self {
            Self::Take(duration) => tokio::time::sleep(duration).await,
            Self::Hang | Self::Block => faults::hang(cx).await,
            Self::Listen => faults::listen(cx).await,
            Self::Idle => faults::idle(cx).await,
            Self::Fail => return faults::fail(cx).await,
            Self::Panic => faults::panic(cx).await,
        }
        Ok(())
    }
}

fn time(text: &str) -> Duration {
    humantime::parse_duration(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
