//! Subscribers of the log: spans, locks, and subscribers that panic or block.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{Config, KillAfter, Phase, Reason, Shutdown, Signal, TaskSpec};
use adieu_testkit::faults;

use super::CapturedLog;

/// Records the spans of each event, and each span that closes.
#[derive(Clone, Default)]
struct SpanNotes(Arc<Mutex<Vec<String>>>);

impl<S> tracing_subscriber::Layer<S> for SpanNotes
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_event(&self, event: &tracing::Event<'_>, cx: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().target() == "app" {
            let spans = cx.event_scope(event).into_iter().flatten();
            let names: Vec<&str> = spans.map(|span| span.name()).collect();
            self.0.lock().unwrap().push(format!("event in {}", names.join(", ")));
        }
    }

    fn on_close(&self, id: tracing::Id, cx: tracing_subscriber::layer::Context<'_, S>) {
        let name = cx.span(&id).map_or("?", |span| span.name());
        self.0.lock().unwrap().push(format!("{name} closed"));
    }
}

#[tokio::test]
async fn s400_a_task_logs_inside_spans_of_the_shutdown_the_phase_and_the_task() {
    use tracing_subscriber::layer::SubscriberExt;
    let notes = SpanNotes::default();
    let subscriber = tracing_subscriber::registry().with(notes.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let log = async |_| {
        tokio::task::yield_now().await;
        tracing::info!(target: "app", "working");
    };
    shutdown.add_task(Phase::SERVICE_UNBIND, "one", log).unwrap();
    shutdown.add_task(Phase::SERVICE_STOP, "two", log).unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    let expected = [
        "event in task, phase, shutdown",
        "task closed",
        "phase closed",
        "event in task, phase, shutdown",
        "task closed",
        "phase closed",
        "shutdown closed",
    ];
    for _ in 0..5_000 {
        // The log thread closes the last spans.
        if notes.0.lock().unwrap().len() >= expected.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(*notes.0.lock().unwrap(), expected);
}

/// Panics when a span is opened, entered, left or closed, depending on `at`.
struct HostileSpans {
    at: usize,
}

impl HostileSpans {
    fn act(&self, at: usize) {
        assert_ne!(self.at, at, "a subscriber that panics");
    }
}

impl tracing::Subscriber for HostileSpans {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.act(0);
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {
        self.act(1);
    }
    fn exit(&self, _: &tracing::span::Id) {
        self.act(2);
    }
    fn try_close(&self, _: tracing::span::Id) -> bool {
        self.act(3);
        true
    }
}

#[tokio::test]
async fn s190_a_subscriber_that_panics_in_a_span_loses_only_the_span() {
    for at in 0..4 {
        let _guard = tracing::subscriber::set_default(HostileSpans { at });
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        shutdown
            .add_task(Phase::SERVICE_STOP, "work", async |_| tokio::task::yield_now().await)
            .unwrap();
        shutdown.add_blocking_task(Phase::SERVICE_STOP, "thread", |_| ()).unwrap();
        shutdown.add_task(Phase::CLOSE_RESOURCES, "later", async |_| ()).unwrap();
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert!(report.is_clean(), "at {at}: {report}");
    }
}

// A subscriber may query the status of the shutdown.
#[tokio::test]
async fn s570_lines_are_logged_outside_of_locks() {
    struct Asks(Mutex<Option<Shutdown>>);
    impl tracing::Subscriber for Asks {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            if let Some(shutdown) = &*self.0.lock().unwrap() {
                let _ = (shutdown.status(), shutdown.tasks(), shutdown.check_budget());
            }
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }
    let kill_after = KillAfter::After(Duration::from_secs(4));
    let shutdown = Shutdown::configured(Config::new().kill_after(kill_after)).unwrap();
    let asks = Asks(Mutex::new(Some(shutdown.clone())));
    let _guard = tracing::subscriber::set_default(asks);
    shutdown.add_task(Phase::SERVICE_STOP, "over budget", faults::fail).unwrap();
    shutdown.install_signals_for([Signal::USR1]).unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    shutdown.remove_signals().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s570_lines_are_logged_in_order() {
    for _ in 0..100 {
        let (log, _guard) = CapturedLog::listen();
        let shutdown = Shutdown::new();
        shutdown.add_task(Phase::SERVICE_STOP, "x", async |_| ()).unwrap();
        shutdown.run(Reason::Unknown).await.unwrap();
        let text = log.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].contains("initiated") && lines[2].contains("complete"), "{text}");
    }
}

/// Calls a function for every event, and whenever a span is opened, entered, left or closed.
struct Hostile(Box<dyn Fn() + Send + Sync>);

impl tracing::Subscriber for Hostile {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        (self.0)();
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {
        (self.0)();
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        (self.0)();
    }
    fn enter(&self, _: &tracing::span::Id) {
        (self.0)();
    }
    fn exit(&self, _: &tracing::span::Id) {
        (self.0)();
    }
    fn try_close(&self, _: tracing::span::Id) -> bool {
        (self.0)();
        true
    }
}

/// Runs a shutdown with all kinds of lines: tasks in three phases, one of which fails, and a check
/// that fails before. It must end within a second.
async fn check_with(hostile: impl Fn() + Send + Sync + 'static) {
    let _guard = tracing::subscriber::set_default(Hostile(Box::new(hostile)));
    check().await;
}

/// See [`check_with`]. The subscriber has been set.
async fn check() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    shutdown.add_check("database").mark_failed("connection refused");
    adieu_core::adapter::log(&shutdown, || tracing::warn!("a line of an adapter"));
    for phase in [Phase::SERVICE_UNBIND, Phase::BEFORE_ACTOR_SYSTEM_TERMINATE] {
        shutdown.add_task(phase, "work", async |_| tokio::task::yield_now().await).unwrap();
    }
    let fails = TaskSpec::new("fails").describe(|| "this".into());
    shutdown.add_task(Phase::SERVICE_STOP, fails, faults::fail).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let failed = report.phase(&Phase::SERVICE_STOP).unwrap().task("fails").unwrap();
    assert_eq!(failed.detail.as_deref(), Some("this"), "the report lacks a description");
    assert!(report.took < Duration::from_secs(1), "{report}");
    for phase in [Phase::SERVICE_UNBIND, Phase::BEFORE_ACTOR_SYSTEM_TERMINATE] {
        let outcome = &report.phase(&phase).unwrap().outcome;
        assert_eq!(*outcome, adieu_core::Outcome::Finished, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s190_a_subscriber_that_panics_loses_only_its_lines() {
    for _ in 0..50 {
        check_with(|| panic!("a subscriber that panics")).await;
    }
}

#[tokio::test]
async fn s190_a_subscriber_that_panics_loses_only_its_lines_on_one_thread() {
    check_with(|| panic!("a subscriber that panics")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s191_a_subscriber_that_blocks_delays_only_its_lines() {
    for _ in 0..5 {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        check_with(move || {
            let _ = held.lock().unwrap().recv();
        })
        .await;
        drop(release);
    }
}

#[tokio::test]
async fn s191_a_subscriber_that_blocks_delays_only_its_lines_on_one_thread() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    check_with(move || {
        let _ = held.lock().unwrap().recv();
    })
    .await;
    drop(release);
}

/// Calls [`check`] on a runtime all of whose threads have the subscriber, as with a global one.
fn check_on_workers(hostile: impl Fn() + Send + Sync + 'static) {
    let dispatch = tracing::Dispatch::new(Hostile(Box::new(hostile)));
    let _guard = tracing::dispatcher::set_default(&dispatch);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().on_thread_start(move || {
        // For as long as the thread lives.
        std::mem::forget(tracing::dispatcher::set_default(&dispatch));
    });
    let runtime = builder.build().unwrap();
    runtime.block_on(check());
    runtime.shutdown_background(); // A thread may be blocked for ever if the check has failed.
}

#[test]
fn s1711_a_subscriber_that_blocks_in_lines_and_spans_delays_no_task() {
    for _ in 0..5 {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        check_on_workers(move || {
            let _ = held.lock().unwrap().recv();
        });
        drop(release);
    }
}

#[test]
fn s1711_a_subscriber_that_panics_in_lines_and_spans_disturbs_no_task() {
    for _ in 0..20 {
        check_on_workers(|| panic!("a subscriber that panics"));
    }
}

#[tokio::test(start_paused = true)]
async fn s579_lines_beyond_the_limit_are_dropped_and_counted() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let (log, _guard) = CapturedLog::listen_after(move || {
        let _ = held.lock().unwrap().recv();
    });
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    for line in 0..10_500 {
        adieu_core::adapter::log(&shutdown, move || tracing::info!("line {line}"));
    }
    drop(release);
    let text = log.wait_for(|text| text.contains("line 9999\n"));
    let dropped = text.lines().find(|line| line.contains("dropped")).unwrap();
    // The log thread had removed one line or none from the queue before the others were added.
    assert!(dropped.ends_with("dropped=500") || dropped.ends_with("dropped=499"), "{dropped}");
}
