//! How a process that a test has started finds its order, and how it reports its end.

use adieu_core::Report;
use serde::de::DeserializeOwned;

/// Runs the order that is in this variable. Returns at once in the test process itself, which has none.
pub(crate) fn run_order<O: DeserializeOwned, F: Future<Output = ()>>(
    variable: &str,
    run: impl FnOnce(O) -> F,
) {
    let Ok(order) = std::env::var(variable) else { return };
    let order = serde_json::from_str(&order).unwrap();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(order));
}

#[expect(clippy::print_stdout, reason = "the test that started this process reads it")]
pub(crate) fn print_end(report: &Report) {
    println!("@ended {} clean={}", report.reason, report.is_clean());
    println!("{report}");
}
