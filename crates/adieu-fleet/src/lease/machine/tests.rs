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
fn it_renews_at_a_third_and_counts_from_when_it_asked() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    assert_eq!(beat.next(began), Next::Wait(began + secs(10)));
    assert_eq!(beat.next(began + secs(10)), Next::Renew(secs(10)));
    // The answer took three seconds: they are not ours.
    beat.answered(began + secs(13), began + secs(10), Answer::Renewed, 0.5);
    assert_eq!(beat.valid_until(), began + secs(34));
    assert_eq!(beat.next(began + secs(13)), Next::Wait(began + secs(20)));
}

#[test]
fn it_asks_again_soon_and_gives_up_before_the_end() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    beat.answered(began + secs(11), began + secs(10), Answer::None, 0.5);
    assert_eq!(beat.next(began + secs(11)), Next::Wait(began + Duration::from_millis(12_500)));
    assert_eq!(beat.next(began + secs(20)), Next::Renew(secs(4)));
    assert_eq!(beat.next(began + secs(24)), Next::GiveUp(Loss::Expired));
}

#[test]
fn s133_after_the_longest_wait_for_an_answer_there_is_time_for_one_more_attempt() {
    let began = origin();
    // Asked as late as can be, waited for as long as can be, and the longest pause after that.
    let mut beat = Heartbeat::new(TERMS, began, 1.0);
    let asked = began + Duration::from_millis(12_500);
    assert_eq!(beat.next(asked), Next::Renew(secs(10)));
    beat.answered(asked + secs(10), asked, Answer::None, 1.0);
    let again = began + Duration::from_millis(23_250);
    assert_eq!(beat.next(asked + secs(10)), Next::Wait(again));
    assert_eq!(beat.next(again), Next::Renew(Duration::from_millis(750)));
}

#[test]
fn an_answer_that_comes_too_late_renews_nothing() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    beat.answered(began + secs(24), began + secs(23), Answer::Renewed, 0.5);
    assert_eq!(beat.next(began + secs(24)), Next::GiveUp(Loss::Expired));
}

#[test]
fn refused_is_lost_at_once() {
    let began = origin();
    let mut beat = Heartbeat::new(TERMS, began, 0.5);
    beat.answered(began + secs(1), began + secs(1), Answer::Refused, 0.5);
    assert_eq!(beat.next(began + secs(1)), Next::GiveUp(Loss::Refused));
}

proptest! {
    // Whatever happens, it is given up a margin before the backend could end it; and lost is for
    // good.
    #[test]
    fn it_never_outlives_what_is_proven(
        ttl in 100_u64..60_000,
        events in prop::collection::vec((0_u64..20_000, 0_u64..20_000, 0..3_u8, 0.0..1.0_f64), 1..50),
    ) {
        let ttl = Duration::from_millis(ttl);
        let terms = Terms { ttl, margin: ttl / 5 };
        let (began, mut proven, mut lost) = (origin(), origin(), None);
        let mut now = began;
        proven = proven.max(began);
        let mut beat = Heartbeat::new(terms, began, 0.5);
        for (idle, travel, answer, splay) in events {
            now += Duration::from_millis(idle);
            match beat.next(now) {
                Next::GiveUp(loss) => {
                    prop_assert!(lost.is_none_or(|before| before == loss));
                    lost = Some(loss);
                }
                Next::Wait(until) => {
                    prop_assert!(lost.is_none() && now < until && until <= proven + ttl - terms.margin);
                }
                Next::Renew(patience) => {
                    prop_assert!(lost.is_none() && !patience.is_zero());
                    prop_assert!(now + patience <= proven + ttl - terms.margin);
                    let sent = now;
                    now += Duration::from_millis(travel);
                    let answer = match answer {
                        0 => Answer::Renewed,
                        1 => Answer::Refused,
                        _ => Answer::None,
                    };
                    if answer == Answer::Renewed && now < proven + ttl - terms.margin {
                        proven = sent;
                    }
                    beat.answered(now, sent, answer, splay);
                }
            }
            prop_assert!(beat.valid_until() <= proven + ttl - terms.margin);
        }
    }
}
