//! Random services, from a fixed set of seeds. `compose-fuzz` runs thousands of others.

use std::path::Path;
use std::process::Command;

use adieu_tests::plan::Shape;
use adieu_tests::run::Case;

const PROGRAM: &str = env!("CARGO_BIN_EXE_compose-fuzz");

/// Runs services with these seeds, several at a time, because most of a run is waiting.
fn run(cases: &[Case]) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let take = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                while let Some(case) = cases.get(take()) {
                    if let Err(failure) = case.run(Path::new(PROGRAM)) {
                        failures.lock().unwrap().push(failure.to_string());
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n\n"));
}

fn cases(seeds: std::ops::Range<u64>) -> Vec<Case> {
    seeds.map(|seed| Case { seed, shape: None }).collect()
}

#[test]
fn s233_random_services_lose_no_accepted_work() {
    run(&cases(1..25));
}

#[test]
fn s233_more_random_services_lose_no_accepted_work() {
    run(&cases(1_001..1_025));
}

/// Runs each shape once.
#[test]
fn s233_services_of_each_shape_lose_no_accepted_work() {
    let cases: Vec<Case> =
        Shape::ALL.into_iter().map(|shape| Case { seed: 6, shape: Some(shape) }).collect();
    run(&cases);
}

/// `scripts/mutants` shows that the fuzzer finds each of these defects. That they can still be brought
/// back is checked here.
#[test]
fn each_mutant_applies_and_each_item_has_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = root.join("tests/compose/mutants");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let patch = entry.unwrap().path();
        let text = std::fs::read_to_string(&patch).unwrap();
        let found = text.lines().nth(1).unwrap_or_default();
        assert!(found.starts_with("Found as: "), "{}: no line 2 like that", patch.display());
        let applied =
            Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root).output();
        let applied = applied.expect("git, from the package of that name");
        let problem = String::from_utf8_lossy(&applied.stderr);
        assert!(applied.status.success(), "{problem}Write the defect anew: {}", patch.display());
        names.push(patch.file_name().unwrap().to_string_lossy().into_owned());
    }
    for item in 1..=9 {
        let is_of_item = |name: &String| name.starts_with(&format!("a{item}-"));
        assert!(names.iter().any(is_of_item), "no mutant of item {item}");
    }
}
