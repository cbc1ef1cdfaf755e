//! Random steps, failures and signals: what always holds.

use std::sync::{Arc, Mutex};

use adieu_core::{Reason, StartCx, Step, StopCx};
use proptest::prelude::*;

use super::{build, seconds, shutdown, sleep};

/// How a start behaves, and how it reacts when it is cancelled.
#[derive(Clone, Copy, Debug)]
enum StartKind {
    Starts(u64),
    StartsWhenTold,
    Fails(u64),
    Panics(u64),
    Hangs,
}

/// How a stop behaves.
#[derive(Clone, Copy, Debug)]
enum StopKind {
    Stops(u64),
    Fails(u64),
    Panics,
    Hangs,
}

/// The observed events of steps: a step came up, its stop began, it has stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Up(usize),
    Stopping(usize),
    Stopped(usize),
}

type Log = Arc<Mutex<Vec<Seen>>>;

struct Stopped(Log, usize);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(Seen::Stopped(self.1));
    }
}

fn random_step(at: usize, on: &[usize], kinds: (StartKind, StopKind), log: &Log) -> Step {
    let (up, down) = (Arc::clone(log), Arc::clone(log));
    let start = async move |cx: StartCx| {
        match kinds.0 {
            StartKind::Starts(after) => sleep(after).await,
            StartKind::StartsWhenTold => cx.cancelled().await,
            StartKind::Fails(after) => {
                sleep(after).await;
                return Err("it was made to fail");
            }
            StartKind::Panics(after) => {
                sleep(after).await;
                panic!("it was made to panic");
            }
            StartKind::Hangs => std::future::pending().await,
        }
        up.lock().unwrap().push(Seen::Up(at));
        Ok(())
    };
    let stop = async move |(), _: StopCx| {
        down.lock().unwrap().push(Seen::Stopping(at));
        let _stopped = Stopped(down, at);
        match kinds.1 {
            StopKind::Stops(after) => sleep(after).await,
            StopKind::Fails(after) => {
                sleep(after).await;
                return Err("it was made to fail");
            }
            StopKind::Panics => panic!("it was made to panic"),
            StopKind::Hangs => std::future::pending().await,
        }
        Ok(())
    };
    let step = Step::new(format!("s{at}")).timeout(seconds(2)).run(start, stop);
    on.iter().fold(step, |step, on| step.depends_on(format!("s{on}")))
}

async fn play(
    steps: &[(Vec<usize>, StartKind, StopKind)],
    signal: Option<u64>,
    dropped: Option<u64>,
) {
    let log = Log::default();
    let earlier = |at: usize| -> Vec<usize> {
        let on = steps[at].0.iter();
        if at == 0 { Vec::new() } else { on.map(|on| on % at).collect() }
    };
    let step = |at: usize| random_step(at, &earlier(at), (steps[at].1, steps[at].2), &log);
    let lifecycle = build((0..steps.len()).map(step));
    let shutdown = shutdown();
    let after = async |millis: Option<u64>| match millis {
        Some(millis) => sleep(millis).await,
        None => std::future::pending().await,
    };
    tokio::select! {
        started = lifecycle.start(&shutdown) => {
            let up = log.lock().unwrap().iter().filter(|seen| matches!(seen, Seen::Up(_))).count();
            match started {
                Ok(()) => assert_eq!(up, steps.len()),
                Err(_) => assert_eq!(log.lock().unwrap().len(), 3 * up, "a step was not stopped"),
            }
        }
        () = after(dropped) => {}
        () = async {
            after(signal).await;
            drop(shutdown.run(Reason::Unknown));
            std::future::pending().await
        } => {}
    }
    shutdown.run(Reason::Unknown).await.unwrap();

    let log = log.lock().unwrap();
    let position = |wanted: Seen| log.iter().position(|seen| *seen == wanted);
    for at in 0..steps.len() {
        let count = |wanted: Seen| log.iter().filter(|seen| **seen == wanted).count();
        assert!(count(Seen::Up(at)) <= 1);
        assert_eq!(count(Seen::Stopping(at)), count(Seen::Up(at)), "step {at}: {log:?}");
        assert_eq!(count(Seen::Stopped(at)), count(Seen::Up(at)), "step {at}: {log:?}");
        for on in earlier(at) {
            if let Some(up) = position(Seen::Up(at)) {
                assert!(position(Seen::Up(on)).unwrap() < up, "{log:?}");
                assert!(position(Seen::Stopping(on)) > position(Seen::Stopped(at)), "{log:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn s109_in_random_runs_each_started_step_is_stopped_once_after_its_dependents(
        steps in prop::collection::vec(
            (
                prop::collection::vec(0..10usize, 0..3),
                prop_oneof![
                    8 => (0..1_500u64).prop_map(StartKind::Starts),
                    1 => Just(StartKind::StartsWhenTold),
                    1 => (0..1_500u64).prop_map(StartKind::Fails),
                    1 => (0..1_500u64).prop_map(StartKind::Panics),
                    1 => Just(StartKind::Hangs),
                ],
                prop_oneof![
                    4 => (0..1_500u64).prop_map(StopKind::Stops),
                    1 => (0..1_500u64).prop_map(StopKind::Fails),
                    1 => Just(StopKind::Panics),
                    1 => Just(StopKind::Hangs),
                ],
            ),
            1..7,
        ),
        signal in prop::option::of(0..6_000u64),
        dropped in prop::option::weighted(0.2, 0..6_000u64),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(&steps, signal, dropped));
    }
}
