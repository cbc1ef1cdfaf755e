//! One test for each numbered promise of SEMANTICS.md that needs no process of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounts;
mod config;
mod deadline;
mod endings;
mod gate;
mod lifecycle;
mod logging;
mod loops;
mod outlived;
mod plan;
mod readiness;
mod running;
mod signals;
mod tasks;

use expect_test::Expect;

/// Plays a scenario and compares its timeline.
async fn check(scenario: &str, expected: Expect) {
    expected.assert_eq(&adieu_testkit::scenario::play(scenario).await);
}
