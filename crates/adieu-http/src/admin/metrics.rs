//! The metrics that `/metrics` always shows, whether or not a recorder has been installed.
//!
//! They are read at each scrape, so requests pay nothing for them, and they are available from the
//! start of the admin port to its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use adieu_core::{Readiness, Shutdown};

/// A metric: its name, its type and its help text.
type About = (&'static str, &'static str, &'static str);

const READY: About = ("adieu_ready", "gauge", "1 while the process is ready for work.");
const READINESS: About =
    ("adieu_readiness", "gauge", "1 for the current readiness of the process, 0 for the others.");
const IN_FLIGHT: About = ("adieu_in_flight", "gauge", "Work inside a gate.");
const REFUSED: About = ("adieu_refused_total", "counter", "Work refused by a gate.");
const CUT_OFF: About =
    ("adieu_cut_off_total", "counter", "Admitted work, such as answers, cut off before its end.");

const ALL: [Readiness; 6] = [
    Readiness::Starting,
    Readiness::Ready,
    Readiness::Unavailable,
    Readiness::Cordoned,
    Readiness::Draining,
    Readiness::Stopping,
];

/// Renders the metrics in the text format of Prometheus.
pub(super) fn render(shutdown: &Shutdown) -> String {
    // Gates of the same name are one series.
    let mut gates: BTreeMap<Arc<str>, [u64; 3]> = BTreeMap::new();
    for gate in shutdown.gates() {
        let [in_flight, refused, cut_off] = gates.entry(gate.name()).or_default();
        *in_flight += gate.in_flight() as u64;
        *refused += gate.refused();
        *cut_off += gate.cut_off();
    }
    let readiness = shutdown.readiness();
    let mut text = String::new();
    head(&mut text, READY);
    let _ = writeln!(text, "{} {}", READY.0, u8::from(readiness.is_ready()));
    head(&mut text, READINESS);
    for state in ALL {
        let value = u8::from(state == readiness);
        let _ = writeln!(text, "{}{{state=\"{state}\"}} {value}", READINESS.0);
    }
    for (at, about) in [IN_FLIGHT, REFUSED, CUT_OFF].into_iter().enumerate() {
        head(&mut text, about);
        for (gate, values) in &gates {
            let _ = writeln!(text, "{}{{gate=\"{}\"}} {}", about.0, escaped(gate), values[at]);
        }
    }
    text
}

fn head(text: &mut String, (name, kind, help): About) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
