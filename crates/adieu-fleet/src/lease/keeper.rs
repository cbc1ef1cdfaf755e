//! Renews a lease while a handle to it exists, and then releases it.
//!
//! Each lease has one such task, which alone makes requests to the backend about it. It ends soon
//! after the last handle is gone; [`Lock::settled`](crate::Lock::settled) waits for that.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::machine::{Answer, Heartbeat, Next};
use super::{End, LossCause, Shared};
use crate::journal;
use crate::lock_backend::{BackendError, ClaimStatus};
use crate::time::{now, sleep_until};

pub(super) async fn keep(
    shared: Arc<Shared>,
    beat: Heartbeat,
    mut gone: mpsc::Receiver<Infallible>,
) {
    // Fires also if this task is dropped with its runtime, so that no waiter hangs.
    let _over = shared.over.clone().drop_guard();
    tokio::select! {
        biased;
        _ = gone.recv() => {}
        () = renew_or_end(&shared, beat) => {
            // The lease is lost. Work under it has been cancelled; release after it has ended.
            let _ = gone.recv().await;
        }
    }
    let end = release(&shared).await;
    match &end {
        End::Released => journal::lease_released(&shared.claim),
        End::Lost(_) => {}
        End::Unreleased(error) => journal::lease_not_released(&shared.claim, error),
    }
    let _ = shared.end.set(end);
}

/// Renews until the lease is lost, or the backend reports that it has ended.
async fn renew_or_end(shared: &Shared, beat: Heartbeat) {
    tokio::select! {
        biased;
        () = shared.locks.ended(&shared.claim) => shared.lose(LossCause::Refused),
        () = renew(shared, beat) => {}
    }
}

/// Renews until the lease is lost.
async fn renew(shared: &Shared, mut beat: Heartbeat) {
    loop {
        match beat.next(now()) {
            // A handle may have noticed the loss first.
            _ if shared.loss.get().is_some() => return,
            Next::GiveUp(loss) => return shared.lose(loss),
            Next::Wait(until) => tokio::select! {
                () = sleep_until(until) => {}
                () = shared.lost.cancelled() => {}
            },
            Next::Renew(patience) => {
                let sent = now();
                let request = shared.locks.renew(&shared.claim, shared.terms.ttl);
                let answer = match tokio::time::timeout(patience, request).await {
                    Ok(Ok(ClaimStatus::Held)) => Answer::Renewed,
                    Ok(Ok(ClaimStatus::Lost)) => Answer::Refused,
                    Ok(Err(error)) => failed_to_renew(shared, &error),
                    Err(_) => {
                        let backend = shared.locks.name();
                        let error = BackendError::no_response(backend, "renew a lease", patience);
                        failed_to_renew(shared, &error)
                    }
                };
                if let Some(loss) = beat.answered(now(), sent, answer, fastrand::f64()) {
                    return shared.lose(loss);
                }
                if shared.loss.get().is_none() {
                    shared.extend(beat.valid_until());
                }
            }
        }
    }
}

fn failed_to_renew(shared: &Shared, error: &BackendError) -> Answer {
    let left = shared.valid_until().saturating_duration_since(now());
    journal::lease_not_renewed(&shared.claim, left, error);
    Answer::None
}

/// Releases the lock, and retries until it would have ended anyway.
async fn release(shared: &Shared) -> End {
    let lost = || shared.loss.get().map(|loss| End::Lost(*loss));
    if let Some(&LossCause::Refused) = shared.loss.get() {
        return End::Lost(LossCause::Refused);
    }
    // A lease that has expired here may still be held at the backend, and another replica may be
    // waiting for it.
    let ends = now() + shared.terms.ttl;
    loop {
        let left = ends.saturating_duration_since(now());
        let request = shared.locks.release(&shared.claim);
        let error = match tokio::time::timeout(left.min(shared.terms.ttl / 3), request).await {
            Ok(Ok(ClaimStatus::Held)) => return lost().unwrap_or(End::Released),
            Ok(Ok(ClaimStatus::Lost)) => return lost().unwrap_or(End::Lost(LossCause::Refused)),
            Ok(Err(error)) => error,
            Err(_) => BackendError::no_response(shared.locks.name(), "release a lease", left),
        };
        let pause = shared.terms.ttl / 10;
        if now() + pause >= ends {
            return lost().unwrap_or(End::Unreleased(error));
        }
        tokio::time::sleep(pause).await;
    }
}
