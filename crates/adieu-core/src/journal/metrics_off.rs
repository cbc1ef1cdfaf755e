//! The quiet twin of `metrics_on`.

use super::Line;

pub(super) const COUNTS: bool = false;

pub(super) fn count(_: &Line) {}
