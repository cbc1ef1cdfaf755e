//! No cycles between the top modules of any crate: a module can be read, tested and moved without
//! the modules that use it.
//!
//! The test reads `crate::…` and `super::…` paths from the sources. A path to an item of the crate's
//! root counts as a use of every module, because the root uses them all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The node that stands for `lib.rs` or `main.rs`.
const ROOT: &str = "(root)";

/// The modules that each module uses, each with a file that does.
type Uses = BTreeMap<String, BTreeMap<String, PathBuf>>;

#[test]
fn no_crate_has_a_cycle_between_its_modules() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let mut cycles = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let uses = uses(&folder.join("src"));
        if let Some(cycle) = find_cycle(&uses) {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            cycles.push(format!("{name}: {}", describe(&cycle, &uses)));
        }
    }
    assert!(cycles.is_empty(), "cycles between modules:\n{}", cycles.join("\n"));
}

#[test]
fn a_cycle_is_found_and_shown_as_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Item;\n");
    write("a.rs", "use crate::{b::{self, X}, c};\n");
    write(
        "b.rs",
        "// crate::a is only mentioned\nmod inner;\n#[cfg(test)]\nmod tests { use crate::a; }\n",
    );
    write("b/inner.rs", "use super::X;\n");
    write("c.rs", "");
    assert_eq!(find_cycle(&uses(folder.path())), None);

    write("b/inner.rs", "fn f() { super::super::a::g() }\n");
    assert_eq!(find_cycle(&uses(folder.path())), Some(vec!["a".into(), "b".into(), "a".into()]));

    write("b/inner.rs", "use crate::Item;\n");
    let through_root = find_cycle(&uses(folder.path())).expect("a cycle through the root");
    assert!(through_root.contains(&ROOT.to_owned()), "{through_root:?}");
}

/// Reads which other top modules each top module uses.
fn uses(source: &Path) -> Uses {
    let mut files = Vec::new();
    list(source, &mut files);
    let modules: BTreeSet<String> = files
        .iter()
        .map(|file| path_of(source, file))
        .filter_map(|path| path.into_iter().next())
        .collect();
    let mut uses = Uses::new();
    uses.insert(
        ROOT.into(),
        modules.iter().map(|name| (name.clone(), source.join("lib.rs"))).collect(),
    );
    for file in files {
        let path = path_of(source, &file);
        let Some(top) = path.first().cloned() else { continue };
        let code = code_of(&std::fs::read_to_string(&file).unwrap());
        for name in names_at_root(&code, path.len()) {
            let used = if modules.contains(&name) { name } else { ROOT.into() };
            if used != top {
                uses.entry(top.clone()).or_default().entry(used).or_insert_with(|| file.clone());
            }
        }
    }
    uses
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

/// Returns the path of a file's module; empty for the root.
fn path_of(source: &Path, file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(source).unwrap().with_extension("");
    let path: Vec<String> =
        relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path == ["lib"] || path == ["main"] { Vec::new() } else { path }
}

/// Returns the code without comments and without the tests at its end.
fn code_of(text: &str) -> String {
    let end = text.match_indices("#[cfg(").map(|(at, _)| at).find(|at| {
        let rest = &text[*at..];
        let attribute = rest.lines().next().unwrap_or_default();
        let item = rest.lines().find(|line| !line.starts_with("#[")).unwrap_or_default();
        attribute.contains("test") && item.starts_with("mod ") && item.contains('{')
    });
    let lines = text[..end.unwrap_or(text.len())].lines();
    lines.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the names that paths use from the crate's root, in a module of this depth.
fn names_at_root(code: &str, depth: usize) -> BTreeSet<String> {
    let to_root = "super::".repeat(depth);
    let from_crate = code.match_indices("crate::").map(|(at, found)| at + found.len());
    let from_super = code
        .match_indices(&to_root)
        // Not the end of a longer path, and no deeper than the root.
        .filter(|(at, _)| !code[..*at].ends_with("::"))
        .map(|(at, found)| at + found.len());
    from_crate.chain(from_super).flat_map(|at| first_names(&code[at..])).collect()
}

/// Returns the first name of a path, or of each path in braces.
fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let Some(group) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let (mut depth, mut begins, mut names) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' | ',' if depth == 0 => {
                names.push(name(&group[begins..at]));
                begins = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the first cycle as a path that ends where it begins.
fn find_cycle(uses: &Uses) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    // Modules first, because a cycle between two of them is more specific than one through the root.
    let mut starts: Vec<&String> = uses.keys().collect();
    starts.sort_by_key(|name| *name == ROOT);
    starts.into_iter().find_map(|start| visit(start, uses, &mut Vec::new(), &mut done))
}

fn visit(
    name: &str,
    uses: &Uses,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = path.iter().position(|visited| visited == name) {
        let mut cycle = path[at..].to_vec();
        cycle.push(name.to_owned());
        return Some(cycle);
    }
    if done.contains(name) {
        return None;
    }
    path.push(name.to_owned());
    let found =
        uses.get(name).into_iter().flatten().find_map(|(used, _)| visit(used, uses, path, done));
    path.pop();
    done.insert(name.to_owned());
    found
}

fn describe(cycle: &[String], uses: &Uses) -> String {
    let steps = cycle.windows(2).map(|pair| {
        let file = &uses[&pair[0]][&pair[1]];
        format!("{} uses {} (in {})", pair[0], pair[1], file.file_name().unwrap().display())
    });
    steps.collect::<Vec<_>>().join(", ")
}
