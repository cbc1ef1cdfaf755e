//! Replaces `metrics_on` if the feature `metrics` is off: counts nothing.

use super::Line;

pub(super) const COUNTS: bool = false;

pub(super) fn count(_: &Line) {}
