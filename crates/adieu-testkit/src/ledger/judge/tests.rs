//! The judge detects each kind of dishonest run, and accepts honest ones.

use adieu_core::{ExitCode, Report};
use serde_json::json;

use crate::ledger::{Charge, Fact, Ledger, Run, Verdict};

fn report(outcome: &str, exit_code: u8, tasks: &[(&str, &str)]) -> Report {
    let tasks: Vec<_> = tasks
        .iter()
        .map(|(name, error)| {
            let outcome = match *error {
                "" => json!({ "kind": "finished" }),
                error => json!({ "kind": "failed", "error": error }),
            };
            json!({ "name": name, "outcome": outcome, "started_ms": 0, "took_ms": 1 })
        })
        .collect();
    serde_json::from_value(json!({
        "outcome": { "kind": outcome },
        "reason": "SIGTERM",
        "started_at": "2026-01-01T00:00:00Z",
        "took_ms": 1,
        "allowed_ms": 1000,
        "exit_code": exit_code,
        "phases": [{
            "name": "actor-system-terminate",
            "outcome": { "kind": "finished" },
            "depends_on": [],
            "timeout_ms": 10,
            "started_ms": 0,
            "took_ms": 1,
            "tasks": tasks,
        }],
    }))
    .unwrap()
}

fn clean() -> Report {
    report("clean", ExitCode::CLEAN, &[("terminate actor system shop", "")])
}

fn unclean(error: &str) -> Report {
    report("unclean", ExitCode::UNCLEAN, &[("terminate actor system shop", error)])
}

/// Judges a run that ended with the code of its report.
fn judge(ledger: &Ledger, report: &Report) -> Verdict {
    ledger.judge(&Run { exit_code: Some(report.exit_code.into()), report: Some(report) })
}

/// A ledger in which this many of ten messages were handled.
fn messages(finished: u32) -> Ledger {
    let ledger = Ledger::new().counted("message", "dead letters");
    for id in 0..10 {
        ledger.accepted("message", id);
    }
    for id in 0..finished {
        ledger.finished("message", id);
    }
    ledger
}

#[track_caller]
fn charge(verdict: &Verdict) -> &Charge {
    let [charge] = verdict.charges() else { panic!("not one charge: {verdict}") };
    charge
}

#[test]
fn s232_a_run_that_finished_or_reports_everything_is_honest() {
    judge(&messages(10), &clean()).assert_honest();
    let error = "0 of 1 actors drained, 7 messages worked off, 3 dead letters\n  /user/a was \
                 killed, 3 dead letters";
    let verdict = judge(&messages(7), &unclean(error));
    verdict.assert_honest();
    assert_eq!((verdict.lost("message"), verdict.is_lossless()), (3, false));
    // A number that cannot be known is honest.
    for unknown in ["unknown dead letters", "dead letters: unknown", "at least 1 dead letters"] {
        judge(&messages(7), &unclean(&format!("0 of 1 actors drained, {unknown}"))).assert_honest();
    }
    judge(&Ledger::new(), &clean()).assert_honest();
}

#[test]
fn s1760_a_lower_bound_that_is_higher_than_the_loss_is_charged() {
    let lost = messages(7);
    for honest in ["at least 3 dead letters", "dead letters unknown (at least 3)"] {
        judge(&lost, &unclean(honest)).assert_honest();
    }
    for too_high in ["at least 4 dead letters", "dead letters unknown (at least 4)"] {
        let verdict = judge(&lost, &unclean(too_high));
        assert!(matches!(charge(&verdict), Charge::Overstated { lost: 3, admitted: 4, .. }));
    }
    // A bound in one text does not excuse a number in another.
    let tasks = [("terminate a", "at least 1 dead letters"), ("terminate b", "3 dead letters")];
    let verdict = judge(&lost, &report("unclean", ExitCode::UNCLEAN, &tasks));
    assert!(matches!(charge(&verdict), Charge::Overstated { lost: 3, admitted: 4, .. }));
    let tasks = [("terminate a", "unknown dead letters"), ("terminate b", "4 dead letters")];
    let verdict = judge(&lost, &report("unclean", ExitCode::UNCLEAN, &tasks));
    assert!(matches!(charge(&verdict), Charge::Overstated { lost: 3, admitted: 4, .. }));
}

#[test]
fn s1761_an_id_is_not_named_by_a_longer_one() {
    let ledger = Ledger::new();
    ledger.record(Fact::Cut, "answer", "GET /large/1");
    let verdict = judge(&ledger, &unclean("answers cut: GET /large/17"));
    assert!(matches!(charge(&verdict), Charge::Understated { lost: 1, admitted: 0, .. }));
    for text in ["answers cut: GET /large/17, GET /large/1", "\"GET /large/1\" cut"] {
        judge(&ledger, &unclean(text)).assert_honest();
    }
    let ledger = Ledger::new();
    ledger.accepted("job", 7);
    assert!(!judge(&ledger, &unclean("job 17 is lost")).is_honest());
    judge(&ledger, &unclean("job 7 is lost")).assert_honest();
}

#[test]
fn s232_refused_and_returned_work_is_not_lost() {
    let ledger = Ledger::new();
    ledger.refused("order", 1);
    ledger.accepted("job", 2);
    ledger.record(Fact::Returned, "job", 2);
    let verdict = judge(&ledger, &clean());
    verdict.assert_honest();
    assert_eq!((verdict.tally("order").refused, verdict.tally("job").returned), (1, 1));
}

#[test]
fn s232_lost_work_with_a_clean_outcome_is_charged() {
    let verdict = judge(&messages(9), &clean());
    let expected = Charge::LostBehindClean { kind: "message".into(), ids: vec!["9".into()] };
    assert_eq!(*charge(&verdict), expected);
    assert_eq!(charge(&verdict).to_string(), "lost message 9, and the outcome is clean");
}

#[test]
fn s232_a_count_that_is_too_low_or_too_high_is_charged() {
    let verdict = judge(&messages(5), &unclean("10 messages worked off, 0 dead letters"));
    assert!(matches!(charge(&verdict), Charge::Understated { lost: 5, admitted: 0, .. }));
    // A number before other words does not count.
    let verdict = judge(&messages(5), &unclean("5 messages worked off"));
    assert!(matches!(charge(&verdict), Charge::Understated { lost: 5, admitted: 0, .. }));
    let verdict = judge(&messages(5), &unclean("6 dead letters"));
    assert!(matches!(charge(&verdict), Charge::Overstated { lost: 5, admitted: 6, .. }));
    let with_slack = messages(5).counted_up_to("message", "dead letters", 1);
    judge(&with_slack, &unclean("6 dead letters")).assert_honest();
    assert!(!judge(&with_slack, &unclean("7 dead letters")).is_honest());
    // Also if nothing was lost.
    let verdict = judge(&messages(10), &unclean("1 dead letters"));
    assert!(matches!(charge(&verdict), Charge::Overstated { lost: 0, admitted: 1, .. }));
}

#[test]
fn s232_work_in_flight_may_be_counted_too_high_but_not_too_low() {
    let ledger = Ledger::new().counted_at_least("request", "in flight");
    ledger.accepted("request", 1);
    judge(&ledger, &unclean("2 in flight, oldest 3s GET /slow")).assert_honest();
    let verdict = judge(&ledger, &unclean("0 in flight"));
    assert!(matches!(charge(&verdict), Charge::Understated { lost: 1, admitted: 0, .. }));
}

#[test]
fn s232_lost_work_that_the_report_does_not_mention_is_charged() {
    let ledger = Ledger::new().mentioned("job", "queue of jobs");
    ledger.accepted("job", 1);
    ledger.accepted("job", 2);
    judge(&ledger, &unclean("queue of jobs: not ended")).assert_honest();
    let verdict = judge(&ledger, &unclean("queue of letters: not ended"));
    assert!(matches!(charge(&verdict), Charge::Understated { lost: 2, admitted: 0, .. }));
    assert!(matches!(charge(&judge(&ledger, &clean())), Charge::LostBehindClean { .. }));
}

#[test]
fn s232_lost_work_that_the_report_does_not_name_is_charged() {
    let ledger = Ledger::new();
    ledger.record(Fact::Cut, "answer", "GET /large/1");
    ledger.record(Fact::Cut, "answer", "GET /large/2");
    let verdict = judge(&ledger, &unclean("response cut: GET /large/1"));
    assert!(matches!(charge(&verdict), Charge::Understated { lost: 2, admitted: 1, .. }));
    judge(&ledger, &unclean("responses cut: GET /large/1, GET /large/2")).assert_honest();
    // The text of a clean task does not account for losses.
    let tasks = [("cut", "timed out"), ("response cut: GET /large/1, GET /large/2", "")];
    let mentioned = report("unclean", ExitCode::UNCLEAN, &tasks);
    let verdict = judge(&ledger, &mentioned);
    assert!(matches!(charge(&verdict), Charge::Understated { admitted: 0, .. }), "{verdict}");
}

#[test]
fn s232_a_cut_answer_that_looks_complete_is_charged_even_if_reported() {
    let ledger = Ledger::new();
    ledger.record(Fact::Disguised, "answer", "GET /large");
    let verdict = judge(&ledger, &unclean("response cut: GET /large"));
    assert!(matches!(charge(&verdict), Charge::Disguised { .. }), "{verdict}");
}

#[test]
fn s232_work_that_was_refused_and_done_is_charged() {
    let ledger = Ledger::new();
    ledger.refused("order", 7);
    ledger.finished("order", 7);
    let verdict = judge(&ledger, &clean());
    assert!(matches!(charge(&verdict), Charge::RefusedYetDone { .. }), "{verdict}");
}

#[test]
fn s232_a_report_that_contradicts_itself_is_charged() {
    let verdict = judge(&messages(10), &report("clean", 0, &[("flush", "disk full")]));
    assert!(matches!(charge(&verdict), Charge::Contradiction { .. }), "{verdict}");
    let verdict = judge(&messages(10), &report("unclean", 0, &[("flush", "disk full")]));
    assert!(matches!(charge(&verdict), Charge::CodeOfOutcome { code: 0, .. }), "{verdict}");
}

#[test]
fn s232_an_exit_code_that_differs_from_the_report_is_charged() {
    for (report, exit_code) in
        [(clean(), Some(1)), (unclean("disk full"), Some(0)), (clean(), None)]
    {
        let verdict = messages(10).judge(&Run { exit_code, report: Some(&report) });
        assert!(matches!(charge(&verdict), Charge::ExitCode { .. }), "{verdict}");
    }
}

#[test]
fn s232_a_process_without_a_report_is_charged() {
    for exit_code in [Some(0), Some(72), None] {
        let verdict = messages(10).judge(&Run { exit_code, report: None });
        assert_eq!(*charge(&verdict), Charge::NoReport { exit_code });
    }
}
