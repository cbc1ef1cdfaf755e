//! Worker threads. In real time, because each has a runtime with its own clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_actors::{NodeEnding, Worker, WorkerEnding, WorkerThreads};
use adieu_core::{Config, Outcome, Reason, Shutdown};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;

use crate::frameworks::{Framework, Job, Kameo, Log, Script};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn s178_all_workers_drain_in_their_own_threads() {
    let log = Log::default();
    let actors = log.clone();
    let threads = WorkerThreads::builder("orders").count(3).start(async move |mut worker| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let books = Kameo::spawn(worker.system(), None, "books", Script::new(&actors)).await?;
        while let Some(delivery) = worker.recv().await {
            let number: usize = *delivery;
            let (log, thread) = (actors.clone(), thread.clone());
            let note = Job::new(move || async move {
                let here = std::thread::current().name().unwrap_or_default().to_owned();
                assert_eq!(here, thread);
                log.add(format!("{here} {number}"));
            });
            Kameo::send(&books, note).await;
            delivery.done();
        }
        Ok::<_, adieu_actors::SpawnError>(())
    });
    let threads = threads.unwrap();
    for number in 0..30 {
        threads.send(number % 3, number).await.unwrap();
    }
    let (report, again) = tokio::join!(threads.shutdown(LONG), threads.shutdown(LONG));
    assert!(Arc::ptr_eq(&report, &again));
    assert!(report.is_clean(), "{report}");
    let lines = log.lines();
    for number in 0..30 {
        assert!(lines.contains(&format!("orders-{} {number}", number % 3)), "{lines:?}");
    }
    assert_eq!(lines.iter().filter(|line| *line == "books stops").count(), 3);
    let merged = report.merged();
    assert_eq!(merged.node("/orders-2/user/books").unwrap().ending(), &NodeEnding::Drained);
    let late = threads.send(1, 99).await.unwrap_err();
    assert_eq!((late.to, late.message), (1, 99));
}

#[tokio::test]
async fn s179_messages_between_draining_workers_are_processed() {
    let hops = Arc::new(AtomicUsize::new(0));
    let (go, counted) = (Arc::new(Semaphore::new(0)), Arc::clone(&hops));
    let gone = Arc::clone(&go);
    let threads = WorkerThreads::builder("hops").count(3).room(4).start(async move |mut worker| {
        while let Some(delivery) = worker.recv().await {
            let left: usize = *delivery;
            drop(gone.acquire().await); // No worker continues before the drain has begun.
            counted.fetch_add(1, Ordering::Relaxed);
            if left > 0 {
                let next = (worker.index() + 1) % worker.count();
                assert!(worker.send(next, left - 1).await.is_ok(), "{left}");
            }
            delivery.done();
        }
    });
    let threads = threads.unwrap();
    for to in 0..3 {
        threads.send(to, 99_usize).await.unwrap();
    }
    let draining = tokio::spawn({
        let threads = threads.clone();
        async move { threads.shutdown(LONG).await }
    });
    while threads.send(0, 0).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(threads.send(0, 0).await.is_err(), "messages from outside are refused");
    go.close();
    let report = draining.await.unwrap();
    // Further messages may have been accepted before the drain began.
    assert!(hops.load(Ordering::Relaxed) >= 300, "{hops:?}");
    assert!(report.workers.iter().all(|worker| worker.ending == WorkerEnding::Drained), "{report}");
    assert_eq!(report.dead_letters(), 2, "only the two from outside: {report}");
}

#[tokio::test]
async fn s180_a_worker_that_panics_or_hangs_does_not_stop_the_others() {
    let log = Log::default();
    let good = log.clone();
    let (release, until) = std::sync::mpsc::channel::<()>();
    let until = std::sync::Mutex::new(until);
    let threads = WorkerThreads::builder("mixed").count(4).start(async move |mut worker| {
        let _kept = Kameo::spawn(worker.system(), None, "kept", Script::new(&good)).await?;
        while let Some(delivery) = worker.recv().await {
            let number: usize = *delivery;
            match (worker.index(), number) {
                (1, _) => panic!("in the body"),
                (2, _) => drop(until.lock().unwrap().recv()),
                (3, _) => std::future::pending().await,
                (_, number) => good.add(format!("{number}")),
            }
            delivery.done();
        }
        Ok::<_, adieu_actors::SpawnError>(())
    });
    let threads = threads.unwrap();
    for number in 0..12 {
        // The worker that panics may have ended already.
        let _ = threads.send(number % 4, number).await;
    }
    let report = threads.shutdown(Duration::from_millis(400)).await;
    let endings: Vec<&WorkerEnding> = report.workers.iter().map(|worker| &worker.ending).collect();
    use WorkerEnding::{Cut, Drained, Hung, Panicked};
    assert_eq!(endings, [&Drained, &Panicked, &Hung, &Cut], "{report}");
    let numbers: Vec<String> = log.lines();
    let numbers: Vec<&String> = numbers.iter().filter(|line| !line.ends_with("stops")).collect();
    assert_eq!(numbers, ["0", "4", "8"]);
    // Each of the last three was processing one message, and had two queued.
    let dead: Vec<u64> = report.workers.iter().map(|worker| worker.dead_letters).collect();
    assert_eq!(dead, [0, 3, 3, 3], "{report}");
    // The actors of all workers were drained, except of the one that hangs.
    assert_eq!(log.lines().iter().filter(|line| *line == "kept stops").count(), 3);
    assert!(report.to_string().contains("worker 2 hangs, and is still running"), "{report}");
    drop(release);
}

#[tokio::test]
async fn s178_a_coordinated_shutdown_drains_the_workers() {
    let config = Config::for_tests().terminate_actor_system(true);
    let shutdown = Shutdown::configured(config).unwrap();
    let threads =
        WorkerThreads::builder("orders").count(2).start(async move |mut worker: Worker<u32>| {
            while let Some(delivery) = worker.recv().await {
                let _: u32 = delivery.done();
            }
        });
    let threads = threads.unwrap();
    threads.on(&shutdown).unwrap();
    threads.send(1, 7).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let task = report.phases.iter().find_map(|phase| phase.task("stop worker threads orders"));
    assert_eq!(task.unwrap().outcome, Outcome::Finished);
    assert!(threads.send(1, 7).await.is_err());
    let none =
        WorkerThreads::builder("none").count(0).start(async |_: adieu_actors::Worker<()>| {});
    assert_eq!(
        none.unwrap_err().to_string(),
        "worker threads none were not started: their number is zero, at least one is required"
    );
}

#[tokio::test]
async fn s179_messages_from_actors_to_draining_workers_are_processed() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let (go, counted) = (Arc::new(Semaphore::new(0)), Arc::clone(&arrived));
    let gate = Arc::clone(&go);
    let log = Log::default();
    let threads = WorkerThreads::builder("forward").count(2).start(async move |mut worker| {
        let script = Script { room: Some(100), ..Script::new(&log) };
        let forwards = Kameo::spawn(worker.system(), None, "forwards", script).await?;
        let peers = worker.peers();
        while let Some(delivery) = worker.recv().await {
            let number: usize = *delivery;
            if worker.index() == 1 {
                counted.fetch_add(1, Ordering::SeqCst);
                delivery.done();
                continue;
            }
            let (peers, gate) = (peers.clone(), Arc::clone(&gate));
            let job = Job::new(move || async move {
                drop(gate.acquire().await); // No message is forwarded before the drain has begun.
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(peers.send(1, number).await.is_ok(), "{number} was refused");
            });
            assert!(Kameo::send(&forwards, job).await);
            delivery.done();
        }
        Ok::<_, adieu_actors::SpawnError>(())
    });
    let threads = threads.unwrap();
    for number in 0..50 {
        threads.send(0, number).await.unwrap();
    }
    let draining = tokio::spawn({
        let threads = threads.clone();
        async move { threads.shutdown(LONG).await }
    });
    while threads.send(1, 0).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let from_outside = arrived.load(Ordering::SeqCst);
    go.close();
    let report = draining.await.unwrap();
    assert!(arrived.load(Ordering::SeqCst) >= from_outside + 50, "{arrived:?}; {report}");
    assert_eq!(report.dead_letters(), 1, "the one from outside: {report}");
    let refused = report.workers.iter().map(|worker| worker.actors.dead_letters()).sum::<u64>();
    assert_eq!(refused, 0, "{report}");
}

#[tokio::test]
async fn s180_messages_to_a_worker_that_panicked_are_counted() {
    let threads = WorkerThreads::builder("panics").count(2).start(async move |mut worker| {
        while let Some(delivery) = worker.recv().await {
            let number: usize = *delivery;
            if worker.index() == 1 {
                panic!("on purpose");
            }
            // This worker sends to the one that has panicked, during the drain.
            worker.draining().cancelled().await;
            while worker.send(1, number).await.is_ok() {
                tokio::task::yield_now().await;
            }
            for _ in 0..4 {
                assert!(worker.send(1, number).await.is_err());
            }
            delivery.done();
        }
    });
    let threads = threads.unwrap();
    threads.send(1, 0).await.unwrap();
    threads.send(0, 0).await.unwrap();
    let report = threads.shutdown(LONG).await;
    assert_eq!(report.workers[1].ending, WorkerEnding::Panicked, "{report}");
    assert!(report.workers[1].dead_letters >= 5, "{report}");
    assert!(!report.is_clean(), "{report}");
}

#[tokio::test]
async fn s807_messages_that_a_worker_processes_at_once_can_send_until_they_are_done() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&arrived);
    let body = async move |mut worker: Worker<usize>| {
        let (peers, draining) = (worker.peers(), worker.draining());
        let mut running = FuturesUnordered::new();
        loop {
            let received = tokio::select! {
                Some(()) = running.next() => continue,
                received = worker.recv() => received,
            };
            let Some(delivery) = received else { break };
            if worker.index() == 1 {
                counted.fetch_add(1, Ordering::SeqCst);
                delivery.done();
                continue;
            }
            let (peers, draining) = (&peers, &draining);
            running.push(delivery.process(async move |number| {
                draining.cancelled().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                assert!(peers.send(1, number).await.is_ok(), "{number} was refused");
            }));
        }
        while running.next().await.is_some() {}
    };
    let threads = WorkerThreads::builder("at-once").count(2).start(body).unwrap();
    for number in 0..20 {
        threads.send(0, number).await.unwrap();
    }
    let report = threads.shutdown(LONG).await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(arrived.load(Ordering::SeqCst), 20);
}

#[tokio::test]
async fn s807_messages_that_a_worker_was_processing_at_the_deadline_are_dead_letters() {
    let body = async |mut worker: Worker<usize>| {
        let mut running = FuturesUnordered::new();
        while let Some(delivery) = worker.recv().await {
            running.push(delivery.process(async |_| std::future::pending::<()>().await));
        }
        while running.next().await.is_some() {}
    };
    let threads = WorkerThreads::builder("stuck").count(1).start(body).unwrap();
    for number in 0..20 {
        threads.send(0, number).await.unwrap();
    }
    let report = threads.shutdown(Duration::from_millis(300)).await;
    assert_eq!(report.workers[0].ending, WorkerEnding::Cut, "{report}");
    assert_eq!(report.dead_letters(), 20, "{report}");
}
