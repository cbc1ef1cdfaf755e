//! Jobs of a consumer that panic or fail while the process drains.

use std::sync::{Arc, Mutex};

use adieu_core::{Consumer, JobCx, Outcome, Reason, Report, Source};

use super::{shutdown, sleep};

/// A queue that returns its jobs at once, and records their outcomes.
#[derive(Clone, Default)]
struct Queue {
    jobs: Arc<Mutex<Vec<u64>>>,
    outcomes: Arc<Mutex<Vec<String>>>,
}

impl Source for Queue {
    type Job = u64;
    type Error = String;

    async fn take(&mut self) -> Result<Option<Vec<u64>>, String> {
        let jobs = std::mem::take(&mut *self.jobs.lock().unwrap());
        if jobs.is_empty() {
            std::future::pending::<()>().await;
        }
        Ok(Some(jobs))
    }

    async fn done(&mut self, job: &u64, outcome: &Outcome) -> Result<(), String> {
        self.outcomes.lock().unwrap().push(format!("{job} {outcome}"));
        Ok(())
    }

    async fn on_interrupted(&mut self, job: &u64) -> Result<(), String> {
        self.outcomes.lock().unwrap().push(format!("{job} interrupted"));
        Ok(())
    }

    async fn release(&mut self, jobs: Vec<u64>) -> Result<(), String> {
        self.jobs.lock().unwrap().extend(jobs);
        Ok(())
    }

    fn label(&self, job: &u64) -> Option<String> {
        Some(format!("order {job}"))
    }
}

/// Job 1 panics, job 2 returns an error, others finish. Each takes as many seconds as its number.
async fn handle(job: Arc<u64>, _: JobCx) -> Result<(), &'static str> {
    sleep(*job).await;
    match *job {
        1 => panic!("bang"),
        2 => Err("out of stock"),
        _ => Ok(()),
    }
}

/// Runs a shutdown while a consumer handles these jobs. Returns the outcomes that its source got.
async fn consume(jobs: &[u64]) -> (Arc<Report>, Vec<String>) {
    let (shutdown, queue) = (shutdown(), Queue::default());
    queue.jobs.lock().unwrap().extend(jobs);
    let source = queue.clone();
    let connect = move || std::future::ready(Ok::<_, String>(source.clone()));
    let consumer = Consumer::new("orders").concurrency(jobs.len());
    shutdown.add_consumer(consumer, connect, handle).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(queue.jobs.lock().unwrap().is_empty(), "the jobs have begun");
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let outcomes = queue.outcomes.lock().unwrap().clone();
    (report, outcomes)
}

#[tokio::test(start_paused = true)]
async fn s1413_a_job_that_panics_in_the_drain_is_named_and_one_that_fails_is_finished() {
    let (report, outcomes) = consume(&[1, 2, 3]).await;
    assert_eq!(outcomes, ["1 panicked: bang", "2 failed: out of stock", "3 finished"]);
    let text = report.to_string();
    assert!(!report.is_clean() && report.exit_code == 70, "{text}");
    assert!(text.contains("1 cut off: order 1 panicked"), "{text}");
    assert!(!text.contains("order 2") && !text.contains("order 3"), "{text}");

    let (report, outcomes) = consume(&[2, 3]).await;
    assert_eq!(outcomes, ["2 failed: out of stock", "3 finished"]);
    assert!(report.is_clean(), "{report}");
}
