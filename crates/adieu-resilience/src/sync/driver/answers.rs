//! Applies the answers of the store, and notes whether it answers.

use std::sync::Arc;

use adieu_core::{Short, adapter};
use tokio::sync::oneshot;

use super::{Granted, Run};
use crate::breaker::{Circuit, Ended, Standing, Ticket};
use crate::link::{ASK_WITHIN, ForceFailure, Grant, Probing};
use crate::rate::{Question, Share, Taken};
use crate::state::{ForceChange, State};
use crate::store::{Force, Forced, Probe, Probed, StoreError, Synced};
use crate::time::{Instant, now};

/// The answer to a question, or that there was none.
pub(super) enum Answered {
    Synced {
        sent: Instant,
        result: Result<Synced, NoAnswer>,
    },
    Took {
        share: Arc<Share>,
        question: Question,
        result: Result<Taken, NoAnswer>,
    },
    Probed {
        sent: Instant,
        circuit: Arc<Circuit>,
        probe: Probe,
        answer: oneshot::Sender<Probing>,
        result: Result<Probed, NoAnswer>,
    },
    Settled {
        sent: Instant,
        granted: Granted,
        ended: Ended,
        result: Result<Option<Standing>, NoAnswer>,
    },
    /// `None` if another probe is running.
    ReportedRecovery {
        sent: Instant,
        circuit: Arc<Circuit>,
        generation: u64,
        result: Result<Option<Option<Standing>>, NoAnswer>,
    },
    Forced {
        sent: Instant,
        /// The epoch that was known then.
        epoch: u64,
        force: Force,
        answer: oneshot::Sender<Result<(), ForceFailure>>,
        result: Result<(), NoAnswer>,
    },
}

/// Why a question has no answer.
pub(super) enum NoAnswer {
    InTime,
    Failed(StoreError),
}

// === impl Run ===

impl Run {
    pub(super) fn on_answer(&mut self, answered: Answered) {
        match answered {
            Answered::Synced { sent, result } => {
                self.is_syncing = false;
                match self.heard(result, Some(sent)) {
                    Some(synced) => {
                        self.learn(sent, synced);
                        if !self.is_away() {
                            self.unanswered = None;
                            self.report_recovery();
                        }
                    }
                    None => self.sent.forget(),
                }
            }
            Answered::Took { share, question, result } => {
                let answer = self.heard(result, None);
                if answer.is_none() {
                    self.unanswered = Some(Arc::clone(&share));
                }
                share.on_answer(now(), question, answer, self.driver.link.sharers());
            }
            Answered::Probed { sent, circuit, probe, answer, result } => {
                self.on_probed(sent, circuit, probe, answer, result);
            }
            Answered::Settled { sent, granted, ended, result } => match self.heard(result, None) {
                Some(standing) => {
                    granted.circuit.adopt(sent, standing);
                    granted.circuit.fleet_idle(now());
                }
                None => granted.circuit.settle_alone(now(), granted.generation, ended),
            },
            Answered::ReportedRecovery { sent, circuit, generation, result } => {
                self.recovering = None;
                if let Some(Some(standing)) = self.heard(result, None) {
                    circuit.adopt(sent, standing);
                    // Otherwise more probes must succeed, or the break has not ended yet.
                    let is_open = matches!(standing,
                        Some(Standing::Open { generation: known, .. }) if known == generation);
                    if !is_open {
                        circuit.recovery_reported(generation);
                    }
                }
            }
            Answered::Forced { sent, epoch, force, answer, result } => {
                let result = match result {
                    Ok(()) => {
                        self.on_forced(sent, epoch, &force);
                        Ok(())
                    }
                    Err(NoAnswer::InTime) => Err(ForceFailure::NoAnswer),
                    Err(NoAnswer::Failed(error)) => Err(ForceFailure::Store(error)),
                };
                // The caller may have gone.
                let _ = answer.send(result);
            }
        }
    }

    /// Records that the store has forced open or released a policy for a caller of this process.
    /// The caller sees that at once, the other replicas with their next reports.
    fn on_forced(&mut self, sent: Instant, epoch: u64, force: &Force) {
        self.last_forced = Some(now());
        // Answers may arrive in another order than the store gave them. The next report requests
        // everything that has changed since this request was sent, which then holds.
        self.epoch = self.epoch.min(epoch);
        self.cadence.hurry();
        let Force { policy: name, time, by } = force;
        let forced = Forced { left: *time, by: by.clone() };
        for policy in self.policies().filter(|policy| policy.name == *name) {
            self.adopt_force(sent, &policy, &forced);
        }
    }

    /// Makes a policy forced open or released, as the store knew it after the question of `sent`.
    fn adopt_force(&self, sent: Instant, policy: &State, forced: &Forced) {
        let Forced { left, by } = forced.clone();
        let until = (!left.is_zero()).then(|| sent + left);
        let Some(change) = policy.force_fleet(until, &by) else { return };
        let policy = Arc::clone(&policy.name);
        self.log(move || match change {
            ForceChange::Opened => {
                let time = Short(left);
                tracing::warn!(%policy, by, %time, "policy forced open by the fleet");
            }
            ForceChange::Released => tracing::info!(%policy, "policy released by the fleet"),
        });
    }

    fn on_probed(
        &mut self,
        sent: Instant,
        circuit: Arc<Circuit>,
        probe: Probe,
        answer: oneshot::Sender<Probing>,
        result: Result<Probed, NoAnswer>,
    ) {
        let now = now();
        let probing = match self.heard(result, None) {
            Some(Probed::Granted { generation }) => {
                circuit.fleet_granted(now);
                let id = Arc::clone(&probe.id);
                let granted = Granted { circuit, probe, generation };
                self.probes.insert(Arc::clone(&id), granted);
                let ticket = Ticket { id, generation };
                Probing::Granted(Grant::new(ticket, Arc::clone(&self.driver.link)))
            }
            Some(Probed::Busy(wait)) => {
                circuit.fleet_busy(now, wait);
                Probing::Busy(wait)
            }
            Some(Probed::Standing(standing)) => {
                circuit.adopt(sent, standing);
                Probing::Again
            }
            None => {
                circuit.fleet_idle(now);
                Probing::Again
            }
        };
        // If the call has gone, or goes before it takes the probe, the grant returns the probe.
        let _ = answer.send(probing);
        if self.is_draining {
            self.return_probes();
        }
    }

    /// Notes whether the store has answered. Only the answer to a report that was sent since the store
    /// went away shows that it is back. `reported` is when the report was sent, if this is one.
    fn heard<T>(&mut self, result: Result<T, NoAnswer>, reported: Option<Instant>) -> Option<T> {
        match result {
            Ok(answer) => {
                let shows = |sent| self.away_since.is_none_or(|away_since| sent > away_since);
                if reported.is_some_and(shows) {
                    self.away_since = None;
                    self.cadence.on_answer(now());
                    self.driver.link.report_to_checks(true);
                    self.driver.link.set_away(false);
                    if std::mem::take(&mut self.is_away_logged) {
                        let service = Arc::clone(&self.driver.link.service);
                        self.log(move || tracing::info!(%service, "store answers again"));
                    }
                }
                Some(answer)
            }
            Err(error) => {
                let now = now();
                if reported.is_some() || !self.is_away() {
                    self.cadence.on_failure(now);
                }
                self.away_since.get_or_insert(now);
                // A store that was restarted may be back with an older state.
                self.epoch = 0;
                self.driver.link.report_to_checks(false);
                self.driver.link.set_away(true);
                if !std::mem::replace(&mut self.is_away_logged, true) {
                    self.driver.link.count_away();
                    self.log_away(error);
                }
                None
            }
        }
    }

    fn log_away(&self, error: NoAnswer) {
        let service = Arc::clone(&self.driver.link.service);
        let error = match error {
            NoAnswer::InTime => format!("no answer within {}", Short(ASK_WITHIN)),
            NoAnswer::Failed(error) => adapter::error_text(&error),
        };
        self.log(move || {
            tracing::warn!(%service, error, "store away; policies decide alone");
        });
    }

    /// Applies the answer of the store to a report.
    fn learn(&mut self, sent: Instant, synced: Synced) {
        let Synced { epoch, replicas, news } = synced;
        self.driver.link.set_replicas(replicas);
        self.driver.link.set_sharers(self.sharers.on_seen(now(), replicas));
        // The store may have answered this report before it forced open or released a policy.
        let is_before_force = self.last_forced.is_some_and(|forced| sent <= forced);
        if !is_before_force {
            self.epoch = epoch;
        }
        let Some(news) = news else { return };
        if news.has_more {
            self.cadence.hurry();
        }
        let is_complete = self.driver.link.set_standings(sent, &news);
        for (breaker, _) in &news.breakers {
            if let Some(circuit) = self.driver.link.circuit(breaker) {
                self.driver.link.adopt_into(breaker, &circuit);
            }
        }
        for policy in self.policies() {
            let unknown = if is_complete { policy.circuits() } else { Vec::new() };
            for (breaker, circuit) in unknown {
                self.driver.link.adopt_into(&breaker, &circuit);
            }
            let forced = news.forces.iter().find(|(name, _)| **name == *policy.name);
            // A policy for which the store has no entry stays forced open until its time has elapsed.
            if let Some((_, forced)) = forced.filter(|_| !is_before_force) {
                self.adopt_force(sent, &policy, forced);
            }
        }
    }
}
