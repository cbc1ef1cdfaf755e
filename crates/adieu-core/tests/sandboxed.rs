//! A process that installs a seccomp filter after it has opened a gate. In a process of its own, because
//! the refusal of a system call affects all gates that are opened later.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{Config, Deadline, Gate, Outcome, Phase, Reason, Shutdown};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Makes `membarrier` fail with EPERM on this thread, and on the threads that it starts.
fn refuse_membarrier() {
    let rules = BTreeMap::from([(libc::SYS_membarrier, Vec::new())]);
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn s550_a_gate_whose_barrier_is_refused_is_never_drained() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.with_ansi(false).finish());
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let gate = shutdown.add_gate("orders").unwrap();
    drop(gate.enter().unwrap());

    refuse_membarrier();
    let report = shutdown.run(Reason::Unknown).await.unwrap();

    assert!(gate.is_closed() && gate.enter().is_err(), "no work is admitted");
    assert!(!gate.is_drained(), "work may be inside that was not counted");
    assert!(!report.is_clean(), "{report}");
    let is_drain =
        |phase: &&adieu_core::PhaseReport| phase.name == Phase::SERVICE_REQUESTS_DONE.as_str();
    let drain = &report.phases.iter().find(is_drain).unwrap().tasks[0];
    assert!(matches!(drain.outcome, Outcome::TimedOut { .. }), "{report}");
    let detail = drain.detail.as_deref().unwrap();
    assert!(detail.starts_with("0 in flight or more (membarrier was refused"), "{detail}");

    let errors = || {
        let text = log.text();
        text.lines().filter(|line| line.contains("ERROR")).map(str::to_owned).collect::<Vec<_>>()
    };
    while errors().is_empty() {
        std::thread::sleep(Duration::from_millis(1)); // Another thread logs it.
    }
    assert_eq!(errors().len(), 1, "{}", log.text());
    assert!(errors()[0].contains("install the filter before the first gate"), "{}", log.text());

    // Gates that are opened later do not need the barrier.
    let later = Gate::new("later");
    let pass = later.enter().unwrap();
    later.close();
    assert!(!later.is_drained() && later.enter().is_err());
    drop(pass);
    assert_eq!(later.drained(Deadline::after(Duration::from_secs(1))).await, 0);
    assert!(later.is_drained());
}
