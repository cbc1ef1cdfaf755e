//! Random services, from a fixed set of seeds. `compose-fuzz` runs thousands of others.

use std::path::Path;

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
        Shape::ALL.into_iter().map(|shape| Case { seed: 7, shape: Some(shape) }).collect();
    run(&cases);
}
