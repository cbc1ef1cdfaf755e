//! Consumers: how jobs are taken, settled and returned.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{
    Backoff, Config, Consumer, Interrupted, JobCx, KillAfter, Outcome, Phase, Reason, Shutdown,
    Signal, Source,
};
use adieu_testkit::timeline::Timeline;
use expect_test::expect;
use tokio::sync::Notify;

use super::{outcome, seconds, shutdown, sleep};

// === a queue that records the calls to it ===

#[derive(Clone)]
struct Queue {
    timeline: Timeline,
    waiting: Arc<Mutex<VecDeque<Vec<u64>>>>,
    more: Arc<Notify>,
    /// How a source behaves when it has no more jobs.
    ends: &'static str,
}

struct Taker(Queue);

impl Queue {
    fn new(timeline: &Timeline, batches: &[&[u64]]) -> Self {
        let waiting = batches.iter().map(|batch| batch.to_vec()).collect();
        let waiting = Arc::new(Mutex::new(waiting));
        Self { timeline: timeline.clone(), waiting, more: Arc::default(), ends: "waits" }
    }

    fn push(&self, batch: &[u64]) {
        self.waiting.lock().unwrap().push_back(batch.to_vec());
        self.more.notify_one();
    }

    /// For `Shutdown::add_consumer`.
    fn connect(&self) -> impl FnMut() -> std::future::Ready<Result<Taker, String>> + use<> {
        let queue = self.clone();
        move || {
            queue.timeline.note("connected");
            std::future::ready(Ok(Taker(queue.clone())))
        }
    }
}

impl Source for Taker {
    type Job = u64;
    type Error = String;

    async fn take(&mut self) -> Result<Option<Vec<u64>>, String> {
        loop {
            let batch = self.0.waiting.lock().unwrap().pop_front();
            match (batch, self.0.ends) {
                (Some(batch), _) => return Ok(Some(batch)),
                (None, "fails") => return Err("connection lost".into()),
                (None, "panics") => panic!("a bug in the client"),
                (None, "ends") => return Ok(None),
                (None, _) => self.0.more.notified().await,
            }
        }
    }

    async fn done(&mut self, job: &u64, outcome: &Outcome) -> Result<(), String> {
        self.0.timeline.note(format!("job {job} {outcome}"));
        if self.0.ends == "forgets" { Err("no such job".into()) } else { Ok(()) }
    }

    async fn on_interrupted(&mut self, job: &u64) -> Result<(), String> {
        self.0.timeline.note(format!("job {job} interrupted"));
        Ok(())
    }

    async fn release(&mut self, jobs: Vec<u64>) -> Result<(), String> {
        self.0.timeline.note(format!("returned: {jobs:?}"));
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), String> {
        self.0.timeline.note("committed");
        Ok(())
    }

    async fn leave(&mut self) -> Result<(), String> {
        self.0.timeline.note("left");
        Ok(())
    }

    fn label(&self, job: &u64) -> Option<String> {
        Some(format!("job {job}"))
    }
}

/// A job takes as many seconds as its number.
async fn take_its_time(job: Arc<u64>, _: JobCx) {
    sleep(*job).await;
}

#[tokio::test(start_paused = true)]
async fn s72_a_consumer_returns_finishes_commits_and_leaves_in_this_order() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[4, 2, 7, 8]]);
    let consumer = Consumer::new("orders").concurrency(2);
    shutdown.add_consumer(consumer, queue.connect(), take_its_time).unwrap();
    sleep(1).await;
    queue.push(&[9]);
    let completed = shutdown.run(Reason::Unknown);
    sleep(2).await;
    let waiting = shutdown.status().waiting_for[0].detail.clone();
    assert_eq!(waiting.as_deref(), Some("1 in flight, oldest 3s job 4"));
    let report = completed.await.unwrap();
    timeline.note(format!("over: {}", report.outcome));
    expect![[r#"
        0s connected
        1s returned: [7, 8]
        2s job 2 finished
        4s job 4 finished
        4s committed
        4s left
        4s over: clean
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s72_a_source_that_has_ended_is_left_for_good() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue { ends: "ends", ..Queue::new(&timeline, &[&[1, 2], &[3]]) };
    shutdown.add_consumer(Consumer::new("orders"), queue.connect(), take_its_time).unwrap();
    sleep(60).await;
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    expect![[r#"
        0s connected
        1s job 1 finished
        3s job 2 finished
        6s job 3 finished
        6s committed
        6s left
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s72_a_cordon_returns_jobs_that_have_not_begun() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[5, 1]]);
    shutdown.add_consumer(Consumer::new("orders"), queue.connect(), take_its_time).unwrap();
    sleep(1).await;
    shutdown.cordon();
    queue.push(&[2]);
    sleep(10).await;
    timeline.note("uncordoned");
    assert!(shutdown.uncordon());
    sleep(10).await;
    expect![[r#"
        0s connected
        1s returned: [1]
        5s job 5 finished
        11s uncordoned
        13s job 2 finished
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s73_a_job_is_never_dropped_and_fails_alone() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[4, 1, 2]]);
    let spans = timeline.clone();
    let handle = move |job: Arc<u64>, _: JobCx| {
        let span = spans.start(format!("{job}"));
        async move {
            sleep(*job).await;
            span.over();
            match *job {
                1 => panic!("bang"),
                2 => Err("out of stock"),
                _ => Ok(()),
            }
        }
    };
    let consumer = Consumer::new("orders").concurrency(9);
    shutdown.add_consumer(consumer, queue.connect(), handle).unwrap();
    // Jobs that arrive while others run cause `take` to be dropped and called again.
    sleep(3).await;
    queue.push(&[5]);
    sleep(1).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    expect![[r#"
        0s connected
        0s 4 started
        0s 1 started
        0s 2 started
        1s 1 over
        1s job 1 panicked: bang
        2s 2 over
        2s job 2 failed: out of stock
        3s 5 started
        4s 4 over
        4s job 4 finished
        8s 5 over
        8s job 5 finished
        8s committed
        8s left
    "#]]
    .assert_eq(&timeline.to_string());
}

/// A source of numbers, each to be handled once. Its connection fails now and then.
#[derive(Clone, Default)]
struct Ledger {
    waiting: Arc<Mutex<VecDeque<u64>>>,
    settled: Arc<Mutex<Vec<u64>>>,
    takes: Arc<AtomicU32>,
}

impl Source for Ledger {
    type Job = u64;
    type Error = String;

    async fn take(&mut self) -> Result<Option<Vec<u64>>, String> {
        tokio::task::yield_now().await;
        let mut waiting = self.waiting.lock().unwrap();
        match waiting.len() {
            0 => Ok(None),
            _ if self.takes.fetch_add(1, Ordering::Relaxed) % 11 == 10 => Err("lost".into()),
            left => Ok(Some(waiting.drain(..left.min(7)).collect())),
        }
    }

    async fn done(&mut self, job: &u64, _: &Outcome) -> Result<(), String> {
        self.settled.lock().unwrap().push(*job);
        if job.is_multiple_of(50) { Err("lost".into()) } else { Ok(()) }
    }

    async fn on_interrupted(&mut self, job: &u64) -> Result<(), String> {
        self.waiting.lock().unwrap().push_back(*job);
        Ok(())
    }

    async fn release(&mut self, jobs: Vec<u64>) -> Result<(), String> {
        self.waiting.lock().unwrap().extend(jobs);
        Ok(())
    }
}

// On several threads, with a source that fails, cordons, and a shutdown in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s73_every_job_is_settled_once_or_returned() {
    for round in 0..10 {
        let shutdown = shutdown();
        shutdown.set_phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_millis(5)).unwrap();
        let ledger = Ledger::default();
        ledger.waiting.lock().unwrap().extend(1..=500);
        let handle = async |job: Arc<u64>, cx: JobCx| {
            let work = Duration::from_micros(*job % 13 * 100);
            let work = if job.is_multiple_of(97) { seconds(60) } else { work };
            cx.interruptible(tokio::time::sleep(work)).await
        };
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));
        let consumer = Consumer::new("numbers").concurrency(4 + round).backoff(backoff);
        let connect = {
            let ledger = ledger.clone();
            move || std::future::ready(Ok::<_, String>(ledger.clone()))
        };
        shutdown.add_consumer(consumer, connect, handle).unwrap();
        for _ in 0..round {
            tokio::time::sleep(Duration::from_millis(2)).await;
            shutdown.cordon();
            tokio::task::yield_now().await;
            assert!(shutdown.uncordon());
        }
        shutdown.run(Reason::Unknown).await.unwrap();
        let mut all = ledger.settled.lock().unwrap().clone();
        all.extend(ledger.waiting.lock().unwrap().iter());
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(1..=500), "round {round}");
    }
}

/// Handles three jobs: one finishes when it is signalled, one returns that it was interrupted, and one
/// ignores the signal.
fn stubborn(timeline: &Timeline) -> impl Fn(Arc<u64>, JobCx) -> Job + Send + Sync + 'static {
    let timeline = timeline.clone();
    move |job, cx| {
        let span = timeline.start(format!("{job}"));
        Box::pin(async move {
            match *job {
                1 => cx.stops_now().await,
                2 => cx.interruptible(sleep(3_600)).await.map_err(Wrapped)?,
                _ => sleep(3_600).await,
            }
            span.over();
            Ok(())
        })
    }
}

type Job = std::pin::Pin<Box<dyn Future<Output = Result<(), Wrapped>> + Send>>;

/// An error of the application that an interruption has caused.
#[derive(Debug)]
struct Wrapped(Interrupted);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("half-way")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn s74_interrupted_jobs_are_passed_to_the_source_after_they_have_ended() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[1, 2, 3]]);
    let consumer = Consumer::new("orders").concurrency(3);
    shutdown.add_consumer(consumer, queue.connect(), stubborn(&timeline)).unwrap();
    tokio::task::yield_now().await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    timeline.note("over");
    expect![[r#"
        0s connected
        0s 1 started
        0s 2 started
        0s 3 started
        10s 1 over
        10s 2 dropped
        10s job 1 finished
        10s job 2 interrupted
        14s 100ms 3 dropped
        14s 100ms job 3 interrupted
        14s 100ms committed
        14s 100ms left
        14s 100ms over
    "#]]
    .assert_eq(&timeline.to_string());
    assert_eq!(outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave orders"), "finished");
}

#[tokio::test(start_paused = true)]
async fn s74_after_a_hard_stop_interrupted_jobs_are_passed_on_within_the_reserve() {
    let kill_after = KillAfter::After(seconds(30));
    let (unbind, done, leave) = (
        (Phase::BEFORE_SERVICE_UNBIND, 1),
        (Phase::SERVICE_REQUESTS_DONE, 1),
        // By then the loop has been signalled, and is being joined.
        (Phase::BEFORE_CLUSTER_SHUTDOWN, 7),
    );
    for (early, after) in [unbind, done, leave] {
        let timeline = Timeline::new();
        let config = Config::for_tests().kill_after(kill_after).drain_timeout(seconds(5));
        let shutdown = Shutdown::configured(config).unwrap();
        let queue = Queue::new(&timeline, &[&[3, 4]]);
        shutdown
            .add_consumer(Consumer::new("orders"), queue.connect(), stubborn(&timeline))
            .unwrap();
        shutdown.add_task(&early, "wait", async |_| sleep(4).await).unwrap();
        let _ = shutdown.receive(Signal::INT);
        sleep(after).await;
        assert_eq!(shutdown.status().waiting_for[0].phase, early.to_string());
        let _ = shutdown.receive(Signal::INT);
        shutdown.completed().await.unwrap();
        let text = timeline.to_string();
        for line in ["returned: [4]", "3 dropped", "job 3 interrupted", "committed", "left"] {
            assert!(text.contains(line), "{line}, {early}:\n{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s75_if_a_source_fails_begun_jobs_are_settled_before_a_new_one_connects() {
    let mut timelines = Vec::new();
    for (ends, error) in [("fails", "connection lost"), ("panics", "panicked: a bug in the client")]
    {
        let (shutdown, timeline) = (shutdown(), Timeline::new());
        let queue = Queue { ends, ..Queue::new(&timeline, &[&[3, 1]]) };
        let backoff = Backoff::new(seconds(2), seconds(2));
        let consumer = Consumer::new("orders").concurrency(3).backoff(backoff).seed(1);
        shutdown.add_consumer(consumer, queue.connect(), take_its_time).unwrap();
        sleep(4).await;
        queue.push(&[2]);
        sleep(2).await;
        // The source has failed again, and the consumer is still finishing its jobs.
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        let left = outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave orders");
        assert_eq!(left, format!("failed: {error}"));
        timeline.note("over");
        timelines.push(timeline.to_string());
    }
    assert_eq!(timelines[0], timelines[1]);
    expect![[r#"
        0s connected
        1s job 1 finished
        3s job 3 finished
        3s committed
        3s left
        4s 658ms connected
        6s 658ms job 2 finished
        6s 658ms committed
        6s 658ms left
        6s 658ms over
    "#]]
    .assert_eq(&timelines[0]);
}

#[tokio::test(start_paused = true)]
async fn s75_if_a_source_fails_jobs_that_have_not_begun_are_returned() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue { ends: "forgets", ..Queue::new(&timeline, &[&[2, 1, 5]]) };
    let consumer = Consumer::new("orders").seed(1);
    shutdown.add_consumer(consumer, queue.connect(), take_its_time).unwrap();
    sleep(10).await;
    expect![[r#"
        0s connected
        2s job 2 finished
        2s returned: [1, 5]
        2s committed
        2s left
        2s 415ms connected
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s75_a_source_that_cannot_connect_is_retried() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[1]]);
    let mut connect = queue.connect();
    let mut tries = 0;
    let fails_twice = move || {
        tries += 1;
        let made = if tries < 3 { Err("no route".to_owned()) } else { Ok(connect()) };
        async move {
            match made {
                Ok(connecting) => connecting.await,
                Err(error) => Err(error),
            }
        }
    };
    shutdown.add_consumer(Consumer::new("orders"), fails_twice, take_its_time).unwrap();
    sleep(10).await;
    assert!(timeline.to_string().contains("job 1 finished"), "{timeline}");
}
