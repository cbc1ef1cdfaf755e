//! Requests and responses of reqwest.

use ::reqwest::{Request, Response};

use super::client::{ClientRequest, ClientResponse};
use super::meaning;
use crate::classify::Class;

impl ClientRequest for Request {
    /// `None` if the body is a stream.
    fn try_clone(&self) -> Option<Self> {
        Request::try_clone(self)
    }

    fn is_idempotent(&self) -> bool {
        self.method().is_idempotent()
    }
}

impl ClientResponse for Response {
    fn class(&self) -> Class {
        meaning::of_response(self.status(), self.headers())
    }
}
