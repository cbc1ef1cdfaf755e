//! Machines have no clock, no runtime, no log line and no `await`, and use no file that has one.
//!
//! The test finds them itself, so that a new machine is checked without being listed: files named
//! `machine.rs`, files whose first lines say "Pure", the files in the folders of both, and every file
//! that one of these names by a `crate::` or `super::` path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Machines that do not say so.
const OTHERS: [&str; 7] =
    ["link/frame", "link/hello", "link/inbox", "proposal", "route/repeats", "view", "waiting"];

/// What machines use types of: instants, and the events of a transport.
const TYPES: [&str; 2] = ["time", "transport"];

const FORBIDDEN: [&str; 11] = [
    ".await",
    "async ",
    "tokio::",
    "now()",
    ".elapsed()",
    "SystemTime",
    "fastrand",
    "tracing::",
    "std::thread",
    "Mutex",
    "println!",
];

/// The code of each module before its tests, by the path of its file without `.rs`.
type Sources = BTreeMap<String, String>;

#[test]
fn machines_are_pure() {
    let mut sources = Sources::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    let machines = machines(&sources);
    for name in ["allocate/ranking", "commits", "leader/machine", "records", "store", "waiting"] {
        assert!(machines.contains(name), "{name} was not found: {machines:?}");
    }
    let impure: Vec<_> = machines.iter().flat_map(|name| impure(name, &sources[name])).collect();
    assert!(impure.is_empty(), "effects in machines:\n{}", impure.join("\n"));
}

#[test]
fn a_machine_and_what_it_uses_are_found() {
    let mut sources = Sources::new();
    // Without the words themselves: these paths are not uses of this file.
    let mut write = |name: &str, text: &str| {
        let text = text.replace('^', "super").replace('@', "crate");
        sources.insert(name.to_owned(), text);
    };
    write("a/machine", "use ^::b::B;\nfn f() { @::c::inner::g() }");
    write("a", "mod machine;\nmod b;\nmod unused;");
    write("a/b", "// @::unused is only mentioned\nuse ^::^::d;");
    write("a/unused", "Mutex");
    write("c", "mod inner;\nMutex");
    write("c/inner", "");
    write("d", "");
    write("pure", "//! Counts. Pure.\nmod ranking;");
    write("pure/ranking", "let at = now(); // Mutex");
    for other in OTHERS {
        write(other, "");
    }
    let machines = machines(&sources);
    for name in ["a/machine", "a/b", "c/inner", "d", "pure", "pure/ranking"] {
        assert!(machines.contains(name), "{name} was not found: {machines:?}");
    }
    assert!(!["a", "a/unused", "c"].iter().any(|name| machines.contains(*name)), "{machines:?}");
    assert_eq!(impure("m", &sources["pure/ranking"]), ["m.rs:1: now()"]);
}

fn read(folder: &Path, prefix: &str, sources: &mut Sources) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            // The simulated world consists of tests.
            if name != "world" && name != "tests" {
                read(&entry.path(), &format!("{prefix}{name}/"), sources);
            }
        } else if let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "tests") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            sources.insert(format!("{prefix}{module}"), code.to_owned());
        }
    }
}

fn machines(sources: &Sources) -> BTreeSet<String> {
    let declared = |(name, text): (&String, &String)| {
        let head = text.lines().take_while(|line| line.starts_with("//!"));
        let says_so = head.flat_map(|line| line.split([' ', '.'])).any(|word| word == "Pure");
        (says_so || name.ends_with("machine")).then(|| name.clone())
    };
    let declared: Vec<_> = sources.iter().filter_map(declared).collect();
    let is_inside = |name: &String, folder: &String| {
        name.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    let inside = sources.keys().filter(|name| declared.iter().any(|it| is_inside(name, it)));
    let mut todo: Vec<String> = inside.cloned().collect();
    todo.extend(OTHERS.map(str::to_owned));
    todo.extend(declared.iter().cloned());
    let mut found = BTreeSet::new();
    while let Some(name) = todo.pop() {
        let text = sources.get(&name).unwrap_or_else(|| panic!("there is no {name}.rs"));
        if !TYPES.contains(&name.as_str()) && found.insert(name.clone()) {
            todo.extend(used(&name, text, sources));
        }
    }
    found
}

/// Returns the files that a file names by paths.
fn used(name: &str, text: &str, sources: &Sources) -> Vec<String> {
    let mut used = Vec::new();
    let folder: Vec<_> = name.split('/').collect();
    let folder = &folder[..folder.len() - 1];
    for (_, line) in code(text) {
        let words = line.split(|it: char| !it.is_alphanumeric() && it != '_' && it != ':');
        for word in words {
            let mut path: Vec<_> = word.split("::").collect();
            let mut base = match path[0] {
                "crate" => Vec::new(),
                "super" => folder.to_vec(),
                _ => continue,
            };
            path.remove(0);
            while path.first() == Some(&"super") {
                base.pop();
                path.remove(0);
            }
            // The longest part of the path that is a file; the rest are items.
            let prefixes = (0..=path.len()).map(|end| [&base, &path[..end]].concat().join("/"));
            used.extend(prefixes.rev().find(|it| sources.contains_key(it)));
        }
    }
    used
}

/// Returns the lines of code without comments, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    (1..).zip(lines)
}

fn impure(name: &str, text: &str) -> Vec<String> {
    let words = |(number, line)| {
        let words = FORBIDDEN.into_iter().filter(move |word| str::contains(line, *word));
        words.map(move |word| format!("{name}.rs:{number}: {word}"))
    };
    code(text).flat_map(words).collect()
}
