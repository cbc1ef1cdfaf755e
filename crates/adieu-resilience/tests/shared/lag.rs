//! How late this process is scheduled: what a busy machine adds to every time that a test measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

const TICK: Duration = Duration::from_millis(1);

/// Measures, on a thread and on the runtime, how much longer than a tick a pause takes.
pub(crate) struct Lag {
    worst: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Lag {
    pub(crate) fn start() -> Self {
        let (worst, mut tasks) = (Arc::<AtomicU64>::default(), JoinSet::new());
        let (thread, task) = (Arc::clone(&worst), Arc::clone(&worst));
        std::thread::spawn(move || {
            loop {
                let began = now();
                std::thread::sleep(TICK);
                note(&thread, now() - began);
            }
        });
        tasks.spawn(async move {
            loop {
                let began = now();
                tokio::time::sleep(TICK).await;
                note(&task, now() - began);
            }
        });
        Self { worst, _task: tasks }
    }

    /// The worst lag since this was last called, in microseconds.
    pub(crate) fn take(&self) -> u64 {
        self.worst.swap(0, Ordering::Relaxed)
    }
}

fn note(worst: &AtomicU64, took: Duration) {
    let late = took.saturating_sub(2 * TICK).as_micros();
    worst.fetch_max(u64::try_from(late).unwrap(), Ordering::Relaxed);
}

#[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
fn now() -> Instant {
    Instant::now()
}
