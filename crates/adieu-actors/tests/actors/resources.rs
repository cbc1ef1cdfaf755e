//! Actors that use a pool. The pool is closed after them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use adieu_actors::ActorSystem;
use adieu_core::{Config, Lifecycle, Phase, Reason, Report, Shutdown, Signal, Step, StopCx};

use crate::frameworks::{Framework, Job, Log, Script};

const ORDERS: usize = 50;

/// Counts the writes while it is open, and the writes after it was closed.
#[derive(Default)]
struct Pool {
    is_closed: AtomicBool,
    written: AtomicUsize,
    refused: AtomicUsize,
}

impl Pool {
    async fn write(&self) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let count = if self.is_closed() { &self.refused } else { &self.written };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn counts(&self) -> (usize, usize) {
        (self.written.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

fn shutdown() -> Shutdown {
    let config = Config::for_tests().terminate_actor_system(true);
    Shutdown::configured(config.run_by_actor_system_terminate(true)).unwrap()
}

/// Spawns two actors on this shutdown, one below the other, and sends orders to both.
async fn take_orders<F: Framework>(shutdown: &Shutdown, pool: &Arc<Pool>) -> ActorSystem {
    let (system, log) = (ActorSystem::on(shutdown, "shop").unwrap(), Log::default());
    let front = F::spawn(&system, None, "front", Script::new(&log)).await.unwrap();
    let back = F::spawn(&system, Some(&front), "back", Script::new(&log)).await.unwrap();
    for _ in 0..ORDERS {
        for desk in [&front, &back] {
            let pool = Arc::clone(pool);
            assert!(F::send(desk, Job::new(|| async move { pool.write().await })).await);
        }
    }
    system
}

#[track_caller]
fn check(report: &Report, pool: &Pool) {
    assert_eq!(pool.counts(), (2 * ORDERS, 0), "{report}");
    assert!(pool.is_closed(), "{report}");
}

fn postgres(pool: &Arc<Pool>) -> Step {
    let pool = Arc::clone(pool);
    Step::new("postgres").stop(async move |_: StopCx| pool.close())
}

async fn s201_a_pool_that_a_step_opened_outlives_the_actors<F: Framework>() {
    let (shutdown, pool) = (shutdown(), Arc::<Pool>::default());
    let lifecycle = Lifecycle::builder().step(postgres(&pool)).build().unwrap();
    lifecycle.start(&shutdown).await.unwrap();
    let _system = take_orders::<F>(&shutdown, &pool).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    check(&report, &pool);
    assert!(report.is_clean(), "{report}");
}

async fn s201_a_pool_that_a_task_closes_outlives_the_actors<F: Framework>() {
    let (shutdown, pool) = (shutdown(), Arc::<Pool>::default());
    let closed = Arc::clone(&pool);
    let close = async move |_| closed.close();
    shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", close).unwrap();
    let _system = take_orders::<F>(&shutdown, &pool).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    check(&report, &pool);
    assert!(report.is_clean(), "{report}");
}

/// As in Akka, tasks of this phase can still send messages to actors.
async fn s201_actors_run_in_before_actor_system_terminate<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let desk = F::spawn(&system, None, "desk", Script::new(&log)).await.unwrap();
    let inner = log.clone();
    let ask = async move |_| assert!(F::send(&desk, Job::log(&inner, "asked")).await);
    shutdown.add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "ask", ask).unwrap();
    let inner = log.clone();
    let close = async move |_| inner.add("closed");
    shutdown.add_task(Phase::CLOSE_RESOURCES, "close", close).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(log.lines(), ["asked", "desk stops", "closed"]);
}

/// After a hard stop the actors have a share of the reserve, and the pool is closed after them.
async fn s201_a_hard_stop_closes_the_pool_after_the_actors<F: Framework>() {
    let (shutdown, pool) = (shutdown(), Arc::<Pool>::default());
    let lifecycle = Lifecycle::builder().step(postgres(&pool)).build().unwrap();
    lifecycle.start(&shutdown).await.unwrap();
    let _system = take_orders::<F>(&shutdown, &pool).await;
    // The drain takes 500 ms. A request that does not end delays its beginning.
    let gate = shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    for _ in 0..3 {
        let _ = shutdown.receive(Signal::TERM);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let report = shutdown.completed().await.unwrap();
    check(&report, &pool);
    drop(pass);
}

on_kameo_and_ractor![
    s201_a_pool_that_a_step_opened_outlives_the_actors,
    s201_a_pool_that_a_task_closes_outlives_the_actors,
    s201_actors_run_in_before_actor_system_terminate,
    s201_a_hard_stop_closes_the_pool_after_the_actors,
];
