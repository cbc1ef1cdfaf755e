//! Every log line of this crate: an event and its fields.
//!
//! The lines are written on another thread, so a subscriber that blocks or panics cannot delay a
//! renewal.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use adieu_core::adapter::{error_text, log_aside};
use tracing::Level;

use crate::lock_backend::{Claim, Fence};
use crate::names::Key;

pub(crate) fn lease_acquired(claim: &Claim) {
    log_aside(Level::DEBUG, || {
        let (key, owner, fence) = (claim.key.clone(), claim.owner.clone(), claim.fence);
        move || tracing::debug!(%key, %owner, %fence, "lease acquired")
    });
}

pub(crate) fn lease_released(claim: &Claim) {
    log_aside(Level::DEBUG, || {
        let (key, fence) = (claim.key.clone(), claim.fence);
        move || tracing::debug!(%key, %fence, "lease released")
    });
}

pub(crate) fn lease_lost(claim: &Claim, loss: impl Debug + Send + 'static) {
    log_aside(Level::WARN, || {
        let (key, fence) = (claim.key.clone(), claim.fence);
        move || tracing::warn!(%key, %fence, ?loss, "lease lost")
    });
}

pub(crate) fn lease_not_renewed(claim: &Claim, left: Duration, error: &(dyn Error + 'static)) {
    log_aside(Level::WARN, || {
        let (key, error) = (claim.key.clone(), error_text(error));
        move || tracing::warn!(%key, ?left, error, "lease not renewed; retrying")
    });
}

pub(crate) fn lease_not_released(claim: &Claim, error: &(dyn Error + 'static)) {
    log_aside(Level::WARN, || {
        let (key, fence, error) = (claim.key.clone(), claim.fence, error_text(error));
        move || tracing::warn!(%key, %fence, error, "lease not released; it expires")
    });
}

pub(crate) fn lock_not_acquired(key: &Key, error: &(dyn Error + 'static)) {
    log_aside(Level::WARN, || {
        let (key, error) = (key.clone(), error_text(error));
        move || tracing::warn!(%key, error, "lock not acquired; retrying")
    });
}

pub(crate) fn work_not_marked(key: &Key, error: &(dyn Error + 'static)) {
    log_aside(Level::WARN, || {
        let (key, error) = (key.clone(), error_text(error));
        let effect = "the work is done, and other replicas repeat it";
        move || tracing::warn!(%key, error, effect, "work not marked")
    });
}

pub(crate) fn locks_not_shared(reason: &'static str) {
    log_aside(Level::WARN, || move || tracing::warn!(reason, "locks are not shared by the fleet"));
}

pub(crate) fn leading(key: &Key, fence: Fence) {
    log_aside(Level::INFO, || {
        let key = key.clone();
        move || tracing::info!(%key, %fence, "leadership acquired")
    });
}

pub(crate) fn no_longer_leading(key: &Key, fence: Fence) {
    log_aside(Level::INFO, || {
        let key = key.clone();
        move || tracing::info!(%key, %fence, "leadership ended")
    });
}
