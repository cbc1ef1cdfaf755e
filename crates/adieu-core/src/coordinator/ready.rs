//! What readiness follows from, and who may wait for it.

use std::sync::{Arc, Mutex};

use super::Shutdown;
use super::checks::{CheckHandle, Promise};
use super::shared::Shared;
use crate::gate::{Gate, State};
use crate::journal::Line;
use crate::readiness::{Check, CheckState, Readiness};
use crate::status::Stage;
use crate::sync::lock;

/// Whether gates refuse because of a cordon. Readiness knows by itself.
#[derive(Debug, Default)]
pub(super) struct Cordon {
    refuses: bool,
    /// How often it has been changed: a gradual cordon that has been overtaken does nothing more.
    changes: u64,
}

// === impl Shutdown ===

impl Shutdown {
    /// Whether work should be sent here.
    ///
    /// Not before [`Shutdown::started`] has been called and every [`Shutdown::promise`] has been
    /// kept; not while a [`Shutdown::check`] fails; not while cordoned; and never again once the
    /// shutdown has begun.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.shared.readiness()
    }

    /// Start-up has ended.
    pub fn started(&self) {
        self.shared.change_facts(|facts| facts.started = true);
    }

    /// Whether start-up has ended: [`Shutdown::started`] has been called.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.shared.look_at_facts(|facts| facts.started)
    }

    /// Promises that something will be there before the process is ready.
    pub fn promise(&self, name: impl Into<Arc<str>>) -> Promise {
        let (shared, id) = (Arc::downgrade(&self.shared), self.shared.expect(name.into()));
        Promise { shared, id, kept: false }
    }

    /// A check that can fail and recover for as long as the process lives. The process is not ready
    /// before it has first been said to be, nor while it fails. A check whose handle is dropped has
    /// failed, until there is another of the same name.
    ///
    /// ```
    /// # let shutdown = adieu_core::Shutdown::new();
    /// let database = shutdown.check("database");
    /// database.ready();
    /// database.failing("connection refused"); // when a ping fails
    /// database.ready(); // when one succeeds again
    /// ```
    pub fn check(&self, name: impl Into<Arc<str>>) -> CheckHandle {
        let (shared, id) = (Arc::downgrade(&self.shared), self.shared.expect(name.into()));
        CheckHandle { shared, id }
    }

    /// What has been promised and is checked, in the order in which that was declared.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        self.shared.look_at_facts(|facts| facts.checks().cloned().collect())
    }

    /// Waits until readiness is as `wanted`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the state is level-triggered, so a dropped wait loses nothing.
    pub async fn until_readiness(&self, wanted: impl Fn(Readiness) -> bool) -> Readiness {
        self.shared.until_readiness(wanted).await
    }

    /// Refuses work from now on: the process is not ready, and the gates that this shutdown drains
    /// refuse. Does nothing once the shutdown has begun.
    ///
    /// Routers that have not asked for readiness since will see refusals; see
    /// [`Shutdown::cordon_gradually`].
    pub fn cordon(&self) {
        self.shared.set_cordon(true);
    }

    /// Refuses work after a lame duck: the process is not ready from this call on, and the gates
    /// refuse when routers have had time to move away. See `lame-duck` in
    /// [`config`](crate::config).
    ///
    /// The future returns true when the gates refuse, and false if the cordon was taken back or the
    /// shutdown began before that. Nothing drives it but its caller: if it is dropped, the process
    /// stays not ready and goes on admitting.
    #[must_use = "gates go on admitting unless this is awaited"]
    pub fn cordon_gradually(&self) -> impl Future<Output = bool> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        let change = shared.announce_cordon();
        async move {
            if let Some(change) = change {
                shared.routers_move_away().await;
                shared.complete_cordon(change);
            }
            shared.refuses()
        }
    }

    /// Whether a gate that this shutdown drains admits work.
    #[must_use]
    pub fn is_admitting(&self) -> bool {
        lock(&self.shared.gates).iter().any(|gate| gate.state() == State::Open)
    }

    /// The gates that this shutdown closes and a cordon bars, first those of
    /// requests and then those of loops. Each knows its name and how many are inside.
    #[must_use]
    pub fn gates(&self) -> Vec<Gate> {
        let mut gates = lock(&self.shared.gates).clone();
        gates.extend(lock(&self.shared.loops).iter().cloned());
        gates
    }

    /// Takes [`Shutdown::cordon`] back. Returns false once the shutdown has begun: there is no way
    /// back from that.
    #[must_use = "a shutdown that has begun stays begun"]
    pub fn uncordon(&self) -> bool {
        self.shared.set_cordon(false);
        self.stage() == Stage::Up
    }
}

// === impl Shared ===

impl Shared {
    fn expect(&self, name: Arc<str>) -> u64 {
        let mut id = 0;
        self.change_facts(|facts| id = facts.expect(name));
        id
    }

    /// Notes how a promise or check stands. While the process is up, it is said when that is worse
    /// than before, or well again.
    pub(crate) fn settle(&self, id: u64, state: CheckState, detail: Option<Arc<str>>) {
        let mut before = None;
        self.change_facts(|facts| before = facts.settle(id, state, detail));
        let failed = |state| state == CheckState::Failed;
        if before.is_some_and(|before| failed(before) != failed(state)) && self.stage() == Stage::Up
        {
            let check = self.look_at_facts(|facts| facts.check(id).cloned());
            if let Some(check) = check {
                self.journal().note(Line::CheckChanged { check });
            }
        }
    }

    /// Nobody speaks for it any more: it counts as failed, until somebody does under that name.
    pub(crate) fn abandon(&self, id: u64, detail: Option<Arc<str>>) {
        self.settle(id, CheckState::Failed, detail);
        self.change_facts(|facts| facts.abandon(id));
    }

    /// Makes the process not ready; returns which change of the cordon that was, or nothing if
    /// gates refuse already.
    fn announce_cordon(&self) -> Option<u64> {
        let mut cordon = lock(&self.cordon);
        cordon.changes += 1;
        self.change_facts(|facts| facts.cordoned = true);
        (!cordon.refuses).then_some(cordon.changes)
    }

    /// Makes gates refuse, unless the cordon has been changed since.
    fn complete_cordon(&self, change: u64) {
        let mut cordon = lock(&self.cordon);
        if cordon.changes == change {
            self.bar(&mut cordon, true);
        }
    }

    fn refuses(&self) -> bool {
        lock(&self.cordon).refuses
    }

    fn set_cordon(&self, cordoned: bool) {
        // One at a time, so that readiness and the gates agree in the end.
        let mut cordon = lock(&self.cordon);
        cordon.changes += 1;
        // Who asks must not be told to come and then be refused: so not ready before gates refuse,
        // and ready only when they admit.
        if cordoned {
            self.change_facts(|facts| facts.cordoned = true);
        }
        self.bar(&mut cordon, cordoned);
        if !cordoned {
            self.change_facts(|facts| facts.cordoned = false);
        }
    }

    fn bar(&self, cordon: &mut Cordon, refuses: bool) {
        if self.stage() != Stage::Up {
            return;
        }
        cordon.refuses = refuses;
        for gates in [&self.gates, &self.loops] {
            for gate in &*lock(gates) {
                if refuses {
                    gate.cordon();
                } else {
                    let _ = gate.uncordon();
                }
            }
        }
    }

    /// Adds the gate of a loop, cordoned if the process is.
    pub(crate) fn take_on_loop(&self, gate: &Gate) {
        self.take_on(gate, &self.loops);
    }

    /// Adds a gate, cordoned if the process is.
    pub(super) fn take_on(&self, gate: &Gate, among: &Mutex<Vec<Gate>>) {
        let cordon = lock(&self.cordon);
        let mut gates = lock(among);
        if cordon.refuses {
            gate.cordon();
        }
        gates.push(gate.clone());
    }
}
