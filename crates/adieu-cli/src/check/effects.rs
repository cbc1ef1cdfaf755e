//! The effects on the process of commands that run before the stop signal.

use super::place::{Finding, Fix, Level, Place};
use super::programs::{self, Start, base};
use super::script::{self, Script, Variables, Word};
use super::shell_options::{ShellInput, given};
use super::stop_signal::{self, StopSignal};
use super::workload::Workload;

/// The effects of a command on the processes around it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The signals that it sends, as they are written.
    pub(crate) signals: Vec<String>,
    /// Whether it may do something that cannot be seen.
    pub(crate) is_unseen: bool,
}

/// How deep commands may be nested in commands.
const DEEPEST: usize = 16;

/// Returns the effects of a command. Only commands that are known to affect no process have none.
pub(crate) fn of(words: &[Word]) -> Effects {
    let mut effects = Effects::default();
    effects.add(words, DEEPEST);
    effects
}

/// Judges a command that the platform runs before the signal, with a time limit of its own. It takes
/// nothing of the grace period, but it may stop the process in its own way.
pub(crate) fn before_signal(words: &[Word], place: &Place, fix: &str, workload: &mut Workload) {
    let effects = of(words);
    let advice = "leave it out: SIGTERM is enough";
    if effects.is_unseen {
        let problem = "runs before SIGTERM, and its effect on the process cannot be seen here";
        let finding = Finding::new(Level::Unknown, place.clone(), problem, advice);
        workload.findings.push(finding.fixed_by(Fix::Line(fix.into())));
    } else {
        // Signals are judged with the others.
        if effects.signals.is_empty() {
            let problem = "runs before SIGTERM, with a time limit of its own: not counted";
            workload.findings.push(Finding::new(Level::Warning, place.clone(), problem, advice));
        }
    }
    for text in effects.signals {
        workload.add_extra_signal(StopSignal { text, place: place.clone(), fix: fix.into() });
    }
}

// === impl Effects ===

impl Effects {
    fn add(&mut self, words: &[Word], depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            self.is_unseen = true;
            return;
        };
        let mut words = words;
        for _ in 0..programs::MOST_WRAPPERS {
            let Some((first, rest)) = words.split_first() else { return };
            match (base(first), programs::start(words)) {
                _ if !first.is_known => self.is_unseen = true,
                (_, Start::Env(arguments)) => {
                    words = script::after_assignments(arguments);
                    continue;
                }
                (name @ ("kill" | "pkill" | "killall"), _) => self.send(name, rest),
                ("command", _) if rest.first().is_some_and(|option| option.text == "-v") => {}
                (_, Start::Wrapper(inner)) => {
                    words = inner;
                    continue;
                }
                (_, Start::Shell) => match given(rest) {
                    ShellInput::Script { text, arguments, .. } => {
                        let read = script::read(text, &Variables::new(), arguments);
                        let Script::Commands(commands) = read else {
                            self.is_unseen = true;
                            return;
                        };
                        for command in &commands {
                            self.add(&command.words, depth);
                        }
                    }
                    ShellInput::File | ShellInput::Unseen => self.is_unseen = true,
                },
                (name, _) => self.is_unseen |= !programs::is_harmless(name),
            }
            return;
        }
        self.is_unseen = true;
    }

    /// The signal of `kill -s QUIT 1`, `pkill -9 orders`.
    fn send(&mut self, program: &str, arguments: &[Word]) {
        let mut signal = "TERM";
        let mut arguments = arguments.iter();
        while let Some(word) = arguments.next() {
            let text = word.text.as_str();
            let named = match text {
                "--" => break,
                "-s" | "-n" | "--signal" if program != "pkill" || text != "-n" => {
                    arguments.next().map(|value| value.text.as_str())
                }
                _ => text.strip_prefix("--signal=").or_else(|| text.strip_prefix('-')),
            };
            let Some(named) = named else { continue };
            self.is_unseen |= !word.is_known;
            // Only `kill` has no other options of one dash.
            if program == "kill" || stop_signal::is_known(named) {
                signal = named;
                break;
            }
        }
        // Signal 0 only checks whether the process exists.
        if signal != "0" {
            self.signals.push(signal.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s502_signals_in_commands_are_found_and_other_commands_are_unseen() {
        let shown = |command: &[&str]| {
            let words: Vec<_> = command.iter().map(|word| Word::known(*word)).collect();
            let Effects { signals, is_unseen } = of(&words);
            let unseen = if is_unseen { "?" } else { "" };
            signals.join(",") + unseen
        };
        let cases: [(&[&str], &str); 20] = [
            (&["sleep", "5"], ""),
            (&["sh", "-c", "echo bye; sleep 5"], ""),
            (&["/bin/kill", "-s", "QUIT", "$MAINPID"], "QUIT"),
            (&["kill", "-9", "1"], "9"),
            (&["kill", "1"], "TERM"),
            (&["kill", "-0", "1"], ""),
            (&["kill", "--signal", "KILL", "1"], "KILL"),
            (&["pkill", "-f", "orders"], "TERM"),
            (&["pkill", "-QUIT", "-f", "orders"], "QUIT"),
            (&["killall", "-q", "-s", "KILL", "orders"], "KILL"),
            (&["timeout", "5", "kill", "-9", "1"], "9"),
            (&["env", "A=1", "kill", "-9", "1"], "9"),
            (&["sh", "-c", "kill -TERM 1; sleep 5; kill -9 1"], "TERM,9"),
            (&["sh", "-c", "kill -9 $(pidof orders)"], "?"),
            (&["sh", "-c", "pgrep orders | xargs kill -9"], "?"),
            (&["fuser", "-k", "8080/tcp"], "?"),
            (&["/opt/stop.sh"], "?"),
            (&["timeout", "5", "/opt/stop"], "?"),
            (&["curl", "-m", "5", "localhost/stop"], "?"),
            (&["sh", "-c", "trap 'kill -9 1' EXIT"], "?"),
        ];
        for (command, expected) in cases {
            assert_eq!(shown(command), expected, "{command:?}");
        }
    }
}
