//! The documents are true: what they say and what the sources say is the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The numbers that follow `before` in `text`, such as `s07` in `fn s07_a_phase_waits`.
fn numbers(text: &str, before: &str, letter: char) -> BTreeSet<u32> {
    text.match_indices(before)
        .filter_map(|(at, _)| {
            let rest = text[at + before.len()..].strip_prefix(letter)?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
        .collect()
}

#[test]
fn every_promise_has_a_test_of_its_number_and_every_such_test_a_promise() {
    let promised = numbers(&read("SEMANTICS.md"), "\n- **", 'S');
    let mut files = Vec::new();
    sources(root(), &mut files);
    let tested: BTreeSet<u32> =
        files.iter().flat_map(|path| numbers(&read(path), "fn ", 's')).collect();
    assert!(promised.len() > 50);
    assert_eq!(
        promised.difference(&tested).collect::<Vec<_>>(),
        [&0u32; 0],
        "promised, not tested"
    );
    assert_eq!(
        tested.difference(&promised).collect::<Vec<_>>(),
        [&0u32; 0],
        "tested, not promised"
    );
}

#[test]
fn machines_know_no_clock_no_runtime_and_no_log() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let is_machine = |path: &&PathBuf| {
        let parts: Vec<_> = path.iter().collect();
        let inside = parts.iter().any(|part| *part == "machine") && !path.ends_with("tests.rs");
        path.ends_with("machine.rs") || inside
    };
    let machines: Vec<_> = files.iter().filter(is_machine).collect();
    assert!(machines.len() > 1);
    for path in machines {
        let text = read(path);
        for forbidden in
            ["now()", "tokio::", "tracing::", ".await", "async ", "info!(", "warn!(", "rand"]
        {
            assert!(!text.contains(forbidden), "{} has {forbidden}", path.display());
        }
    }
}

#[test]
fn the_readme_names_every_crate() {
    let readme = read("README.md");
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}
