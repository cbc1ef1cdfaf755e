//! Several actor systems and worker threads on one shutdown: they are drained together. Messages
//! that are lost from when the shutdown begins make it unclean.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adieu_actors::task::{Inbox, task};
use adieu_actors::{ActorSystem, NodeEnding, NodePath, Worker, WorkerThreads};
use adieu_core::{Config, Phase, Reason, Shutdown};
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Kameo, Log, Ractor, Script, Tasks};

fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests().terminate_actor_system(true)).unwrap()
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Counts how often it is increased.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Counter {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A job that takes a moment, and then sends a job to another actor, which counts it.
fn forwarding<F: Framework>(to: &F::Ref, done: &Counter) -> Job {
    let (to, done) = (to.clone(), done.clone());
    Job::new(move || async move {
        pause().await;
        F::send(&to, Job::new(move || async move { done.add() })).await;
    })
}

async fn s440_actors_of_one_system_send_to_an_idle_system<F: Framework>() {
    let (shutdown, log, done) = (shutdown(), Log::default(), Counter::default());
    let one = ActorSystem::on(&shutdown, "one").unwrap();
    let two = ActorSystem::on(&shutdown, "two").unwrap();
    let front = F::spawn(&one, None, "front", Script::new(&log)).await.unwrap();
    let back = F::spawn(&two, None, "back", Script::new(&log)).await.unwrap();
    for _ in 0..20 {
        assert!(F::send(&front, forwarding::<F>(&back, &done)).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(done.get(), 20, "{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!(two.dead_letter_count(), 0);
    assert_eq!(two.terminated().await.drained(), 20);
    assert_eq!(log.len(), 2, "both stop hooks have run");
}

async fn s440_systems_send_to_each_other_in_turn<F: Framework>() {
    fn ball<F: Framework>(left: u32, at: Arc<[F::Ref; 2]>, done: Counter) -> Job {
        Job::new(move || async move {
            pause().await;
            match left.checked_sub(1) {
                None => done.add(),
                Some(left) => {
                    let next = Arc::clone(&at);
                    let (to, job) = (left as usize % 2, ball::<F>(left, next, done));
                    assert!(F::send(&at[to], job).await);
                }
            }
        })
    }
    let (shutdown, log, done) = (shutdown(), Log::default(), Counter::default());
    let one = ActorSystem::on(&shutdown, "one").unwrap();
    let two = ActorSystem::on(&shutdown, "two").unwrap();
    let zero = F::spawn(&one, None, "a", Script::new(&log)).await.unwrap();
    let other = F::spawn(&two, None, "b", Script::new(&log)).await.unwrap();
    let both = Arc::new([zero, other]);
    assert!(F::send(&both[1], ball::<F>(30, Arc::clone(&both), done.clone())).await);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(done.get(), 1);
}

async fn s441_a_message_refused_at_the_end_is_in_the_report_of_its_receiver<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let one = ActorSystem::on(&shutdown, "one").unwrap();
    let two = ActorSystem::on(&shutdown, "two").unwrap();
    let back = F::spawn(&two, None, "back", Script::new(&log)).await.unwrap();
    // Its stop hook sends when the other system has stopped all its actors.
    let late = task(1, async move |mut inbox: Inbox<()>| {
        while let Some(delivery) = inbox.recv().await {
            delivery.done();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!F::send(&back, Job::forever()).await, "it has stopped");
    });
    let late = one.spawn("late", late).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean(), "{report}");
    let (first, second) = (one.terminated().await, two.terminated().await);
    assert!(first.is_clean(), "{first}");
    assert_eq!(second.node("/user/back").unwrap().dead_letters(), Some(1), "{second}");
    assert_eq!(second.dead_letters(), two.dead_letter_count());
    drop(late);
}

async fn s441_an_earlier_stop_in_the_shutdown_loses_messages<F: Framework>() {
    let (shutdown, log, done) = (shutdown(), Log::default(), Counter::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let front = F::spawn(&system, None, "front", Script::new(&log)).await.unwrap();
    let back = F::spawn(&system, None, "back", Script::new(&log)).await.unwrap();
    for _ in 0..20 {
        assert!(F::send(&front, forwarding::<F>(&back, &done)).await);
    }
    let (inside, path) = (system.clone(), NodePath::user().child("back").unwrap());
    let stop = async move |_| drop(inside.stop(&path, Duration::from_secs(2)).await);
    shutdown.add_task(Phase::SERVICE_STOP, "stop", stop).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(done.get() < 20, "the test is void");
    assert!(!report.is_clean(), "{report}");
    let report = system.terminated().await;
    assert_eq!(done.get() + report.dead_letters(), 20, "{report}");
    assert_eq!(report.dead_letters(), system.dead_letter_count());
}

async fn s441_an_actor_that_fails_in_an_earlier_phase_loses_messages<F: Framework>() {
    let (shutdown, log, done) = (shutdown(), Log::default(), Counter::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let wait = async |_| tokio::time::sleep(Duration::from_millis(300)).await;
    shutdown.add_task(Phase::SERVICE_STOP, "wait", wait).unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    for number in 0..20 {
        let done = done.clone();
        let job = Job::new(move || async move {
            pause().await;
            assert_ne!(number, 5, "on purpose");
            done.add();
        });
        assert!(F::send(&orders, job).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean(), "{report}");
    assert_eq!(done.get(), 5);
    let report = system.terminated().await;
    assert_eq!(report.dead_letters(), system.dead_letter_count());
    let node = report.node("/user/orders").unwrap();
    assert_eq!(node.ending(), &NodeEnding::EndedEarly, "{report}");
}

async fn all_messages_of_an_actor_that_failed_earlier_are_counted<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let wait = async |_| tokio::time::sleep(Duration::from_millis(300)).await;
    shutdown.add_task(Phase::SERVICE_STOP, "wait", wait).unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    for _ in 0..20 {
        let job = Job::new(|| async {
            pause().await;
            panic!("on purpose");
        });
        assert!(F::send(&orders, job).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean(), "{report}");
    let report = system.terminated().await;
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (20, 20), "{report}");
}

async fn s442_messages_lost_before_the_shutdown_do_not_fail_it<F: Framework>() {
    let (shutdown, log) = (shutdown(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let failing = F::spawn(&system, None, "failing", Script::new(&log)).await.unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    assert!(F::send(&failing, Job::new(|| async { panic!("on purpose") })).await);
    while system.tree().nodes.len() > 1 {
        pause().await;
    }
    assert!(!F::send(&failing, Job::forever()).await);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((system.terminated().await.dead_letters(), system.dead_letter_count()), (0, 2));
    drop(orders);
}

on_all_actors![
    s440_actors_of_one_system_send_to_an_idle_system,
    s440_systems_send_to_each_other_in_turn,
    s441_a_message_refused_at_the_end_is_in_the_report_of_its_receiver,
    s441_an_earlier_stop_in_the_shutdown_loses_messages,
    s441_an_actor_that_fails_in_an_earlier_phase_loses_messages,
    s442_messages_lost_before_the_shutdown_do_not_fail_it,
];

#[tokio::test(start_paused = true)]
async fn s441_all_messages_of_a_failed_actor_of_kameo_are_counted() {
    all_messages_of_an_actor_that_failed_earlier_are_counted::<Kameo>().await;
}

#[tokio::test(start_paused = true)]
async fn s441_all_messages_of_a_failed_task_are_counted() {
    all_messages_of_an_actor_that_failed_earlier_are_counted::<Tasks>().await;
}

// In real time, because each worker has a runtime with its own clock.

/// Starts one worker that counts its messages.
fn counting_worker(done: &Counter) -> WorkerThreads<u32> {
    let done = done.clone();
    let body = async move |mut worker: Worker<u32>| {
        while let Some(delivery) = worker.recv().await {
            done.add();
            delivery.done();
        }
    };
    WorkerThreads::builder("back").count(1).start(body).unwrap()
}

async fn actors_send_to_worker_threads<F: Framework>() {
    let (shutdown, log, done) = (shutdown(), Log::default(), Counter::default());
    let system = ActorSystem::on(&shutdown, "front").unwrap();
    let threads = counting_worker(&done);
    threads.on(&shutdown).unwrap();
    let front = F::spawn(&system, None, "front", Script::new(&log)).await.unwrap();
    for number in 0..20 {
        let threads = threads.clone();
        let job = Job::new(move || async move {
            pause().await;
            let _ = threads.send(0, number).await;
        });
        assert!(F::send(&front, job).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(done.get(), 20, "{report}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn s440_actors_send_to_worker_threads_of_the_shutdown() {
    actors_send_to_worker_threads::<Kameo>().await;
    actors_send_to_worker_threads::<Ractor>().await;
    actors_send_to_worker_threads::<Tasks>().await;
}

/// The sender waits for room when the drain begins.
async fn waiting_actor_sends_to_worker_threads<F: Framework>() {
    let (shutdown, log, done) = (shutdown(), Log::default(), Counter::default());
    let system = ActorSystem::on(&shutdown, "front").unwrap();
    let counts = done.clone();
    let body = async move |mut worker: Worker<u32>| {
        while let Some(delivery) = worker.recv().await {
            worker.draining().cancelled().await;
            counts.add();
            delivery.done();
        }
    };
    let threads = WorkerThreads::builder("back").count(1).room(1).start(body).unwrap();
    threads.on(&shutdown).unwrap();
    let front = F::spawn(&system, None, "front", Script::new(&log)).await.unwrap();
    let waits = Arc::new(Notify::new());
    let (to, begun, sent) = (threads.clone(), Arc::clone(&waits), log.clone());
    let job = Job::new(move || async move {
        // One message is processed, and one is queued: the last of these waits for room.
        for number in 0..3 {
            if number == 2 {
                begun.notify_one();
            }
            sent.add(format!("{}", to.send(0, number).await.is_ok()));
        }
    });
    assert!(F::send(&front, job).await);
    waits.notified().await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(log.lines()[..3], ["true", "true", "true"], "{report}");
    assert_eq!(done.get(), 3, "{report}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn s802_an_actor_that_waits_for_room_at_a_worker_when_the_drain_begins_is_not_refused() {
    waiting_actor_sends_to_worker_threads::<Kameo>().await;
    waiting_actor_sends_to_worker_threads::<Ractor>().await;
    waiting_actor_sends_to_worker_threads::<Tasks>().await;
}

#[tokio::test]
async fn s440_workers_send_to_worker_threads_and_actors_of_the_shutdown() {
    let (shutdown, log) = (shutdown(), Log::default());
    let (done, stored) = (Counter::default(), Counter::default());
    let system = ActorSystem::on(&shutdown, "store").unwrap();
    let store = Kameo::spawn(&system, None, "store", Script::new(&log)).await.unwrap();
    let back = counting_worker(&done);
    let (to, counts) = (back.clone(), stored.clone());
    let front = WorkerThreads::builder("front").count(2).start(async move |mut worker| {
        while let Some(delivery) = worker.recv().await {
            let number = *delivery;
            pause().await;
            let _ = to.send(0, number).await;
            let counts = counts.clone();
            Kameo::send(&store, Job::new(move || async move { counts.add() })).await;
            delivery.done();
        }
    });
    let front = front.unwrap();
    back.on(&shutdown).unwrap();
    front.on(&shutdown).unwrap();
    for number in 0..20 {
        front.send(number as usize % 2, number).await.unwrap();
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!((done.get(), stored.get()), (20, 20), "{report}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn s440_actors_send_to_actors_of_worker_threads() {
    let (shutdown, log, done) = (shutdown(), Log::default(), Counter::default());
    let system = ActorSystem::on(&shutdown, "front").unwrap();
    let (found, finder) = tokio::sync::oneshot::channel();
    let found = std::sync::Mutex::new(Some(found));
    let actors = log.clone();
    let threads =
        WorkerThreads::builder("back").count(1).start(async move |mut worker: Worker<u32>| {
            let script = Script::new(&actors);
            let back = Kameo::spawn(worker.system(), None, "back", script).await.unwrap();
            let _ = found.lock().unwrap().take().unwrap().send(back);
            while let Some(delivery) = worker.recv().await {
                delivery.done();
            }
        });
    let threads = threads.unwrap();
    threads.on(&shutdown).unwrap();
    let back = finder.await.unwrap();
    let front = Kameo::spawn(&system, None, "front", Script::new(&log)).await.unwrap();
    for _ in 0..20 {
        assert!(Kameo::send(&front, forwarding::<Kameo>(&back, &done)).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(done.get(), 20, "{report}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s440_a_system_with_endless_work_does_not_hold_the_others_beyond_the_deadline() {
    let (shutdown, log) = (shutdown(), Log::default());
    shutdown.set_phase_timeout(Phase::ACTOR_SYSTEM_TERMINATE, Duration::from_secs(4)).unwrap();
    let one = ActorSystem::on(&shutdown, "one").unwrap();
    let two = ActorSystem::on(&shutdown, "two").unwrap();
    let stuck = Kameo::spawn(&one, None, "stuck", Script::new(&log)).await.unwrap();
    let idle = Kameo::spawn(&two, None, "idle", Script::new(&log)).await.unwrap();
    assert!(Kameo::send(&stuck, Job::forever()).await);
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(!report.is_clean() && report.took < Duration::from_secs(5), "{report}");
    assert!(two.terminated().await.is_clean());
    assert_eq!(log.lines(), ["idle stops", "stuck stops"]);
    drop(idle);
}
