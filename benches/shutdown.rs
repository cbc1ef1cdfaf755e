//! The cost of a shutdown, compared with bare tokio on the same runtime. Times in nanoseconds.

use std::time::Instant;

use adieu::{Config, Phase, PhaseSpec, Reason, Shutdown};
use adieu_benches::counting::{Counting, allocated};
use adieu_benches::{Claim, main as bench};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    bench(
        "shutdown",
        15,
        &[
            ("tasks 1,000: adieu", || tasks(1_000)),
            ("tasks 10,000: adieu", || tasks(10_000)),
            ("tasks 10,000: JoinSet", || join_set(10_000)),
            ("tasks 100,000: adieu", || tasks(100_000)),
            ("phases 1,000: adieu", || chain(1_000)),
            ("phases 1,000: spawn and join", || spawn_and_join(1_000)),
            ("phases 1,000: the same on a worker", || on_a_worker(1_000)),
            ("register 1,000: adieu", || register(1_000)),
            ("register 100,000: adieu", || register(100_000)),
            ("bytes of 100,000 tasks", || bytes(100_000)),
        ],
        &[
            Claim {
                what: "10,000 tasks in one phase, against a bare JoinSet",
                ours: "tasks 10,000: adieu",
                against: Some("tasks 10,000: JoinSet"),
                per: (1.0, 1.0),
                at_most: 1.5,
            },
            Claim {
                what: "cost of a task at 100,000, against at 1,000",
                ours: "tasks 100,000: adieu",
                against: Some("tasks 1,000: adieu"),
                per: (100_000.0, 1_000.0),
                at_most: 1.5,
            },
            Claim {
                what: "a chain of 1,000 phases, against spawning and joining 1,000 tasks in turn",
                ours: "phases 1,000: adieu",
                against: Some("phases 1,000: spawn and join"),
                per: (1.0, 1.0),
                at_most: 3.0,
            },
            Claim {
                what: "the same, against doing that on a worker thread",
                ours: "phases 1,000: adieu",
                against: Some("phases 1,000: the same on a worker"),
                per: (1.0, 1.0),
                at_most: f64::INFINITY, // No limit: each phase wakes a sleeping worker.
            },
            Claim {
                what: "cost of registering a task at 100,000, against at 1,000",
                ours: "register 100,000: adieu",
                against: Some("register 1,000: adieu"),
                per: (100_000.0, 1_000.0),
                at_most: 1.5,
            },
            Claim {
                what: "bytes for each registered task",
                ours: "bytes of 100,000 tasks",
                against: None,
                per: (100_000.0, 1.0),
                at_most: 1_024.0,
            },
        ],
    );
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

fn with_tasks(tasks: usize) -> Shutdown {
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a shutdown");
    for _ in 0..tasks {
        shutdown.add_task(Phase::SERVICE_STOP, "nothing", async |_| ()).expect("a task");
    }
    shutdown
}

fn run(runtime: &Runtime, shutdown: &Shutdown) -> f64 {
    let began = Instant::now();
    let report = runtime.block_on(shutdown.run(Reason::Unknown)).expect("a report");
    let took = began.elapsed();
    assert!(report.is_clean());
    took.as_secs_f64() * 1e9
}

fn tasks(tasks: usize) -> f64 {
    let runtime = runtime();
    let _entered = runtime.enter();
    run(&runtime, &with_tasks(tasks))
}

fn join_set(tasks: usize) -> f64 {
    let runtime = runtime();
    let began = Instant::now();
    runtime.block_on(async {
        let mut set = JoinSet::new();
        for _ in 0..tasks {
            set.spawn(async {});
        }
        while set.join_next().await.is_some() {}
    });
    began.elapsed().as_secs_f64() * 1e9
}

fn chain(phases: usize) -> f64 {
    let runtime = runtime();
    let _entered = runtime.enter();
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a shutdown");
    for phase in 0..phases {
        let mut spec = PhaseSpec::new(format!("{phase}"));
        if phase > 0 {
            spec = spec.after(format!("{}", phase - 1));
        }
        shutdown.add_phase(spec).expect("a phase");
        shutdown.add_task(format!("{phase}"), "nothing", async |_| ()).expect("a task");
    }
    run(&runtime, &shutdown)
}

fn spawn_and_join(tasks: usize) -> f64 {
    let runtime = runtime();
    let began = Instant::now();
    runtime.block_on(async {
        let mut set = JoinSet::new();
        for _ in 0..tasks {
            set.spawn(async {});
            set.join_next().await;
        }
    });
    began.elapsed().as_secs_f64() * 1e9
}

fn on_a_worker(tasks: usize) -> f64 {
    let runtime = runtime();
    let began = Instant::now();
    let worker = runtime.spawn(async move {
        let mut set = JoinSet::new();
        for _ in 0..tasks {
            set.spawn(async {});
            set.join_next().await;
        }
    });
    runtime.block_on(worker).expect("it ends");
    began.elapsed().as_secs_f64() * 1e9
}

fn register(tasks: usize) -> f64 {
    let began = Instant::now();
    let shutdown = with_tasks(tasks);
    let took = began.elapsed();
    assert_eq!(shutdown.tasks().len(), tasks);
    took.as_secs_f64() * 1e9
}

fn bytes(tasks: usize) -> f64 {
    let before = allocated();
    let shutdown = with_tasks(tasks);
    let after = allocated();
    drop(shutdown);
    after - before
}
