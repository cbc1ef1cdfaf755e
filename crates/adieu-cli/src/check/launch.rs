//! The programs between the platform's signal and the process, and the variables that they set.

mod variables;

use variables::Shell;

use super::environment::Environment;
use super::place::{Finding, Fix, Level, Place};
use super::programs::{self, Start, base};
use super::script::{self, SETTERS, Script, Simple, Then, Word};
use super::shell_options::{Options, ShellInput, given};

/// The program between the platform's signal and the process. The last variant is the worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Front {
    /// Nothing: the process itself is signalled.
    Nothing,
    /// A program of which it cannot be seen whether it passes the signal on, with the reason.
    Unseen(String),
    /// A program of this name, which stops the process by its own rules, whichever process is
    /// signalled.
    Managed(String),
    /// A shell that waits for it, and passes no signal on.
    Shell,
}

/// How deep commands may be nested in commands.
const DEEPEST: usize = 16;

/// The processes that the platform signals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signalled {
    /// The first one alone.
    First,
    /// The first one, and all that it has started.
    All,
}

struct Launch<'a> {
    environment: &'a mut Environment,
    place: &'a Place,
    signalled: Signalled,
}

/// Follows a command until the process starts; changes the environment as the command does. The
/// platform signals the first process alone.
pub(crate) fn front(words: &[Word], environment: &mut Environment, place: &Place) -> Front {
    Launch { environment, place, signalled: Signalled::First }.front(words, DEEPEST)
}

/// Follows a command in the same way where the platform signals all processes that the command has
/// started. A shell in front of the process does no harm there, if all that it runs can be seen.
pub(crate) fn front_of_group(
    words: &[Word],
    environment: &mut Environment,
    place: &Place,
) -> Front {
    Launch { environment, place, signalled: Signalled::All }.front(words, DEEPEST)
}

fn unseen(what: impl Into<String>) -> Front {
    Front::Unseen(what.into())
}

// === impl Launch ===

impl Launch<'_> {
    fn front(&mut self, words: &[Word], depth: usize) -> Front {
        let Some(depth) = depth.checked_sub(1) else {
            return unseen("commands nested this deeply are not followed");
        };
        let mut words = words;
        let mut group = None;
        for _ in 0..programs::MOST_WRAPPERS {
            let Some((first, rest)) = words.split_first() else { return Front::Nothing };
            // `%(NAME)s` is how supervisord writes a variable.
            if !first.is_known || first.text.contains('$') || first.text.contains("%(") {
                return unseen("which program this starts cannot be seen here");
            }
            let name = base(first);
            let front = match programs::start(words) {
                Start::Env(arguments) => match self.env(arguments) {
                    Some(inner) => {
                        words = inner;
                        continue;
                    }
                    None => unseen("what env runs here cannot be seen"),
                },
                Start::Wrapper(inner) => {
                    group = group.or(programs::signals_the_group(words).then_some(name));
                    words = inner;
                    continue;
                }
                Start::Odd => {
                    unseen(format!("what {name} runs with these options is not known here"))
                }
                Start::Shell => self.shell(name, rest, depth),
                Start::Manager => Front::Managed(name.to_owned()),
                Start::Script => unseen(format!("whether {name} ends in exec cannot be seen here")),
                Start::Other => {
                    unseen(format!("{name} is not the process, and may run it as its child"))
                }
                Start::May(inner) => unseen(format!(
                    "whether {name} runs {inner} in its place or as its child cannot be seen here"
                )),
                Start::Process => Front::Nothing,
            };
            // The shell is signalled, too, and ends at once; and the init process ends with it.
            return match (front, group) {
                (Front::Shell, Some(init)) => {
                    unseen(format!("{init} ends when the shell behind it ends"))
                }
                (front, _) => front,
            };
        }
        unseen("a chain of this many programs is not followed")
    }

    /// `env -u NAME NAME=value command`: the command, if there is one and all options are known.
    fn env<'w>(&mut self, words: &'w [Word]) -> Option<&'w [Word]> {
        let mut rest = words;
        while let Some((word, more)) = rest.split_first() {
            let text = word.text.as_str();
            // `env` takes each word with `=` for a variable, whatever its name is.
            let pair = text.split_once('=').filter(|_| !text.starts_with('-'));
            if let Some((name, value)) = pair {
                self.set(name, Some(value).filter(|_| word.is_known));
            } else {
                match text {
                    "-i" | "-" | "--ignore-environment" => self.environment.forget(),
                    "--" | "-v" | "--debug" => {}
                    "-u" => {
                        self.environment.unset(&more.first()?.text);
                        rest = more.get(1..)?;
                        continue;
                    }
                    _ if text.starts_with("--unset=") => {
                        self.environment.unset(text.trim_start_matches("--unset="));
                    }
                    _ if text.starts_with('-') || !word.is_known => return None,
                    _ => return Some(rest),
                }
            }
            rest = more;
        }
        None
    }

    fn set(&mut self, name: &str, value: Option<&str>) {
        self.environment.set_by_command(name, value, self.place.clone());
    }

    fn shell(&mut self, name: &str, words: &[Word], depth: usize) -> Front {
        let (text, arguments, options) = match given(words) {
            ShellInput::Script { text, arguments, options } => (text, arguments, options),
            ShellInput::File => {
                return unseen("whether this script ends in exec cannot be seen here");
            }
            ShellInput::Unseen => return unseen("what this shell runs cannot be seen here"),
        };
        // zsh reads a file of the user before each script, and bash the one that the variable names.
        let reads_file = name == "zsh" || name == "bash" && self.environment.has("BASH_ENV");
        if options.reads_profile || reads_file {
            self.environment.add_unseen(self.place.clone());
        }
        match script::read(text, &self.environment.values(), arguments) {
            Script::Commands(commands) if self.signalled == Signalled::All => {
                self.commands_of_group(&commands, options, depth)
            }
            Script::Commands(commands) => self.commands(&commands, name, options, depth),
            Script::Complex => {
                self.environment.add_unseen(self.place.clone());
                unseen("whether this script passes signals on cannot be seen here")
            }
        }
    }

    /// Commands in a row, of which each may be the process.
    fn commands_of_group(&mut self, commands: &[Simple], options: Options, depth: usize) -> Front {
        let mut shell = Shell::new(options);
        let (mut worst, mut is_seen) = (Front::Nothing, false);
        for (at, command) in commands.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| commands[at].then);
            let stays =
                before == Some(Then::Pipe) || matches!(command.then, Then::Pipe | Then::Background);
            let is_branch = matches!(before, Some(Then::And | Then::Or));
            let replaces = replaces(command);
            let is_last = at + 1 == commands.len();
            self.assign(command, stays || is_branch, replaces || is_last, &mut shell);
            if is_one_of(command, &["trap", "eval"]) {
                worst = worst.max(unseen("which commands this script runs cannot be seen here"));
            }
            worst = worst.max(cpu_limit(command));
            if is_helper(command) {
                continue;
            }
            is_seen = true;
            worst = worst.max(self.front(&command.words, depth));
            if command.then == Then::Pipe {
                let what = "the program behind the pipe is signalled and ends, too, and the process \
                            can no longer write to it";
                worst = worst.max(unseen(what));
            }
            if replaces && !stays && !is_branch {
                break;
            }
        }
        if is_seen {
            worst
        } else {
            unseen("which command of this shell is the process cannot be seen here")
        }
    }

    /// Commands in a row: all that may replace the shell must be the process.
    fn commands(
        &mut self,
        commands: &[Simple],
        shell: &str,
        options: Options,
        depth: usize,
    ) -> Front {
        let mut worst = Front::Nothing;
        let mut variables = Shell::new(options);
        let mut after_branch = None;
        for (at, command) in commands.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &commands[at]);
            let then = before.map(|before| before.then);
            let stays =
                then == Some(Then::Pipe) || matches!(command.then, Then::Pipe | Then::Background);
            let is_branch = matches!(then, Some(Then::And | Then::Or));
            let replaces = replaces(command);
            let is_last = at + 1 == commands.len();
            self.assign(command, stays || is_branch, replaces || is_last, &mut variables);
            worst = worst.max(cpu_limit(command));
            if !replaces || stays {
                continue;
            }
            // A shell without this builtin continues with the next command.
            if is_one_of(command, &["builtin"]) && !["bash", "zsh", "ksh"].contains(&shell) {
                worst = worst.max(unseen("not every shell has builtin"));
            }
            worst = worst.max(self.front(&command.words, depth));
            if commands[..at].iter().any(|other| other.then == Then::Background) {
                let what = "another program runs in the background, and may be the process";
                worst = worst.max(unseen(what));
            }
            if !is_branch {
                return worst;
            }
            let is_test = before.is_some_and(is_quick);
            if then == Some(Then::Or) && !is_test {
                worst = worst.max(unseen("the shell stays in front of the command before ||"));
            }
            after_branch = Some(at + 1);
        }
        // On the other branch the shell ends, if nothing but exit follows.
        let rest = after_branch.map_or(commands, |at| &commands[at..]);
        if after_branch.is_some() && rest.iter().all(|command| is_one_of(command, &["exit"])) {
            return worst;
        }
        worst.max(self.last(commands, shell == "dash", depth))
    }

    /// Returns the program that stays in front of the process if no `exec` is certain.
    fn last(&mut self, commands: &[Simple], is_dash: bool, depth: usize) -> Front {
        let is_piped = matches!(commands, [.., before, _] if before.then == Then::Pipe);
        let Some(last) = commands.last().filter(|last| !last.words.is_empty()) else {
            return unseen("what this shell runs cannot be seen here");
        };
        if commands.iter().any(|command| is_one_of(command, &["trap", "eval"])) {
            return unseen("whether this script passes signals on and waits cannot be seen here");
        }
        // The commands before it are children of a shell that waits.
        if is_one_of(last, &["wait"]) || is_quick(last) {
            return Front::Shell;
        }
        if last.then != Then::Next || is_piped {
            return Front::Shell;
        }
        // bash replaces itself with the last command of a list, dash does not, and `sh` is either.
        match self.front(&last.words, depth) {
            Front::Nothing if !is_dash => unseen(
                "whether the shell replaces itself with its last command depends on the shell",
            ),
            Front::Nothing => Front::Shell,
            inner @ (Front::Unseen(_) | Front::Managed(_) | Front::Shell) => inner,
        }
    }
}

/// Returns whether a command replaces the shell: `exec orders`, `command exec orders`.
fn replaces(command: &Simple) -> bool {
    let is_prefix = |word: &&Word| ["command", "builtin"].contains(&word.text.as_str());
    let prefixes = command.words.iter().take_while(is_prefix).count();
    matches!(&command.words[prefixes..], [exec, _, ..] if exec.text == "exec")
}

/// Returns whether a command of a script is not the process: it sets something, or is a program
/// that is known to run no other.
fn is_helper(command: &Simple) -> bool {
    let [first, rest @ ..] = command.words.as_slice() else { return true };
    match (base(first), rest) {
        ("exec", []) | ("trap", _) => true,
        ("command", [option, ..]) if ["-v", "-V"].contains(&option.text.as_str()) => true,
        ("command" | "exec", _) => false,
        (name, _) => first.is_known && (programs::is_harmless(name) || SETTERS.contains(&name)),
    }
}

/// `ulimit -t 5`: the kernel ends the process when it has used this much time of the processor.
fn cpu_limit(command: &Simple) -> Front {
    let is_limit =
        |word: &Word| !word.is_known || word.text.starts_with('-') && word.text.contains('t');
    let arguments = command.words.get(1..).unwrap_or_default();
    let is_lifted = arguments.last().is_some_and(|last| last.text == "unlimited");
    match is_one_of(command, &["ulimit"]) && arguments.iter().any(is_limit) && !is_lifted {
        true => unseen("ulimit -t limits the processor time of the process, which is killed then"),
        false => Front::Nothing,
    }
}

/// Returns the finding about a limit of processor time, after which the kernel ends the process.
pub(crate) fn limits_processor_time(place: Place) -> Finding {
    let problem =
        "the kernel kills the process undrained when it has used this much processor time";
    Finding::new(Level::Unknown, place, problem, "leave the limit out")
}

fn is_one_of(command: &Simple, names: &[&str]) -> bool {
    command.words.first().is_some_and(|first| names.contains(&first.text.as_str()))
}

fn is_quick(command: &Simple) -> bool {
    command.words.first().is_some_and(|first| programs::is_quick(base(first)))
}

// === impl Front ===

impl Front {
    /// Returns the finding where the platform signals the first process alone.
    pub(crate) fn finding(self, place: Place) -> Option<Finding> {
        let advice = "start the process itself, or write exec in front of it";
        let (level, problem, advice) = match self {
            Self::Nothing => return None,
            Self::Shell => {
                let problem = "a shell is signalled and does not pass the signal on: the process never \
                               receives it, and is killed undrained";
                (Level::Error, problem.to_owned(), advice.to_owned())
            }
            Self::Unseen(what) => {
                let problem = format!("{what}: the stop signal may never reach the process");
                (Level::Unknown, problem, format!("{advice}, or pass --execs if it does so"))
            }
            Self::Managed(name) => {
                let problem = format!("{name} stops the process by its own rules, in its own time");
                let advice = "check its configuration, too; or start the process itself";
                let fix = Fix::Line(format!("no {name} in front of the process"));
                let finding = Finding::new(Level::Unknown, place, problem, advice);
                return Some(finding.fixed_by(fix));
            }
        };
        Some(Finding::new(level, place, problem, advice).fixed_by(Fix::Exec))
    }

    /// Returns the finding where the platform signals all processes that the command has started.
    pub(crate) fn finding_in_group(self, place: Place) -> Option<Finding> {
        let Self::Unseen(what) = self else { return self.finding(place) };
        let problem =
            format!("{what}: it may change the variables of the process, or run it elsewhere");
        let advice = "start the process itself, or pass --execs if variables and signals reach it";
        Some(Finding::new(Level::Unknown, place, problem, advice).fixed_by(Fix::Exec))
    }
}

#[cfg(test)]
mod tests;
