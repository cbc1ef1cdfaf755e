//! Classifies responses and errors of HTTP: whether the backend is healthy, and whether the request may
//! be repeated.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::REFUSED;
use crate::classify::{Class, causes, is_own_refusal};
use crate::refused::Code;

/// Returns the class of a response.
pub(super) fn of_response(status: StatusCode, headers: &HeaderMap) -> Class {
    let refused = headers.get(REFUSED).map(|code| code.as_bytes());
    let class = match (status, refused) {
        (StatusCode::TOO_MANY_REQUESTS, _) => Class::throttled(),
        (_, Some(code)) if code == Code::RateLimited.as_str().as_bytes() => Class::throttled(),
        (_, Some(_)) => Class::unprocessed(),
        (StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED, None) => {
            Class::well()
        }
        (status, None) if status.is_server_error() => Class::sick(),
        (_, None) => Class::well(),
    };
    match retry_after(headers) {
        Some(pause) => class.retry_after(pause),
        None => class,
    }
}

/// Returns the class of an error: the backend failed, unless a cause proves that it was not
/// reached.
pub(super) fn of_error(error: &(dyn Error + 'static)) -> Class {
    causes(error).filter_map(of_cause).next().unwrap_or(Class::sick())
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<Class> {
    // A gate or another policy of this process refused: the backend was not asked.
    if is_own_refusal(cause) {
        return Some(Class::neutral());
    }
    if let Some(error) = cause.downcast_ref::<h2::Error>() {
        return is_refusal(error).then_some(Class::unprocessed());
    }
    let kind = cause.downcast_ref::<io::Error>()?.kind();
    let is_unreachable = matches!(
        kind,
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    );
    is_unreachable.then_some(Class::unreachable())
}

/// Returns whether the peer reports that it has not processed the request. A server that drains sends
/// GOAWAY, and has not processed later requests (RFC 9113, 6.8 and 8.7).
fn is_refusal(error: &h2::Error) -> bool {
    let has_left = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    let has_reset = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (has_left || has_reset)
}

/// Returns the pause in seconds. A date is ignored: it would need the clocks of both to agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(status: u16, headers: &[(&'static str, &'static str)]) -> Class {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        of_response(StatusCode::from_u16(status).unwrap(), &map)
    }

    #[test]
    fn s757_the_status_code_decides_whether_the_backend_is_well() {
        for status in [200, 302, 400, 404, 409, 501, 505] {
            assert_eq!(class(status, &[]), Class::well(), "{status}");
        }
        for status in [500, 502, 503, 504] {
            assert_eq!(class(status, &[]), Class::sick(), "{status}");
        }
        assert_eq!(class(429, &[]), Class::throttled());
        let draining = [("adieu-refused", "draining")];
        assert_eq!(class(503, &draining), Class::unprocessed());
        assert_eq!(class(200, &draining), Class::unprocessed(), "gRPC");
        assert_eq!(class(503, &[("adieu-refused", "rate-limited")]), Class::throttled());
        let pause = Duration::from_secs(7);
        assert_eq!(class(503, &[("retry-after", "7")]), Class::sick().retry_after(pause));
        assert_eq!(class(503, &[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")]), Class::sick());
    }

    #[test]
    fn s757_an_error_that_proves_that_nothing_was_sent_is_distinguished() {
        #[derive(Debug, thiserror::Error)]
        #[error("wrapped")]
        struct Wrapped(#[source] io::Error);
        let of = |kind: io::ErrorKind| of_error(&Wrapped(kind.into()));
        assert_eq!(of(io::ErrorKind::ConnectionRefused), Class::unreachable());
        assert_eq!(of(io::ErrorKind::ConnectionReset), Class::sick());
        let gate = adieu_core::Gate::new("own");
        gate.close();
        assert_eq!(of_error(&gate.enter().unwrap_err()), Class::neutral());
    }
}
