//! The tasks of a server in the phases of the shutdown: they send requests to the driver, which
//! carries them out.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::adapter::{WorkSource, account_for, only_waits};
use adieu_core::{AddTaskError, Drain, Gate, Phase, Shutdown, TaskCx, TaskSpec};
use tokio::sync::watch;

use super::Options;
use super::roster::Roster;
use crate::connection::Cuts;

/// The requests of the shutdown to the server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StopRequest {
    pub(super) unbind: bool,
    pub(super) stop_within: Option<Duration>,
}

/// The stage that the server has reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StopProgress {
    pub(super) is_unbound: bool,
    pub(super) has_ended: bool,
}

impl StopRequest {
    /// The request of a shutdown that is over.
    pub(super) const STOP_NOW: Self = Self { unbind: true, stop_within: Some(Duration::ZERO) };
}

/// Adds the server's tasks to the shutdown.
pub(super) fn register(
    shutdown: &Shutdown,
    options: &Options,
    gate: &Gate,
    requests: watch::Sender<StopRequest>,
    reached: watch::Receiver<StopProgress>,
    roster: &Arc<Roster>,
    cuts: &Arc<Cuts>,
) -> Result<(), AddTaskError> {
    let requests = Arc::new(requests);
    let unbind = {
        let (requests, mut reached) = (Arc::clone(&requests), reached.clone());
        async move |_| {
            requests.send_modify(|requested| requested.unbind = true);
            // The channel closes when the server has ended, and its listener with it.
            let _ = reached.wait_for(|reached| reached.is_unbound).await;
        }
    };
    let stop = {
        let (mut reached, hard_stop) = (reached.clone(), options.hard_stop);
        let (requests, cuts) = (Arc::clone(&requests), Arc::clone(cuts));
        async move |cx: TaskCx| {
            let within = hard_stop.min(cx.remaining() / 2);
            requests.send_modify(|requested| requested.stop_within = Some(within));
            ended(&mut reached).await?;
            cuts.report()
        }
    };
    let finish = {
        let (mut reached, cuts) = (reached.clone(), Arc::clone(cuts));
        async move |cx: TaskCx| {
            tokio::select! {
                ended = ended(&mut reached) => ended.and_then(|()| cuts.report()),
                () = cx.cancelled() => Ok(()),
            }
        }
    };
    let task = |verb| {
        let (roster, cuts) = (Arc::clone(roster), Arc::clone(cuts));
        let spec = only_waits(TaskSpec::new(format!("{verb} {} connections", options.name)));
        spec.describe(move || match cuts.summary() {
            Some(cut) => format!("{}; {cut}", roster.summary()),
            None => roster.summary(),
        })
    };
    let source = WorkSource::new(format!("{} connections", options.name));
    let (roster, cuts) = (Arc::downgrade(roster), Arc::downgrade(cuts));
    let source = source.lost(move || cuts.upgrade()?.report().err()).remaining(move || {
        let unread = roster.upgrade()?.unread();
        let noun = if unread.len() == 1 { "answer" } else { "answers" };
        let named = || format!("{} {noun} not sent: {}", unread.len(), unread.join(", "));
        (!unread.is_empty()).then(named)
    });
    account_for(shutdown, source);
    shutdown.drain(Drain::of(gate).first(unbind))?;
    // A request leaves the gate before the last byte of its response has been sent, so the drain of
    // the gate alone is not enough.
    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, task("finish"), finish)?;
    let close = task("close").timeout((2 * options.hard_stop).max(Duration::from_secs(1)));
    shutdown.add_task(Phase::SERVICE_STOP, close, stop)?;
    Ok(())
}

/// Waits until the server has ended.
async fn ended(reached: &mut watch::Receiver<StopProgress>) -> Result<(), String> {
    // The channel closes early if the driver panics, or if its runtime is dropped.
    let ended = reached.wait_for(|reached| reached.has_ended).await;
    ended.map(drop).map_err(|_| "the server ended early: its requests are lost".into())
}
