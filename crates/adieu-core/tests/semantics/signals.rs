//! Promises about signals and escalation.

use std::time::Duration;

use adieu_core::{Config, KillAfter, Outcome, Phase, Rung, Shutdown, Signal, SignalError};
use expect_test::expect;

use crate::check;

#[tokio::test]
async fn s44_installing_is_idempotent_exclusive_and_checked() {
    let shutdown = Shutdown::configured(Config::new().kill_after(KillAfter::Never)).unwrap();
    // Not SIGTERM: the test runner may need it.
    shutdown.install_signals_for([Signal::USR2, Signal::USR1]).unwrap();
    shutdown.install_signals_for([Signal::USR1, Signal::USR2, Signal::USR1]).unwrap();
    let error = shutdown.install_signals_for([Signal::USR1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to install signals: SIGUSR1, SIGUSR2 are already installed; remove them first",
    );
    shutdown.remove_signals().unwrap();
    shutdown.remove_signals().unwrap();
    shutdown.install_signals_for([Signal::USR1]).unwrap();
    shutdown.remove_signals().unwrap();

    for number in [9, 19] {
        let error = shutdown.install_signals_for([Signal::TERM, Signal::new(number)]).unwrap_err();
        assert!(matches!(error, SignalError::Uncatchable { signal } if signal.number() == number));
    }
    assert!(matches!(shutdown.install_signals_for([]), Err(SignalError::NoneNamed)));
    assert!(shutdown.install_signals_for([Signal::new(4_000)]).is_err());
}

#[tokio::test(start_paused = true)]
async fn s565_a_second_sigterm_ends_only_tasks_that_wait() {
    check(
        "@0s SIGTERM; @1s SIGTERM; before-service-unbind idles; service-stop 3s",
        expect![[r"
            0s SIGTERM
            0s before-service-unbind started
            1s SIGTERM
            1s before-service-unbind over
            1s service-stop started
            4s service-stop over
            4s shutdown over: clean
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s46_a_second_sigint_cancels_running_tasks_and_runs_the_closing_phases() {
    check(
        "@0s SIGINT; @1s SIGINT; service-unbind hangs; beside listens; service-stop 1s; \
         before-actor-system-terminate 500ms; actor-system-terminate 100ms",
        expect![[r#"
            0s SIGINT
            0s beside started
            0s service-unbind started
            1s SIGINT
            1s beside over
            1s 150ms service-unbind dropped
            1s 150ms before-actor-system-terminate started
            1s 650ms before-actor-system-terminate over
            1s 650ms actor-system-terminate started
            1s 750ms actor-system-terminate over
            1s 750ms shutdown over: unclean; service-unbind aborted; service-stop skipped: hard stop; beside cancelled
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s566_after_a_hard_stop_the_closing_phases_have_only_the_reserve() {
    check(
        "reserve 2s; @0s SIGINT; @1s SIGINT; service-stop listens; \
         before-actor-system-terminate hangs; actor-system-terminate hangs; close-resources hangs",
        expect![[r#"
            0s SIGINT
            0s service-stop started
            1s SIGINT
            1s service-stop over
            1s before-actor-system-terminate started
            1s 775ms before-actor-system-terminate dropped
            1s 775ms actor-system-terminate started
            2s 150ms actor-system-terminate dropped
            2s 150ms close-resources started
            2s 525ms close-resources dropped
            2s 525ms shutdown over: unclean; service-stop cancelled; before-actor-system-terminate timed out after 675ms; actor-system-terminate timed out after 275ms; close-resources timed out after 275ms
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s1414_the_caller_carries_out_the_exit() {
    let shutdown = Shutdown::new();
    shutdown.add_task(Phase::SERVICE_STOP, "hang", adieu_testkit::faults::hang).unwrap();
    let mut rungs = Vec::new();
    for _ in 0..4 {
        rungs.push(shutdown.receive(Signal::INT));
        assert_eq!(shutdown.receive(Signal::INT), None, "counts once");
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    use Rung::{Exit, Graceful, HardStop};
    assert_eq!(rungs, [Some(Graceful), Some(HardStop), Some(Exit), Some(Exit)]);
    let report = shutdown.completed().await.unwrap();
    assert_eq!(report.reason, "SIGINT");
}

#[tokio::test(start_paused = true)]
async fn s566_a_hard_stop_runs_the_closing_phases_even_if_a_phase_does_not_recover() {
    check(
        "@0s SIGINT; @1s SIGINT; bad listens fatal timeout 9s; actor-system-terminate 1s",
        expect![[r"
            0s SIGINT
            0s bad started
            1s SIGINT
            1s bad over
            1s actor-system-terminate started
            2s actor-system-terminate over
            2s shutdown over: unclean; bad cancelled
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn s1804_no_work_is_admitted_after_a_hard_stop() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let gate = shutdown.add_gate("orders").unwrap();
    shutdown.add_task(Phase::BEFORE_SERVICE_UNBIND, "hang", adieu_testkit::faults::hang).unwrap();
    let seen = gate.clone();
    shutdown
        .add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "work", async move |_| match seen.enter() {
            Ok(_) => Err("a request was admitted"),
            Err(_) => Ok(()),
        })
        .unwrap();
    assert_eq!(shutdown.receive(Signal::INT), Some(Rung::Graceful));
    tokio::time::sleep(Duration::from_millis(150)).await;
    drop(gate.enter().expect("the graceful shutdown has not closed the gate yet"));
    assert_eq!(shutdown.receive(Signal::INT), Some(Rung::HardStop));
    let report = shutdown.completed().await.unwrap();
    let phase = report.phase(&Phase::BEFORE_ACTOR_SYSTEM_TERMINATE).unwrap();
    assert_eq!(phase.task("work").unwrap().outcome, Outcome::Finished, "{report}");
}

#[tokio::test(start_paused = true)]
async fn s566_a_hard_stop_does_not_cancel_a_running_closing_phase() {
    check(
        "@0s SIGINT; @1s SIGINT; before-actor-system-terminate 2s; actor-system-terminate 500ms",
        expect![[r"
            0s SIGINT
            0s before-actor-system-terminate started
            1s SIGINT
            2s before-actor-system-terminate over
            2s actor-system-terminate started
            2s 500ms actor-system-terminate over
            2s 500ms shutdown over: clean
        "]],
    )
    .await;
}
