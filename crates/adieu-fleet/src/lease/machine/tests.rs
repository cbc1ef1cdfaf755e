//! When a lease is renewed, and when it is given up.

use super::*;
use proptest::prelude::*;

const TERMS: Terms = Terms { ttl: Duration::from_secs(30), margin: Duration::from_secs(6) };

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn origin() -> Instant {
    Instant::now()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_lease_is_renewed_at_a_third_and_counts_from_the_request() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    assert_eq!(beat.next(began), Next::Wait(began + secs(10)));
    assert_eq!(beat.next(began + secs(10)), Next::Renew(secs(10)));
    // The response took three seconds, which do not extend the lease.
    let lost = beat.answered(began + secs(13), began + secs(10), Answer::Renewed, 0.5);
    assert_eq!(lost, None);
    assert_eq!(beat.valid_until(), began + secs(34));
    assert_eq!(beat.next(began + secs(13)), Next::Wait(began + secs(20)));
}

#[test]
fn a_failed_renewal_is_retried_soon_and_the_lease_is_given_up_before_its_end() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    let lost = beat.answered(began + secs(11), began + secs(10), Answer::None, 0.5);
    assert_eq!(lost, None);
    assert_eq!(beat.next(began + secs(11)), Next::Wait(began + Duration::from_millis(12_500)));
    assert_eq!(beat.next(began + secs(20)), Next::Renew(secs(4)));
    assert_eq!(beat.next(began + secs(24)), Next::GiveUp(LossCause::Expired));
}

#[test]
fn s133_after_the_longest_wait_for_a_response_there_is_time_for_one_more_attempt() {
    let began = origin();
    // The latest request, the longest wait for its response, and the longest pause after that.
    let mut beat = Heartbeat::new(TERMS, began, 1.0);
    let asked = began + Duration::from_millis(12_500);
    assert_eq!(beat.next(asked), Next::Renew(secs(10)));
    assert_eq!(beat.answered(asked + secs(10), asked, Answer::None, 1.0), None);
    let again = began + Duration::from_millis(23_250);
    assert_eq!(beat.next(asked + secs(10)), Next::Wait(again));
    assert_eq!(beat.next(again), Next::Renew(Duration::from_millis(750)));
}

#[test]
fn a_response_that_arrives_too_late_renews_nothing() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    let lost = beat.answered(began + secs(24), began + secs(23), Answer::Renewed, 0.5);
    assert_eq!(lost, Some(LossCause::Expired));
    assert_eq!(beat.next(began + secs(24)), Next::GiveUp(LossCause::Expired));
}

#[test]
fn a_refused_renewal_is_a_loss() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    let lost = beat.answered(began + secs(1), began + secs(1), Answer::Refused, 0.5);
    assert_eq!(lost, Some(LossCause::Refused));
    let lost = beat.answered(began + secs(24), began + secs(1), Answer::Refused, 0.5);
    assert_eq!(lost, Some(LossCause::Expired), "the first reason");
}

proptest! {
    // In every order of events, the lease is given up a margin before the backend can end it. An
    // expired lease stays expired.
    #[test]
    fn a_lease_never_outlives_its_last_successful_request(
        ttl in 100_u64..60_000,
        events in prop::collection::vec((0_u64..20_000, 0_u64..20_000, 0..3_u8, 0.0..1.0_f64), 1..50),
    ) {
        let ttl = Duration::from_millis(ttl);
        let terms = Terms { ttl, margin: ttl / 5 };
        let began = origin();
        let (mut now, mut proven, mut has_expired) = (began, began, false);
        let mut beat = Heartbeat::new(terms, began, 0.5);
        for (idle, travel, answer, splay) in events {
            now += Duration::from_millis(idle);
            match beat.next(now) {
                Next::GiveUp(loss) => {
                    prop_assert_eq!(loss, LossCause::Expired);
                    prop_assert!(now >= proven + ttl - terms.margin);
                    has_expired = true;
                }
                Next::Wait(until) => {
                    prop_assert!(!has_expired && now < until);
                    prop_assert!(until <= proven + ttl - terms.margin);
                }
                Next::Renew(patience) => {
                    prop_assert!(!has_expired && !patience.is_zero());
                    prop_assert!(now + patience <= proven + ttl - terms.margin);
                    let sent = now;
                    now += Duration::from_millis(travel);
                    let answer = match answer {
                        0 => Answer::Renewed,
                        1 => Answer::Refused,
                        _ => Answer::None,
                    };
                    let is_late = now >= proven + ttl - terms.margin;
                    let expected = match answer {
                        _ if is_late => Some(LossCause::Expired),
                        Answer::Refused => Some(LossCause::Refused),
                        Answer::Renewed | Answer::None => None,
                    };
                    prop_assert_eq!(beat.answered(now, sent, answer, splay), expected);
                    if answer == Answer::Renewed && !is_late {
                        proven = sent;
                    }
                    has_expired |= is_late;
                }
            }
            prop_assert!(beat.valid_until() <= proven + ttl - terms.margin);
        }
    }
}
