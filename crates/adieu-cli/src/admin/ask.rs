//! One request, one answer; bounded in time and length.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Target;

/// The maximum length of an answer. A report of many thousand tasks is shorter.
const LONGEST: usize = 64 << 20;

pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The content type that the peer states.
    pub(super) kind: String,
    pub(super) body: Bytes,
}

#[derive(Debug)]
pub(super) enum AskError {
    Timeout,
    Connect(std::io::Error),
    Http(hyper::Error),
    TooLong,
    Token,
}

impl AskError {
    /// Returns whether no process listens there, or no longer.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Connect(_) => true,
            Self::Http(error) => {
                error.is_incomplete_message() || error.is_canceled() || error.is_closed()
            }
            Self::Timeout | Self::TooLong | Self::Token => false,
        }
    }
}

impl From<hyper::Error> for AskError {
    fn from(error: hyper::Error) -> Self {
        Self::Http(error)
    }
}

impl Answer {
    /// Returns why the admin port refused the request, from the body of its answer.
    pub(super) fn error(&self) -> String {
        let value: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let error = value.as_ref().and_then(|value| value.get("error")?.as_str());
        let status = || format!("it answered {}", self.status.as_u16());
        error.map_or_else(status, |error| crate::fit::shortened(error, 200))
    }
}

pub(super) async fn ask(
    target: &Target,
    method: Method,
    path: &str,
    token: Option<&str>,
    timeout: Duration,
) -> Result<Answer, AskError> {
    let asking = answer(target, method, path, token);
    tokio::time::timeout(timeout, asking).await.unwrap_or(Err(AskError::Timeout))
}

async fn answer(
    target: &Target,
    method: Method,
    path: &str,
    token: Option<&str>,
) -> Result<Answer, AskError> {
    let stream = TcpStream::connect((target.host.as_str(), target.port));
    let stream = stream.await.map_err(AskError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method.clone();
    // All callers pass a literal path, which is valid.
    *request.uri_mut() = http::Uri::try_from(path).unwrap_or_default();
    let headers = request.headers_mut();
    let host = HeaderValue::try_from(target.authority());
    headers.insert(HOST, host.unwrap_or_else(|_| HeaderValue::from_static("localhost")));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if method == Method::POST {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if let Some(token) = token {
        let bearer = HeaderValue::try_from(format!("Bearer {token}"));
        let mut bearer = bearer.map_err(|_| AskError::Token)?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    let asking = async {
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => AskError::Http(*error),
            Err(error) => {
                debug_assert!(error.is::<LengthLimitError>(), "{error}");
                AskError::TooLong
            }
        })?;
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.map_or_else(|| "of no type".into(), |kind| crate::fit::shortened(kind, 60));
        Ok(Answer { status: head.status, kind, body: body.to_bytes() })
    };
    tokio::pin!(asking, connection);
    tokio::select! {
        // The connection may end together with the answer. The answer counts.
        biased;
        answer = &mut asking => answer,
        ended = &mut connection => {
            ended?;
            asking.await
        }
    }
}
