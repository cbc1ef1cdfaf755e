//! The order of the locks of one shutdown, in one place.
//!
//! A thread that holds a lock may take only locks that come later:
//!
//! | place | lock | held while |
//! |---|---|---|
//! | outermost | `DRIVER` | the driver makes one step, which logs lines and starts tasks |
//! | 1 | `LISTENER` | signals are installed, which queries the platform for its limit |
//! | 2 | `DRAINS` | gates are added, cordoned or uncordoned |
//! | 3 | `CORE` | declarations or the run are read or changed |
//! | leaf | all others | one value is read or changed |
//!
//! The lock inside `Progress` (a `watch` channel) and the locks of `Journal`, `Watchdog` and `Gate` are
//! leaves, too: none of them takes a lock of this list while it is held.
//!
//! While a lock other than `DRIVER` is held, no line is logged and no code of the application runs.
//! `DRIVER` is different because it guards no state that handles read; it makes the steps of two
//! drivers follow each other, and with them the order of the lines.
//!
//! Builds with debug assertions, and so all tests, check both rules; see [`OrderedMutex`].
//!
//! [`OrderedMutex`]: crate::sync::OrderedMutex

use crate::sync::Place;

pub(super) const DRIVER: Place = Place::outermost("the driver");
pub(super) const LISTENER: Place = Place::numbered(1, "the signal listener");
pub(super) const DRAINS: Place = Place::numbered(2, "the drains");
pub(super) const CORE: Place = Place::numbered(3, "the core");

pub(super) const REQUESTS: Place = Place::leaf("the requests");
pub(super) const LATEST_DRIVER: Place = Place::leaf("the latest driver");
pub(super) const LADDER: Place = Place::leaf("the signal ladder");
pub(super) const GUARDS: Place = Place::leaf("the exit guards");
pub(super) const EXIT: Place = Place::leaf("the exit");
pub(super) const BEFORE_CLOSING: Place = Place::leaf("the work before a gate closes");
pub(super) const ACCOUNTS: Place = Place::leaf("the accounts");
pub(super) const REFRESHES: Place = Place::leaf("the checks by the clock");
pub(super) const REFUSALS: Place = Place::leaf("the refusals");
pub(super) const EXTENSIONS: Place = Place::leaf("the extensions");
