//! Reports to the store that a backend has recovered, if this process found that out alone.

use super::Run;
use super::answers::Answered;
use crate::breaker::Ended;
use crate::store::{Probed, Settled};
use crate::time::now;

// === impl Run ===

impl Run {
    /// A probe of this process may have succeeded while the store was away. Without a report of it, the
    /// breaker would stay open in replicas that have no call.
    pub(super) fn report_recovery(&mut self) {
        if self.recovering.is_some() || !self.is_witness() {
            return;
        }
        let circuits = self.policies().flat_map(|policy| policy.circuits());
        let found = circuits
            .filter_map(|(breaker, circuit)| Some((breaker, circuit.closed_alone()?, circuit)))
            .next();
        let Some((breaker, generation, circuit)) = found else { return };
        self.recovering = Some(generation);
        let (sent, spread) = (now(), fastrand::f64());
        let probe = self.next_probe(breaker, &circuit);
        self.ask(
            move |driver| {
                Box::pin(async move {
                    let (store, service) = (&driver.store, &driver.link.service);
                    match store.probe(service, &probe).await? {
                        Probed::Granted { generation } => {
                            let ended = Ended::Succeeded;
                            let settled = Settled { probe, generation, ended, spread };
                            store.settle(service, &settled).await.map(Some)
                        }
                        Probed::Standing(standing) => Ok(Some(standing)),
                        // The probe that is running decides, or another report after its lease.
                        Probed::Busy(_) => Ok(None),
                    }
                })
            },
            move |result| Answered::ReportedRecovery { sent, circuit, generation, result },
        );
    }
}
