//! The metrics that `/metrics` always shows, whether or not a recorder has been installed.
//!
//! They are read at each scrape, so requests pay nothing for them, and they are available from the
//! start of the admin port to its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use adieu_core::adapter::{Family, Metrics};
use adieu_core::{Readiness, Shutdown};

const ALL: [Readiness; 6] = [
    Readiness::Starting,
    Readiness::Ready,
    Readiness::Unavailable,
    Readiness::Cordoned,
    Readiness::Draining,
    Readiness::Stopping,
];

/// Adds the metrics that the engine provides.
pub(super) fn render(shutdown: &Shutdown, metrics: &mut Metrics) {
    // Gates of the same name are one series.
    let mut gates: BTreeMap<Arc<str>, [u64; 3]> = BTreeMap::new();
    for gate in shutdown.gates() {
        let [in_flight, refused, cut_off] = gates.entry(gate.name()).or_default();
        *in_flight += gate.in_flight() as u64;
        *refused += gate.refused();
        *cut_off += gate.cut_off();
    }
    let readiness = shutdown.readiness();
    let help = "1 while the process is ready for work.";
    metrics.gauge("adieu_ready", help).sample(&[], u8::from(readiness.is_ready()));
    let help = "1 for the current readiness of the process, 0 for the others.";
    let mut states = metrics.gauge("adieu_readiness", help);
    for state in ALL {
        states.sample(&[("state", &state.to_string())], u8::from(state == readiness));
    }
    let samples = |mut family: Family<'_>, at: usize| {
        for (gate, values) in &gates {
            family.sample(&[("gate", gate)], values[at]);
        }
    };
    samples(metrics.gauge("adieu_in_flight", "Work inside a gate."), 0);
    samples(metrics.counter("adieu_refused_total", "Work refused by a gate."), 1);
    let help = "Admitted work, such as responses, cut off before its end.";
    samples(metrics.counter("adieu_cut_off_total", help), 2);
}
