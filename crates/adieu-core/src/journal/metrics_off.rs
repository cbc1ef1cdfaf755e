//! The quiet twin of `metrics_on`.

use super::Line;

pub(super) fn count(_: &Line) {}
