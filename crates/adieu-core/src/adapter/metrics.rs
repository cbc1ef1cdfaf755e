//! Metrics in the text format of Prometheus.

use std::fmt::{Display, Write as _};

/// Metrics in the text format of Prometheus.
///
/// ```
/// use adieu_core::adapter::Metrics;
///
/// let mut metrics = Metrics::default();
/// let mut nodes = metrics.gauge("cluster_nodes", "Nodes of the cluster.");
/// nodes.sample(&[("state", "up")], 3);
/// nodes.sample(&[("state", "leaving")], 1);
/// let text = metrics.to_string();
/// assert!(text.starts_with("# HELP cluster_nodes Nodes of the cluster.\n# TYPE cluster_nodes gauge\n"));
/// assert!(text.ends_with("cluster_nodes{state=\"up\"} 3\ncluster_nodes{state=\"leaving\"} 1\n"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    text: String,
}

/// The samples of one metric. The format requires that they stand together.
#[derive(Debug)]
pub struct Family<'a> {
    name: &'a str,
    text: &'a mut String,
}

// === impl Metrics ===

impl Metrics {
    /// Begins a metric whose value can rise and fall.
    pub fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "gauge", help)
    }

    /// Begins a metric whose value only rises. Its name ends with `_total`.
    pub fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "counter", help)
    }

    fn family<'a>(&'a mut self, name: &'a str, kind: &str, help: &str) -> Family<'a> {
        let text = &mut self.text;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { name, text }
    }

    /// Adds text that is already in this format.
    pub fn append(&mut self, text: &str) {
        self.text += text;
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

impl Display for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

// === impl Family ===

impl Family<'_> {
    /// Adds a sample. Any characters are allowed in the values of labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let Self { name, text } = self;
        text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(text, "{before}{label}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{after} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_appended_text_ends_with_a_line() {
        let mut metrics = Metrics::default();
        metrics.append("");
        let mut family = metrics.counter("x_total", "Help.");
        family.sample(&[], 1.5);
        family.sample(&[("a", "b\"c\\\nd"), ("e", "f")], 2);
        metrics.append("up 1");
        let expected = "# HELP x_total Help.\n# TYPE x_total counter\nx_total 1.5\n\
                        x_total{a=\"b\\\"c\\\\\\nd\",e=\"f\"} 2\nup 1\n";
        assert_eq!(metrics.to_string(), expected);
    }
}
