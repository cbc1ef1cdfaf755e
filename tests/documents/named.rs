//! The files, commands and packages that the documents name exist.

use std::collections::BTreeSet;
use std::path::Path;

/// The endings of files that documents name.
const ENDINGS: [&str; 8] = [".rs", ".md", ".sql", ".toml", ".yaml", ".lua", ".conf", ".service"];

/// Returns the words in backquotes that name files and match none of `files`, with their lines.
///
/// A document may leave out the first folders of a path. In a table whose head names the folder of a
/// crate (`crates/adieu-core/src/`), the file must be in that crate, or the path must be complete.
pub(super) fn missing_files(text: &str, files: &BTreeSet<String>) -> Vec<String> {
    let mut missing = Vec::new();
    let mut of_table = String::new();
    for (number, line) in text.lines().enumerate() {
        if !line.starts_with('|') {
            of_table.clear();
        } else if let Some((_, rest)) = line.split_once("look in `crates/") {
            let name = rest.split('/').next().unwrap_or_default();
            of_table = format!("crates/{name}/");
        }
        for word in quoted(line).filter(|word| is_file_name(word)) {
            let is_it = |file: &String| {
                file == word || (file.ends_with(&format!("/{word}")) && file.starts_with(&of_table))
            };
            if !files.iter().any(is_it) {
                missing.push(format!("line {}: {word}", number + 1));
            }
        }
    }
    missing
}

/// A command in a document: `adieu check --config FILE`, `scripts/test quick`, `cargo test -p PACKAGE`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command<'a>(pub(super) Vec<&'a str>);

/// Returns the commands in backquotes and in code blocks of shells.
pub(super) fn commands(text: &str) -> Vec<Command<'_>> {
    let mut is_shell = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_shell = language == "sh";
            continue;
        }
        let whole = is_shell.then_some(line);
        for command in whole.into_iter().chain(quoted(line)) {
            let command = command.split(" #").next().unwrap_or_default();
            let words = command.split_whitespace().skip_while(|word| is_variable(word));
            let words: Vec<_> = words.collect();
            let first = words.first().copied().unwrap_or_default();
            let is_command = matches!(first, "adieu" | "cargo") && words.len() > 1;
            if is_command || first.trim_start_matches("./").starts_with("scripts/") {
                found.push(Command(words));
            }
        }
    }
    found
}

impl Command<'_> {
    /// Returns the reason why this command cannot run in the repository.
    pub(super) fn problem(&self, root: &Path) -> Option<String> {
        let words = &self.0;
        let first = words[0].trim_start_matches("./");
        if first.starts_with("scripts/") {
            let known = std::fs::read_to_string(root.join(first)).ok();
            let Some(script) = known else { return Some(format!("there is no {first}")) };
            // An argument in capitals stands for any. Others begin the name of something, or the
            // script names them.
            let argument = words.get(1).filter(|word| !word.chars().all(|c| c.is_uppercase()))?;
            let is_known = script.contains(argument) || has_patch(root, argument);
            return (!is_known).then(|| format!("{first} does not know {argument}"));
        }
        if first == "cargo" {
            return self.problem_of_cargo(root);
        }
        let golden = root.join("crates/adieu-cli/tests/golden");
        let list = std::fs::read_to_string(golden.join("help.txt")).unwrap();
        if !list.lines().any(|line| line.split_whitespace().next() == Some(words[1])) {
            return Some(format!("there is no command adieu {}", words[1]));
        }
        let help = std::fs::read_to_string(golden.join(format!("help-{}.txt", words[1])));
        let help = help.unwrap_or_default();
        let mut flags = words.iter().filter(|word| word.starts_with("--"));
        let unknown = flags.find(|flag| !help.contains(**flag))?;
        Some(format!("adieu {} has no {unknown}", words[1]))
    }

    fn problem_of_cargo(&self, root: &Path) -> Option<String> {
        let after = |flag: &str| {
            let at = self.0.iter().position(|word| *word == flag)?;
            self.0.get(at + 1).copied()
        };
        let package = after("-p")?;
        let folder = match package {
            "adieu-tests" | "adieu-benches" | "adieu-examples" => {
                package.trim_start_matches("adieu-").to_owned()
            }
            _ => format!("crates/{package}"),
        };
        let manifest = root.join(&folder).join("Cargo.toml");
        let Ok(manifest) = std::fs::read_to_string(manifest) else {
            return Some(format!("there is no package {package}"));
        };
        let binary = after("--bin").filter(|name| !manifest.contains(&format!("\"{name}\"")));
        if let Some(binary) = binary {
            return Some(format!("{package} has no binary {binary}"));
        }
        let filter = after("--lib").filter(|filter| !filter.starts_with('-'))?;
        let mut files = Vec::new();
        super::sources(&root.join(&folder), &mut files);
        let has_it = files.iter().any(|file| {
            super::read(file).lines().any(|line| line.contains("fn ") && line.contains(filter))
        });
        (!has_it).then(|| format!("no test of {package} has {filter} in its name"))
    }
}

/// Returns whether a known defect has a name that begins like this.
fn has_patch(root: &Path, prefix: &str) -> bool {
    let mut entries = std::fs::read_dir(root.join("tests/compose/mutants")).unwrap();
    entries.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with(prefix))
}

fn is_variable(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_uppercase() || c == '_'))
}

fn is_file_name(word: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    // `.toml` alone is an ending.
    ENDINGS.iter().any(|ending| word.ends_with(ending))
        && word.chars().all(is_plain)
        && !word.starts_with(['.', '/'])
        && !word.starts_with("target/")
}

fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn a_file_that_does_not_exist_is_found() {
    let files = ["crates/a/src/x/y.rs", "crates/b/src/z.rs", "docs/z.md"].map(String::from);
    let files = BTreeSet::from(files);
    let table = "| change | look in `crates/a/src/` |\n|---|---|\n| it | `x/y.rs`, `z.rs` |\n";
    assert_eq!(missing_files(table, &files), ["line 3: z.rs"]);
    assert_eq!(missing_files("see `z.rs`, `y.rs` and `w.rs`", &files), ["line 1: w.rs"]);
    assert!(missing_files(".toml in `.toml`, `/etc/a.conf`, `a.b()`", &files).is_empty());
}

#[test]
fn a_command_that_cannot_run_is_found() {
    let root = super::root();
    let problems = |text: &str| -> Vec<String> {
        commands(text).iter().filter_map(|command| command.problem(root)).collect()
    };
    assert_eq!(
        commands("```sh\nX=1 adieu plan # shows it\n```\n"),
        [Command(vec!["adieu", "plan"])]
    );
    assert!(
        problems("`scripts/test quick`, `adieu check --config x`, `cargo doc -p adieu`").is_empty()
    );
    assert_eq!(problems("`scripts/nope`"), ["there is no scripts/nope"]);
    assert_eq!(problems("`scripts/test fast`"), ["scripts/test does not know fast"]);
    assert_eq!(problems("`adieu nope it`"), ["there is no command adieu nope"]);
    assert_eq!(problems("`adieu check --nope`"), ["adieu check has no --nope"]);
    assert_eq!(problems("`cargo doc -p nope`"), ["there is no package nope"]);
    assert_eq!(
        problems("`cargo run -p adieu-tests --bin nope`"),
        ["adieu-tests has no binary nope"]
    );
    assert_eq!(
        problems("`cargo test -p adieu-cluster --lib s0_nope`"),
        ["no test of adieu-cluster has s0_nope in its name"]
    );
}
