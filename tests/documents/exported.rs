//! The names that the libraries export: in the facade, and in the snapshot of the public API.

use std::collections::BTreeSet;

use super::read;

/// The public names of adieu-core that are not in the facade: the guide of adapters is adieu-core.
const NOT_IN_THE_FACADE: [&str; 1] = ["adapter"];

/// Returns the names that a source file re-exports or declares as public modules, without hidden ones.
fn exported(source: &str) -> BTreeSet<String> {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let code = lines.collect::<Vec<_>>().join(" ");
    let mut names = BTreeSet::new();
    for statement in code.split(['{', ';']).filter(|text| !text.contains("doc(hidden)")) {
        let module = statement.rsplit_once("pub mod ").map(|(_, name)| name.trim());
        names.extend(module.filter(|name| is_name(name)).map(str::to_owned));
    }
    for (at, _) in code.match_indices("pub use ") {
        let attributes = code[..at].rsplit(';').next().unwrap_or_default();
        if attributes.contains("doc(hidden)") {
            continue;
        }
        let path = code[at + "pub use ".len()..].split(';').next().unwrap_or_default();
        let list =
            path.rsplit_once('{').map_or(path, |(_, list)| list.trim_end_matches([' ', '}']));
        for item in list.split(',') {
            let name = item.rsplit_once(" as ").map_or(item, |(_, alias)| alias);
            let name = name.rsplit("::").next().unwrap_or_default().trim();
            if is_name(name) && name != "self" {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Returns the exported names that the snapshot of the public API does not contain.
fn missing_from(snapshot: &str, names: &BTreeSet<String>) -> Vec<String> {
    let words: BTreeSet<&str> =
        snapshot.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    names.iter().filter(|name| !words.contains(name.as_str())).cloned().collect()
}

#[test]
fn the_facade_has_every_public_name_of_the_core() {
    let facade = exported(&read("crates/adieu/src/lib.rs"));
    let mut core = exported(&read("crates/adieu-core/src/lib.rs"));
    assert!(core.contains("Shutdown") && facade.contains("Shutdown"));
    for name in NOT_IN_THE_FACADE {
        assert!(core.remove(name), "adieu-core has no {name}");
    }
    let missing: Vec<_> = core.difference(&facade).collect();
    assert!(missing.is_empty(), "add to the list in crates/adieu/src/lib.rs: {missing:?}");
}

#[test]
fn every_exported_name_is_in_the_snapshot_of_the_public_api() {
    let mut stale = Vec::new();
    for entry in std::fs::read_dir(super::root().join("api")).unwrap() {
        let path = entry.unwrap().path();
        let library = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut names = exported(&read(format!("crates/{library}/src/lib.rs")));
        if library == "adieu-core" {
            names.extend(exported(&read("crates/adieu-core/src/adapter.rs")));
        }
        assert!(names.len() > 2, "{library}: {names:?}");
        let missing = missing_from(&read(&path), &names);
        stale.extend(missing.into_iter().map(|name| format!("{library}: {name}")));
    }
    assert!(stale.is_empty(), "run scripts/audit --update; not in api/: {stale:#?}");
}

#[test]
fn exported_names_are_found() {
    let source = "
        //! pub use a::Commented;
        pub mod adapter;
        mod private;
        pub use a::{B, c::D, e::F as G}; // pub use a::Other;
        #[cfg(x)]
        pub use h as i;
        #[doc(hidden)]
        pub use j::K;
        pub(crate) use l::M;
    ";
    let found: Vec<String> = exported(source).into_iter().collect();
    assert_eq!(found, ["B", "D", "G", "adapter", "i"]);
    assert_eq!(
        missing_from("pub use x::B\npub struct x::D<T>", &exported(source)),
        ["G", "adapter", "i"]
    );
}
