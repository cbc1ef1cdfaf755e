//! Start-up and its reversal: steps that start in waves, and stop in reverse.

mod assembly;
mod blocking;
mod failing;
mod hooks;
mod interrupted;
mod random;
mod starting;
mod stopping;

use std::time::Duration;

use adieu_core::{Config, Lifecycle, Report, Shutdown, StartCx, Step, StopCx};
use adieu_testkit::timeline::Timeline;
use expect_test::Expect;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests()).unwrap()
}

fn outcome(report: &Report, task: &str) -> String {
    report.phase(Lifecycle::PHASE).unwrap().task(task).unwrap().outcome.to_string()
}

/// Creates steps that take some time to start and stop, and records both.
#[derive(Clone)]
struct Notes(Timeline);

impl Notes {
    fn new() -> Self {
        Self(Timeline::new())
    }

    fn note(&self, what: impl Into<String>) {
        self.0.note(what);
    }

    /// Takes 100 ms to start and 10 ms to stop.
    fn step(&self, id: &'static str) -> Step {
        self.starting(id, async |_| {
            sleep(100).await;
            Ok(())
        })
    }

    fn starting<F, Fut>(&self, id: &'static str, start: F) -> Step
    where
        F: FnOnce(StartCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), &'static str>> + Send + 'static,
    {
        let (starting, stopping) = (self.clone(), self.clone());
        let start = async move |cx: StartCx| {
            let span = starting.0.start(format!("{id}:"));
            let ended = start(cx).await;
            span.over();
            ended
        };
        let stop = async move |(), _: StopCx| {
            let span = stopping.0.start(format!("stop {id}:"));
            sleep(10).await;
            span.over();
        };
        Step::new(id).run(start, stop)
    }

    #[track_caller]
    fn check(&self, expected: Expect) {
        expected.assert_eq(&self.0.to_string());
    }
}

async fn panics<T>(_: T) {
    panic!("a bug")
}

fn build(steps: impl IntoIterator<Item = Step>) -> Lifecycle {
    Lifecycle::builder().steps(steps).build().unwrap()
}
