//! The cost of entering and leaving a gate, compared with tokio-util's tracker. Times in nanoseconds
//! for each pair of enter and leave.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use adieu::{Deadline, Gate};
use adieu_benches::{Claim, main as bench};
use tokio_util::task::TaskTracker;

const PAIRS: u32 = 2_000_000;

fn main() {
    bench(
        "gate",
        11,
        &[
            ("1 thread: adieu", || gate(1)),
            ("1 thread: TaskTracker", || tracker(1)),
            ("1 thread: one atomic", || one_atomic(1)),
            ("2 threads: adieu", || gate(2)),
            ("2 threads: TaskTracker", || tracker(2)),
            ("2 threads: one atomic", || one_atomic(2)),
            ("last out to drained, 1,000,000 passes", last_out),
            ("bytes of a pass", || size_of::<adieu::Pass>() as f64),
        ],
        &[
            Claim {
                what: "enter and leave on one thread, against TaskTracker",
                ours: "1 thread: adieu",
                against: Some("1 thread: TaskTracker"),
                per: (1.0, 1.0),
                at_most: 0.35,
            },
            Claim {
                what: "the same on two threads at once",
                ours: "2 threads: adieu",
                against: Some("2 threads: TaskTracker"),
                per: (1.0, 1.0),
                at_most: 0.1,
            },
            Claim {
                what: "two threads at once, against one thread",
                ours: "2 threads: adieu",
                against: Some("1 thread: adieu"),
                per: (1.0, 1.0),
                at_most: 1.5,
            },
            Claim {
                what: "from the last of 1,000,000 out to drained, in nanoseconds",
                ours: "last out to drained, 1,000,000 passes",
                against: None,
                per: (1.0, 1.0),
                at_most: 1_000_000.0,
            },
            Claim {
                what: "bytes of a pass",
                ours: "bytes of a pass",
                against: None,
                per: (1.0, 1.0),
                at_most: 32.0,
            },
        ],
    );
}

/// Runs `pair` on this many threads at once. Returns the time of one pair on each thread.
fn on(threads: usize, pair: impl Fn() + Clone + Send + 'static) -> f64 {
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (start, pair) = (Arc::clone(&start), pair.clone());
            std::thread::spawn(move || {
                // One loop for both, so that the measured code is inlined into it, as it is into the
                // code of users. A call would cost as much as entering.
                let mut took = 0.0;
                for pairs in [10_000, PAIRS] {
                    start.wait();
                    let began = Instant::now();
                    for _ in 0..pairs {
                        pair();
                    }
                    took = began.elapsed().as_secs_f64() * 1e9 / f64::from(pairs);
                }
                took
            })
        })
        .collect();
    let times: Vec<f64> =
        workers.into_iter().map(|worker| worker.join().expect("a time")).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

fn gate(threads: usize) -> f64 {
    let gate = Gate::new("bench");
    on(threads, move || {
        let pass = gate.enter();
        black_box(&pass);
    })
}

fn tracker(threads: usize) -> f64 {
    let tracker = TaskTracker::new();
    on(threads, move || {
        let token = tracker.token();
        black_box(&token);
    })
}

fn one_atomic(threads: usize) -> f64 {
    let count = Arc::new(AtomicUsize::new(0));
    on(threads, move || {
        black_box(count.fetch_add(1, Ordering::AcqRel));
        black_box(count.fetch_sub(1, Ordering::AcqRel));
    })
}

fn last_out() -> f64 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let gate = Gate::new("bench");
    let mut passes: Vec<_> = (0..1_000_000).map(|_| gate.enter().expect("open")).collect();
    gate.close();
    let waiting = runtime.spawn({
        let gate = gate.clone();
        async move {
            assert_eq!(gate.drained(Deadline::after(Duration::from_secs(60))).await, 0);
            Instant::now()
        }
    });
    let last = passes.pop();
    drop(passes);
    let left = Instant::now();
    drop(last);
    let drained = runtime.block_on(waiting).expect("drained");
    drained.saturating_duration_since(left).as_secs_f64() * 1e9
}
