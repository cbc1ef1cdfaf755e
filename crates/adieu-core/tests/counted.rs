//! Metrics. A test binary of its own, because the recorder is global to the process.

#![cfg(feature = "metrics")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{Phase, Reason, Shutdown};
use adieu_testkit::faults;
use expect_test::expect;
use metrics::{Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata};
use metrics::{Recorder, SharedString, Unit};

#[derive(Clone, Default)]
struct Counted(Arc<Mutex<Vec<String>>>);

struct Metric(Counted, String);

impl CounterFn for Metric {
    fn increment(&self, by: u64) {
        self.0.0.lock().unwrap().push(format!("{} +{by}", self.1));
    }
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.0.0.lock().unwrap().push(format!("{} {value}", self.1));
    }
}

impl Counted {
    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels: Vec<_> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
        Arc::new(Metric(self.clone(), format!("{} {}", key.name(), labels.join(" "))))
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let metric = self.metric(key);
        assert!(!metric.1.contains("reason=cluster-downing"), "a recorder that panics");
        Counter::from_arc(metric)
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key))
    }
}

/// Both promises in one test, because they share the recorder.
#[tokio::test(start_paused = true)]
async fn s54_events_are_counted_and_s190_a_recorder_that_panics_loses_only_its_value() {
    let counted = Counted::default();
    metrics::set_global_recorder(counted.clone()).unwrap();
    let count = async |reason: Reason, figures: usize| {
        let shutdown = Shutdown::new();
        shutdown.add_task(Phase::SERVICE_STOP, "slow", faults::hang).unwrap();
        shutdown.run(reason).await.unwrap();
        // Fast, unless a panic prints its backtrace.
        while counted.0.lock().unwrap().len() < figures {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::take(&mut *counted.0.lock().unwrap()).join("\n")
    };
    let expected = expect![[r#"
        adieu_task_failures_total phase=service-stop task=slow outcome=timed-out +1
        adieu_task_failure_seconds phase=service-stop task=slow outcome=timed-out 5.2
        adieu_phase_seconds phase=service-stop outcome=timed-out 5.2
        adieu_shutdown_completed_total outcome=unclean +1
        adieu_shutdown_seconds outcome=unclean 5.2"#]];
    let text = count(Reason::Unknown, 6).await;
    let rest = text.strip_prefix("adieu_shutdown_initiated_total reason=unknown +1\n");
    expected.assert_eq(rest.unwrap_or(&text));
    expected.assert_eq(&count(Reason::ClusterDowning, 5).await);
}
