//! Probes: whether each requests the right path.

use std::time::Duration;

use crate::check::place::{Finding, InputError, Level, Place};
use crate::check::supervisor::Supervisor;
use crate::check::tree::Node;
use crate::check::workload::Workload;

/// Checks the probes of a container. Returns how long the readiness probe takes to detect that the
/// process is not ready, and the place of that probe.
pub(super) fn read(
    container: &Node<'_>,
    workload: &mut Workload,
) -> Result<Option<(Duration, Place)>, InputError> {
    let is_routed = workload.routed && workload.supervisor == Supervisor::Kubernetes;
    for key in ["startupProbe", "livenessProbe"] {
        if let Some(at) = container.find(&[key, "terminationGracePeriodSeconds"]) {
            let grace = Duration::from_secs(at.number()?);
            workload.probe_graces.push((grace, at.place()));
        }
    }
    let findings = &mut workload.findings;
    let readiness = container.get("readinessProbe");
    let liveness = container.get("livenessProbe");
    let path = ["httpGet", "path"];
    let ready_at = readiness.as_ref().and_then(|probe| probe.find(&path));
    let live_at = liveness.as_ref().and_then(|probe| probe.find(&path));
    let (ready_path, live_path) =
        (ready_at.as_ref().and_then(Node::text), live_at.as_ref().and_then(Node::text));

    if readiness.is_none() && is_routed {
        let problem = "there is no readiness probe: requests arrive before the process has started";
        let advice = "add one with httpGet on /readyz";
        findings.push(Finding::new(Level::Warning, container.place(), problem, advice));
    }
    if let Some(at) = ready_at.filter(|_| ready_path == Some("/livez")) {
        let problem = "/livez succeeds during the whole drain, and does not report readiness";
        findings.push(Finding::new(Level::Warning, at.place(), problem, "use /readyz"));
    }
    if let Some(at) = live_at {
        let same = ready_path.is_some() && ready_path == live_path;
        if same || matches!(live_path, Some("/readyz" | "/healthz")) {
            let problem = "this probe also fails while the service is cordoned or a check fails: the kubelet would \
                           kill the process";
            findings.push(Finding::new(Level::Warning, at.place(), problem, "use /livez"));
        }
    }
    let Some(probe) = readiness else { return Ok(None) };
    let number = |key: &str, habit| probe.get(key).map_or(Ok(habit), |at| at.number());
    let (period, failures) = (number("periodSeconds", 10)?, number("failureThreshold", 3)?);
    let lag = period.saturating_mul(failures).saturating_add(number("timeoutSeconds", 1)?);
    Ok(Some((Duration::from_secs(lag), probe.place())))
}
