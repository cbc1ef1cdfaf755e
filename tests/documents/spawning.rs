//! The files that spawn tasks or threads are those of the table in ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::path::Path;

use super::{read, root, sources};

/// The libraries whose tasks and threads a shutdown must end.
const LIBRARIES: [&str; 6] = [
    "adieu-core",
    "adieu-http",
    "adieu-actors",
    "adieu-fleet",
    "adieu-cluster",
    "adieu-resilience",
];

/// The files whose `spawn` is a method of this library, which calls a file of the table.
const INDIRECT: [&str; 14] = [
    "crates/adieu-core/src/loops/wiring.rs",
    "crates/adieu-core/src/task/job.rs",
    "crates/adieu-actors/src/kameo.rs",
    "crates/adieu-actors/src/ractor/refs.rs",
    "crates/adieu-actors/src/system/spawn.rs",
    "crates/adieu-actors/src/task.rs",
    "crates/adieu-actors/src/task/mailbox.rs",
    "crates/adieu-cluster/src/entity/shard/core.rs",
    "crates/adieu-cluster/src/entity/shard/instances.rs",
    "crates/adieu-cluster/src/link/dialler.rs",
    "crates/adieu-cluster/src/link/links.rs",
    "crates/adieu-cluster/src/link/listener.rs",
    "crates/adieu-cluster/src/link/reader.rs",
    "crates/adieu-cluster/src/regions/hosted.rs",
];

/// Returns whether code outside of tests spawns. Comments do not count.
fn spawns(source: &str) -> bool {
    let of_tests = ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test"];
    let end = of_tests.iter().filter_map(|mark| source.find(mark)).min().unwrap_or(source.len());
    let lines = source[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    let calls = [".spawn(", ".spawn_on(", "::spawn(", "spawn_blocking(", "thread::Builder"];
    lines.into_iter().any(|line| {
        let is_declaration = line.contains("fn spawn");
        !is_declaration && calls.iter().any(|call| line.contains(call))
    })
}

/// Returns the files of a table whose rows begin with the name of a crate.
fn listed(document: &str) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for row in document.lines().filter(|line| line.starts_with("| `adieu-")) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let library = cells.next().unwrap_or_default().trim_matches('`');
        let places = cells.next().unwrap_or_default();
        let quoted = places.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs"));
        files.extend(quoted.map(|file| format!("crates/{library}/src/{file}")));
    }
    files
}

#[test]
fn only_the_listed_files_spawn_tasks_or_threads() {
    let mut found = BTreeSet::new();
    for library in LIBRARIES {
        let mut files = Vec::new();
        sources(&root().join("crates").join(library).join("src"), &mut files);
        // The simulated world of adieu-cluster is test code among the sources.
        let is_of_tests = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            let is_folder = |part| part == "world" || part == "tests";
            name == "tests.rs" || name == "loom_tests.rs" || path.iter().any(is_folder)
        };
        for path in files.iter().filter(|path| !is_of_tests(path) && spawns(&read(path))) {
            let relative = path.strip_prefix(root()).unwrap().to_str().unwrap();
            found.insert(relative.to_owned());
        }
    }
    let listed = listed(&read("ARCHITECTURE.md"));
    assert!(listed.len() > 20, "the table is not found: {listed:?}");
    let indirect = BTreeSet::from(INDIRECT.map(str::to_owned));
    let unlisted: Vec<_> =
        found.difference(&listed).filter(|file| !indirect.contains(*file)).collect();
    assert!(
        unlisted.is_empty(),
        "these files spawn. Add them to the table in ARCHITECTURE.md with what joins or bounds the \
         tasks: {unlisted:#?}"
    );
    let idle: Vec<_> = listed.union(&indirect).filter(|file| !found.contains(*file)).collect();
    assert!(idle.is_empty(), "these files are listed and do not spawn: {idle:#?}");
}

#[test]
fn code_that_spawns_is_found() {
    for code in ["tokio::spawn(work);", "set.spawn_on(work, &home);", "thread::Builder::new()"] {
        assert!(spawns(code), "{code}");
    }
    for code in
        ["// tokio::spawn(work);", "fn spawn(&self) {", "\n#[cfg(test)]\nmod tests { a.spawn() }"]
    {
        assert!(!spawns(code), "{code}");
    }
    let table = "| `adieu-core` | `a.rs`, `b/c.rs` | a task |\n| `other` | `d.rs` |\n";
    let files: Vec<_> = listed(table).into_iter().collect();
    assert_eq!(files, ["crates/adieu-core/src/a.rs", "crates/adieu-core/src/b/c.rs"]);
}
