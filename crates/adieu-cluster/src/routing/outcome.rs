//! The responses to requests that have none of their handler.

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};

use super::body::RoutedBody;
use super::wire::NoResponse;
use crate::message::{AskError, NotRun, Unknown};

/// Marks a response to a request that was not processed, so that clients of adieu can repeat it even if
/// it is not idempotent.
const REFUSED: HeaderName = HeaderName::from_static("adieu-refused");

/// Returns the response to a request that has no response of its owner.
pub(super) fn of_error(error: AskError) -> Response<RoutedBody> {
    let status = match &error {
        AskError::NotRun(why) => {
            let mut response = response(
                StatusCode::SERVICE_UNAVAILABLE,
                code(why),
                &format!("the request was not handled: {why}"),
            );
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            headers.insert(REFUSED, HeaderValue::from_static(code(why)));
            return response;
        }
        AskError::Unknown(Unknown::Expired) => StatusCode::GATEWAY_TIMEOUT,
        AskError::Unknown(_) => StatusCode::BAD_GATEWAY,
    };
    let AskError::Unknown(why) = error else { return stopped("") };
    response(status, "unknown", &format!("the request may have been handled: {why}"))
}

/// Returns the response to a request whose handler was stopped.
pub(super) fn stopped(why: &str) -> Response<RoutedBody> {
    let text = format!("the request may have been handled: {why}");
    response(StatusCode::BAD_GATEWAY, "unknown", &text)
}

/// Returns the response to a request that the owner has answered without a response.
pub(super) fn of_owner(problem: NoResponse) -> Response<RoutedBody> {
    let NoResponse { problem, has_run } = problem;
    let text = match has_run {
        true => format!("the request was handled, but {problem}"),
        false => format!("the request was not handled: {problem}"),
    };
    response(StatusCode::BAD_GATEWAY, if has_run { "handled" } else { "unreadable" }, &text)
}

/// Returns a response with a short code and a text.
pub(super) fn response(status: StatusCode, code: &str, text: &str) -> Response<RoutedBody> {
    let body = serde_json::json!({ "error": code, "message": text }).to_string();
    let mut response = Response::new(RoutedBody::whole(body.into(), HeaderMap::new()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn code(why: &NotRun) -> &'static str {
    match why {
        NotRun::Moving | NotRun::Expired => "moving",
        NotRun::Busy => "busy",
        NotRun::Overloaded(_) => "overloaded",
        NotRun::Unsupported(_) => "unsupported",
        NotRun::Unreachable(_) => "unreachable",
        NotRun::Outside => "outside",
    }
}
