//! No cycles between the modules of any crate, at any depth: a module can be read, tested and moved
//! without the modules that use it.
//!
//! A module and the files in its folder are one unit: they may use each other. The modules in one
//! folder may not use each other in a cycle, neither directly nor through modules inside them. At the
//! top of a crate the root is a module like the others: it uses all of them, so none may use an item
//! of the root.
//!
//! The test reads `crate::…` and `super::…` paths from the sources. A name that a module re-exports
//! from a module in its folder counts as a use of the latter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The node that stands for `lib.rs` or `main.rs`.
const ROOT: &str = "(root)";

/// The path of a module: empty for the root of the crate.
type Module = Vec<String>;

/// The modules in one folder that each of them uses, each with a file that does.
type Uses = BTreeMap<String, BTreeMap<String, PathBuf>>;

#[test]
fn no_crate_has_a_cycle_between_its_modules() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let mut cycles = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let sources = Sources::read(&folder.join("src"));
        cycles.extend(sources.cycles().into_iter().map(|cycle| format!("{name}: {cycle}")));
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
    let cycles = || Sources::read(folder.path()).cycles().join("\n");
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Item;\n");
    write("a.rs", "use crate::{b::{self, X}, c};\n");
    write(
        "b.rs",
        "// crate::a is only mentioned\nmod inner;\nmod other;\npub(crate) use other::Y;\n\
         #[cfg(test)]\nmod tests { use crate::a; }\n",
    );
    write("b/inner.rs", "use super::X;\n");
    write("b/other.rs", "");
    write("c.rs", "");
    assert_eq!(cycles(), "");

    write("b/inner.rs", "fn f() { super::super::a::g() }\n");
    assert_eq!(cycles(), "a uses b (in a.rs), b uses a (in inner.rs)");

    write("b/inner.rs", "use crate::Item;\n");
    assert!(cycles().contains(ROOT), "{}", cycles());

    // Deeper: directly, from a module inside, in braces, and through a name of the parent.
    for used in ["super::other::f()", "crate::b::{other::{self, f}}", "super::{X, Y}"] {
        write("b/inner.rs", "mod deep;\n");
        write("b/other.rs", "use super::inner;\n");
        write("b/inner/deep.rs", &format!("use super::{used};\n").replace("super::crate", "crate"));
        assert_eq!(cycles(), "b: inner uses other (in deep.rs), other uses inner (in other.rs)");
    }
    // A module and the files in its folder may use each other.
    write("b/inner.rs", "mod deep;\nuse deep::D;\nstruct I;\n");
    write("b/inner/deep.rs", "use super::I;\n");
    assert_eq!(cycles(), "");
}

/// The modules of a crate.
struct Sources {
    modules: BTreeMap<Module, Source>,
}

struct Source {
    file: PathBuf,
    /// The text without comments and tests.
    code: String,
}

// === impl Sources ===

impl Sources {
    fn read(folder: &Path) -> Self {
        let mut files = Vec::new();
        list(folder, &mut files);
        let source = |file: PathBuf| {
            let code = code_of(&std::fs::read_to_string(&file).unwrap());
            (path_of(folder, &file), Source { file, code })
        };
        Self { modules: files.into_iter().map(source).collect() }
    }

    /// Returns the first cycle in each folder.
    fn cycles(&self) -> Vec<String> {
        let mut folders: BTreeMap<Module, Uses> = BTreeMap::new();
        let top = self.modules.keys().filter(|module| module.len() == 1);
        let root = self.modules.get(&Module::new());
        let lib = root.map_or_else(PathBuf::new, |source| source.file.clone());
        let of_root = top.map(|module| (module[0].clone(), lib.clone())).collect();
        folders.entry(Module::new()).or_default().insert(ROOT.into(), of_root);
        for (module, source) in self.modules.iter().filter(|(module, _)| !module.is_empty()) {
            for used in self.used_by(module, &source.code) {
                let shared =
                    module.iter().zip(&used).take_while(|(one, other)| one == other).count();
                let by = module.get(shared);
                let used = match used.get(shared) {
                    Some(name) => Some(name.as_str()),
                    None if shared == 0 => Some(ROOT),
                    None => None,
                };
                let (Some(by), Some(used)) = (by, used) else { continue };
                let uses = folders.entry(module[..shared].to_vec()).or_default();
                let uses = uses.entry(by.clone()).or_default();
                uses.entry(used.into()).or_insert_with(|| source.file.clone());
            }
        }
        let cycle = |(folder, uses): (&Module, &Uses)| {
            let cycle = describe(&find_cycle(uses)?, uses);
            Some(if folder.is_empty() { cycle } else { format!("{}: {cycle}", folder.join("::")) })
        };
        folders.iter().filter_map(cycle).collect()
    }

    /// Returns the modules that a module uses. An item of the crate's root counts as the root.
    fn used_by(&self, module: &Module, code: &str) -> Vec<Module> {
        let paths = paths_in(code, module);
        paths.into_iter().map(|path| self.module_of(module, path)).collect()
    }

    /// Returns the module that has the item of this path, for a use in `module`.
    fn module_of(&self, module: &Module, path: Vec<String>) -> Module {
        let known = (0..=path.len()).rev().find(|end| self.modules.contains_key(&path[..*end]));
        let (owner, rest) = path.split_at(known.unwrap_or(0));
        let is_folder_of_the_user = !owner.is_empty() && module.starts_with(owner);
        if let (true, Some(name)) = (is_folder_of_the_user, rest.first())
            && let Some(source) = self.modules.get(owner)
            && let Some(child) = re_exported(&source.code, name)
        {
            let child = [owner, &[child]].concat();
            if self.modules.contains_key(&child) {
                return child;
            }
        }
        owner.to_vec()
    }
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
fn path_of(source: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(source).unwrap().with_extension("");
    let path: Module = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path == ["lib"] || path == ["main"] { Module::new() } else { path }
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

/// Returns the paths from the crate's root that the code of a module uses.
fn paths_in(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let starts = ["crate::", "super::"].map(|start| code.match_indices(start));
    for (at, start) in starts.into_iter().flatten() {
        // The middle of a longer path or name.
        let is_start = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        if !is_start {
            continue;
        }
        let mut base = if start == "crate::" { Vec::new() } else { module.to_vec() };
        let mut rest = &code[at..];
        rest = rest.strip_prefix("crate::").unwrap_or(rest);
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        paths.extend(tree(rest).into_iter().map(|path| [base.clone(), path].concat()));
    }
    paths
}

/// Returns the paths of a tree such as `a::{b, c::d}`. An alias is left out.
fn tree(text: &str) -> Vec<Vec<String>> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        return branches(group).into_iter().flat_map(tree).collect();
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name == "self" {
        return vec![Vec::new()];
    }
    let name = vec![name.to_owned()];
    match rest.strip_prefix("::") {
        Some(rest) => tree(rest).into_iter().map(|path| [name.clone(), path].concat()).collect(),
        None => vec![name],
    }
}

/// Returns the parts of a group, whose opening brace has been removed.
fn branches(group: &str) -> Vec<&str> {
    let (mut depth, mut begins, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' | ',' if depth == 0 => {
                parts.push(&group[begins..at]);
                begins = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Returns the module in a folder from which the module of the folder imports this name.
fn re_exported(code: &str, name: &str) -> Option<String> {
    code.match_indices("use ").find_map(|(at, start)| {
        let text = &code[at + start.len()..];
        let text = text.strip_prefix("self::").unwrap_or(text);
        let mut paths = tree(text).into_iter();
        paths
            .find(|path| path.len() > 1 && path.last().is_some_and(|last| last == name))?
            .into_iter()
            .next()
    })
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
