//! The options of a shell, and the script that it is given.

use super::script::Word;

/// The commands that a shell runs.
pub(crate) enum ShellInput<'a> {
    /// A script on its command line.
    Script {
        text: &'a str,
        /// The arguments of the script, from `$0` on.
        arguments: &'a [Word],
        options: Options,
    },
    File,
    Unseen,
}

/// The options that change which variables the commands of a script get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether all variables are exported: `-a`, `-o allexport`.
    pub(crate) exports_all: bool,
    /// Whether the files of a login shell are read first: `-l`, `--login`.
    pub(crate) reads_profile: bool,
}

/// The letters that change neither the variables nor which commands run. Other letters make the
/// script unknown: `-i` ignores SIGTERM, `-n` runs nothing, `-s` reads standard input, `-k` takes
/// arguments for variables.
const LETTERS: &str = "ceuxvfhbmprBCEHPT";

/// The names after `-o` that change neither.
const NAMES: [&str; 15] = [
    "errexit",
    "nounset",
    "pipefail",
    "xtrace",
    "verbose",
    "noglob",
    "noclobber",
    "monitor",
    "posix",
    "hashall",
    "braceexpand",
    "physical",
    "errtrace",
    "functrace",
    "notify",
];

/// Returns the script that a shell is given, by the words after the name of the shell.
pub(crate) fn given(words: &[Word]) -> ShellInput<'_> {
    let mut options = Options::default();
    let (mut at, mut is_command) = (0, false);
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        at += 1;
        let Some(option) = text.strip_prefix(['-', '+']) else {
            return match is_command {
                true if word.is_known => {
                    let arguments = words.get(at..).unwrap_or_default();
                    ShellInput::Script { text, arguments, options }
                }
                true => ShellInput::Unseen,
                false => ShellInput::File,
            };
        };
        let is_on = text.starts_with('-');
        match option {
            _ if !word.is_known => return ShellInput::Unseen,
            "" => return ShellInput::Unseen,
            "-" | "-posix" | "-norc" | "-noprofile" | "-noediting" => {}
            "-login" => options.reads_profile = true,
            _ if option.starts_with('-') => return ShellInput::Unseen,
            letters => {
                for letter in letters.chars() {
                    match letter {
                        'a' => options.exports_all = is_on,
                        'l' => options.reads_profile |= is_on,
                        'o' => {
                            match words.get(at).map(|name| name.text.as_str()) {
                                Some("allexport") => options.exports_all = is_on,
                                Some(name) if NAMES.contains(&name) => {}
                                _ => return ShellInput::Unseen,
                            }
                            at += 1;
                        }
                        'O' => at += 1,
                        letter if LETTERS.contains(letter) => is_command |= is_on && letter == 'c',
                        _ => return ShellInput::Unseen,
                    }
                }
            }
        }
    }
    ShellInput::Unseen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows the script with the options that matter, or why it is not known.
    fn shown(line: &[&str]) -> String {
        let words: Vec<_> = line.iter().map(|word| Word::known(*word)).collect();
        match given(&words) {
            ShellInput::Script { text, options, .. } => {
                let all = if options.exports_all { " all" } else { "" };
                let profile = if options.reads_profile { " profile" } else { "" };
                format!("{text}{all}{profile}")
            }
            ShellInput::File => "file".into(),
            ShellInput::Unseen => "unseen".into(),
        }
    }

    #[test]
    fn s833_options_of_a_shell_that_change_variables_are_seen() {
        let cases: [(&[&str], &str); 20] = [
            (&["-c", "x"], "x"),
            (&["-ec", "x"], "x"),
            (&["-c", "-e", "x"], "x"),
            (&["-euo", "pipefail", "-c", "x"], "x"),
            (&["-c", "--", "x"], "x"),
            (&["-ac", "x"], "x all"),
            (&["-eac", "x"], "x all"),
            (&["-a", "-c", "x"], "x all"),
            (&["-o", "allexport", "-c", "x"], "x all"),
            (&["-eo", "allexport", "-c", "x"], "x all"),
            (&["-a", "+a", "-c", "x"], "x"),
            (&["-lc", "x"], "x profile"),
            (&["--login", "-c", "x"], "x profile"),
            (&["-ic", "x"], "unseen"),
            (&["-nc", "x"], "unseen"),
            (&["-kc", "x"], "unseen"),
            (&["--rcfile", "y", "-c", "x"], "unseen"),
            (&["-o", "surprise", "-c", "x"], "unseen"),
            (&["/x.sh"], "file"),
            (&[], "unseen"),
        ];
        for (line, expected) in cases {
            assert_eq!(shown(line), expected, "{line:?}");
        }
    }
}
