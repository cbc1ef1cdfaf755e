//! Signals, by the names that manifests use.

use super::place::Place;

/// A signal that the platform sends to stop the process.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal {
    /// As it is written.
    pub(crate) text: String,
    pub(crate) place: Place,
    /// The line that sets SIGTERM instead.
    pub(crate) fix: String,
}

/// The signals that the process handles. By default these are the signals of `adieu::main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handled(u64);

const NAMES: [(&str, u32); 18] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("WINCH", 28),
    ("PWR", 30),
    ("RTMIN+3", 37),
];

/// The signals that no process can handle.
const UNCATCHABLE: [u32; 2] = [9, 19];

/// Returns the number of a signal: `SIGTERM`, `term`, `15`.
fn number(text: &str) -> Option<u32> {
    let upper = text.trim().to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named.or_else(|| name.parse().ok().filter(|number| (1..64).contains(number)))
}

/// Returns whether a text names a signal.
pub(crate) fn is_known(text: &str) -> bool {
    number(text).is_some()
}

// === impl StopSignal ===

impl StopSignal {
    pub(crate) fn is_term(&self) -> bool {
        number(&self.text) == Some(15)
    }

    /// Returns whether no process can handle it.
    pub(crate) fn is_uncatchable(&self) -> bool {
        number(&self.text).is_some_and(|number| UNCATCHABLE.contains(&number))
    }

    /// Returns whether it may have an effect on the first process of a container that does not
    /// handle it.
    pub(crate) fn reaches_first_process(&self) -> bool {
        self.is_uncatchable() || self.is_unseen()
    }

    /// Returns whether its name is filled in by some other tool.
    pub(crate) fn is_unseen(&self) -> bool {
        self.text.contains(['$', '{', '%'])
    }
}

// === impl Handled ===

impl Handled {
    pub(crate) fn handles(self, signal: &StopSignal) -> bool {
        number(&signal.text).is_some_and(|number| self.0 & (1 << number) != 0)
    }
}

impl Default for Handled {
    fn default() -> Self {
        Self(1 << 15 | 1 << 2)
    }
}

impl std::str::FromStr for Handled {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = 0;
        for name in text.split(',') {
            match number(name) {
                Some(number) if UNCATCHABLE.contains(&number) => {
                    return Err(format!("{name} cannot be handled by any process"));
                }
                Some(number) => all |= 1 << number,
                None => return Err(format!("{name} is no signal: write one such as SIGTERM")),
            }
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_number() {
        let handles = |handled: Handled, text: &str| {
            let signal =
                StopSignal { text: text.into(), place: Place::start(), fix: String::new() };
            handled.handles(&signal)
        };
        for text in ["SIGTERM", "TERM", "term", "15", "SIGINT", "2"] {
            assert!(handles(Handled::default(), text), "{text}");
        }
        for text in ["SIGQUIT", "KILL", "9", "SIGRTMIN+3", "soon", "", "99", "-1"] {
            assert!(!handles(Handled::default(), text), "{text}");
        }
        let more: Handled = "SIGTERM,SIGQUIT".parse().unwrap();
        assert!(handles(more, "QUIT") && !handles(more, "INT"));
        assert!("SIGKILL".parse::<Handled>().is_err() && "soon".parse::<Handled>().is_err());
    }
}
