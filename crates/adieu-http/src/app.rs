//! The applications that can be served.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tower::Service;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An application that can be served: a tower service for HTTP requests that can be cloned for each
/// connection.
///
/// `axum::Router` and tonic's `Routes` are applications. There is nothing to implement: the trait
/// is implemented for every service that fits.
pub trait App:
    Service<
        Request<Incoming>,
        Response = Response<Self::ResponseBody>,
        Error: Into<BoxError> + Send,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type ResponseBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> App for S
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError> + Send,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type ResponseBody = B;
}
