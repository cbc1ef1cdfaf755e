//! Responses in JSON.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;

use crate::probes::with_type;

pub(super) fn as_json(status: StatusCode, value: &Value) -> Response<Bytes> {
    with_type(status, "application/json", format!("{value}\n"))
}
