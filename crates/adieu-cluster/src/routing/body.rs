//! The body of a request or a response that the layer has passed on.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::BoxError;
use crate::entity::Inside;

/// The body of a request or a response. The response body of a request that runs on this node holds
/// its shard until it ends or is dropped.
pub struct RoutedBody {
    body: UnsyncBoxBody<Bytes, BoxError>,
    held: Option<Held>,
}

struct Held {
    inside: Inside,
    killed: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// The shard of a response was killed while its body was sent.
#[derive(Debug, thiserror::Error)]
#[error("the response was cut, because its shard moves or its node may no longer act")]
struct Cut;

// === impl RoutedBody ===

impl RoutedBody {
    /// Passes a body on.
    pub(super) fn streamed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self { body: body.map_err(Into::into).boxed_unsync(), held: None }
    }

    /// Returns a body with its trailers.
    pub(super) fn whole(bytes: Bytes, trailers: HeaderMap) -> Self {
        let body = Full::new(bytes);
        if trailers.is_empty() {
            return Self::streamed(body);
        }
        Self::streamed(body.with_trailers(std::future::ready(Some(Ok(trailers)))))
    }

    /// Holds the shard of the request until the body ends.
    pub(super) fn hold(mut self, inside: Inside) -> Self {
        if !self.body.is_end_stream() {
            let killed = Box::pin(inside.killed());
            self.held = Some(Held { inside, killed });
        }
        self
    }
}

impl Body for RoutedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let body = Pin::new(&mut this.body);
        let Some(held) = &mut this.held else { return body.poll_frame(cx) };
        let is_killed = held.killed.as_mut().poll(cx).is_ready();
        let frame = match is_killed {
            true => Err(crate::entity::Stopped),
            false => ready!(held.inside.guard(|| body.poll_frame(cx))),
        };
        let frame = frame.unwrap_or_else(|_| Some(Err(Cut.into())));
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            this.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for RoutedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutedBody").field("is_held", &self.held.is_some()).finish_non_exhaustive()
    }
}
