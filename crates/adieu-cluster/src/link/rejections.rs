//! Decides which rejected connections are logged: the first of each cause and caller, and then few.
//! Pure: the time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::time::{Duration, Instant};

/// How often the same rejection is logged.
const PAUSE: Duration = Duration::from_secs(300);

/// The maximum number of distinct causes and callers.
const MOST: usize = 256;

/// Why a connection was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Handshake,
    Token,
    Hello,
    Member,
}

/// The rejections that were logged.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    /// When each was logged, and how many have followed.
    logged: HashMap<(IpAddr, Cause), (Instant, u64)>,
}

// === impl Rejections ===

impl Rejections {
    /// Returns how many rejections of this cause and caller were not logged, if this one is to be.
    pub(super) fn note(&mut self, from: IpAddr, cause: Cause, now: Instant) -> Option<u64> {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= PAUSE;
        let key = (from, cause);
        if let Some((at, more)) = self.logged.get_mut(&key) {
            if !is_old(*at) {
                *more += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(more));
        }
        if self.logged.len() >= MOST {
            self.logged.retain(|_, (at, _)| !is_old(*at));
        }
        if self.logged.len() >= MOST {
            return None;
        }
        self.logged.insert(key, (now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn s1628_the_same_rejection_is_logged_every_five_minutes_and_callers_are_bounded() {
        let (mut rejections, begun) = (Rejections::default(), crate::time::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let caller = |number: u32| IpAddr::from(Ipv4Addr::from_bits(number));
        assert_eq!(rejections.note(caller(1), Cause::Token, at(0)), Some(0));
        assert_eq!(rejections.note(caller(1), Cause::Token, at(1)), None);
        assert_eq!(rejections.note(caller(1), Cause::Token, at(299)), None);
        assert_eq!(rejections.note(caller(1), Cause::Member, at(299)), Some(0));
        assert_eq!(rejections.note(caller(1), Cause::Token, at(300)), Some(2));
        let logged =
            (2..1_000).filter(|it| rejections.note(caller(*it), Cause::Token, at(300)).is_some());
        assert_eq!(logged.count(), MOST - 2);
        assert_eq!(rejections.note(caller(2_000), Cause::Token, at(700)), Some(0));
        assert_eq!(rejections.logged.len(), 1);
    }
}
