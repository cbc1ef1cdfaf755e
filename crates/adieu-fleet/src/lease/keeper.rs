//! Renews a lease while anybody works under it, and releases it after that.
//!
//! One task for each lease, and it alone talks to the backend about it. It ends soon after the last
//! handle is gone, and can be waited for; see [`Lock::settled`](crate::Lock::settled).

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::machine::{Answer, Heartbeat, Next};
use super::{End, Loss, Shared};
use crate::locks::{BackendError, Claim, Standing};
use crate::time::{now, sleep_until};

pub(super) async fn keep(
    shared: Arc<Shared>,
    beat: Heartbeat,
    mut gone: mpsc::Receiver<Infallible>,
) {
    // Also if this task is dropped with its runtime, nobody waits for ever.
    let _over = shared.over.clone().drop_guard();
    tokio::select! {
        biased;
        _ = gone.recv() => {}
        () = renew_or_end(&shared, beat) => {
            // Lost. What works under it is told so; and only then it is given back.
            let _ = gone.recv().await;
        }
    }
    let end = release(&shared).await;
    let Claim { key, fence, .. } = &shared.claim;
    match &end {
        End::Released => adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
            let (key, fence) = (key.clone(), *fence);
            move || tracing::debug!(%key, %fence, "lease released")
        }),
        End::Lost(_) => {}
        End::Unreleased(error) => {
            adieu_core::adapter::log_aside(tracing::Level::WARN, || {
                let (key, fence, error) =
                    (key.clone(), *fence, adieu_core::adapter::error_text(error));
                move || tracing::warn!(%key, %fence, error, "lease not released; it expires")
            });
        }
    }
    let _ = shared.end.set(end);
}

/// Renews until the lease is lost, or is known to have ended.
async fn renew_or_end(shared: &Shared, beat: Heartbeat) {
    tokio::select! {
        biased;
        () = shared.locks.ended(&shared.claim) => shared.lose(Loss::Refused),
        () = renew(shared, beat) => {}
    }
}

/// Renews until the lease is lost.
async fn renew(shared: &Shared, mut beat: Heartbeat) {
    loop {
        match beat.next(now()) {
            // Others may have seen it first.
            _ if shared.loss.get().is_some() => return,
            Next::GiveUp(loss) => return shared.lose(loss),
            Next::Wait(until) => tokio::select! {
                () = sleep_until(until) => {}
                () = shared.lost.cancelled() => {}
            },
            Next::Renew(patience) => {
                let sent = now();
                let asked = shared.locks.renew(&shared.claim, shared.terms.ttl);
                let answer = match tokio::time::timeout(patience, asked).await {
                    Ok(Ok(Standing::Held)) => Answer::Renewed,
                    Ok(Ok(Standing::Lost)) => Answer::Refused,
                    Ok(Err(error)) => {
                        say_not_renewed(shared, &error);
                        Answer::None
                    }
                    Err(_) => {
                        let backend = shared.locks.name();
                        say_not_renewed(
                            shared,
                            &BackendError::no_answer(backend, "renew a lease", patience),
                        );
                        Answer::None
                    }
                };
                beat.answered(now(), sent, answer, fastrand::f64());
                if shared.loss.get().is_none() {
                    shared.extend(beat.valid_until());
                }
            }
        }
    }
}

fn say_not_renewed(shared: &Shared, error: &(dyn std::error::Error + 'static)) {
    let left = shared.valid_until().saturating_duration_since(now());
    adieu_core::adapter::log_aside(tracing::Level::WARN, || {
        let (key, error) = (shared.claim.key.clone(), adieu_core::adapter::error_text(error));
        move || tracing::warn!(%key, ?left, error, "lease not renewed; retrying")
    });
}

/// Gives the lock back, as long as there is something to give back.
async fn release(shared: &Shared) -> End {
    let lost = || shared.loss.get().map(|loss| End::Lost(*loss));
    if let Some(&Loss::Refused) = shared.loss.get() {
        return End::Lost(Loss::Refused);
    }
    // What has expired for us may still be held there, and somebody may be waiting for it.
    let ends = now() + shared.terms.ttl;
    loop {
        let left = ends.saturating_duration_since(now());
        let asked = shared.locks.release(&shared.claim);
        let error = match tokio::time::timeout(left.min(shared.terms.ttl / 3), asked).await {
            Ok(Ok(Standing::Held)) => return lost().unwrap_or(End::Released),
            Ok(Ok(Standing::Lost)) => return lost().unwrap_or(End::Lost(Loss::Refused)),
            Ok(Err(error)) => error,
            Err(_) => BackendError::no_answer(shared.locks.name(), "release a lease", left),
        };
        let pause = shared.terms.ttl / 10;
        if now() + pause >= ends {
            return lost().unwrap_or(End::Unreleased(error));
        }
        tokio::time::sleep(pause).await;
    }
}
