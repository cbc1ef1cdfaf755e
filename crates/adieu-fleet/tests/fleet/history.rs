//! Histories of holders, and a judge that checks them.
//!
//! Times are on the machine's monotonic clock, read with a system call that `faketime` does not
//! change, so that the histories of several processes can be merged.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::time::{ClockId, clock_gettime};

/// Returns the machine's time in nanoseconds.
pub(crate) fn machine_time() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The lock was granted before this time.
    Held,
    /// A check after this time found the lease held.
    Believed,
    /// A guarded write was sent after this time, and accepted before the second time.
    Accepted { by: u64 },
    /// A guarded write was refused.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) fence: u64,
    pub(crate) what: What,
}

/// The destination of events.
#[derive(Clone)]
pub(crate) enum Log {
    File(Arc<Mutex<std::fs::File>>),
    Memory(Arc<Mutex<Vec<Event>>>),
}

impl Log {
    pub(crate) fn file(path: &Path) -> Self {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self::File(Arc::new(Mutex::new(file)))
    }

    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(crate) fn note(&self, at: u64, fence: u64, what: What) {
        let event = Event { at, fence, what };
        match self {
            // One write for each line, so that lines of several processes do not mix.
            Self::File(file) => {
                file.lock().unwrap().write_all(format!("{event}\n").as_bytes()).unwrap()
            }
            Self::Memory(events) => events.lock().unwrap().push(event),
        }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        match self {
            Self::Memory(events) => events.lock().unwrap().clone(),
            Self::File(_) => panic!("read it by its path"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, fence, what } = self;
        match what {
            What::Held => write!(f, "{at} {fence} held"),
            What::Believed => write!(f, "{at} {fence} believed"),
            What::Accepted { by } => write!(f, "{at} {fence} accepted {by}"),
            What::Refused => write!(f, "{at} {fence} refused"),
        }
    }
}

/// Reads the events of processes. Ignores a line that is incomplete because its process was killed.
pub(crate) fn read(path: &Path) -> Vec<Event> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let parse = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().ok();
        let what = match words[2..] {
            ["held"] => What::Held,
            ["believed"] => What::Believed,
            ["accepted", by] => What::Accepted { by: number(by)? },
            ["refused"] => What::Refused,
            _ => return None,
        };
        Some(Event { at: number(words[0])?, fence: number(words[1])?, what })
    };
    text.lines().filter(|line| line.split(' ').count() > 2).filter_map(parse).collect()
}

/// Checks a history: fences rise, and no two holders overlap. Returns the first violation.
pub(crate) fn judge(events: &[Event]) -> Result<(), String> {
    let granted: Vec<&Event> = events.iter().filter(|event| event.what == What::Held).collect();
    for (n, one) in granted.iter().enumerate() {
        for other in &granted[n + 1..] {
            if one.fence == other.fence {
                return Err(format!("fence {} was granted twice", one.fence));
            }
        }
    }
    for event in events {
        match event.what {
            // No replica may find its lease held after another has acquired the lock.
            What::Believed => {
                if let Some(next) =
                    granted.iter().find(|held| held.fence > event.fence && held.at < event.at)
                {
                    return Err(format!("{event}, but {next}"));
                }
            }
            // No write may be accepted that was sent after one with a higher fence was accepted.
            What::Accepted { .. } => {
                let is_newer = |other: &&Event| {
                    let What::Accepted { by } = other.what else { return false };
                    other.fence > event.fence && by < event.at
                };
                if let Some(newer) = events.iter().find(is_newer) {
                    return Err(format!("{event}, after {newer}"));
                }
            }
            What::Held | What::Refused => {}
        }
    }
    Ok(())
}

#[track_caller]
pub(crate) fn assert_sound(events: &[Event]) {
    if let Err(problem) = judge(events) {
        let mut sorted = events.to_vec();
        sorted.sort_by_key(|event| event.at);
        let lines: String = sorted.iter().map(|event| format!("{event}\n")).collect();
        panic!("{problem}\n{lines}");
    }
}

#[test]
fn the_judge_rejects_unsound_histories() {
    let event = |at, fence, what| Event { at, fence, what };
    let good = [
        event(1, 1, What::Held),
        event(2, 1, What::Believed),
        event(3, 1, What::Accepted { by: 4 }),
        event(6, 2, What::Held),
        event(7, 1, What::Refused),
        event(8, 2, What::Accepted { by: 9 }),
    ];
    assert_eq!(judge(&good), Ok(()));
    for bad in [
        event(7, 1, What::Believed),
        event(10, 1, What::Accepted { by: 11 }),
        event(9, 1, What::Held),
    ] {
        let mut history = good.to_vec();
        history.push(bad);
        assert!(judge(&history).is_err(), "{bad}");
    }
}
