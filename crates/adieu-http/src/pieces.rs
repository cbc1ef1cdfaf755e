//! Hands a body to a server in small pieces.
//!
//! A server takes the next frame of a body when it has room for it, so a frame that it has not taken
//! shows that the client has not read what came before. A frame of many megabytes would be taken at
//! once.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// The maximum length of a piece. hyper buffers about 400 kB, so smaller pieces would not show more.
const MAX_PIECE: usize = 64 * 1024;

pin_project! {
    /// A body whose frames of data are at most 64 KiB long.
    pub(crate) struct Pieces<B> {
        #[pin]
        body: B,
        // The rest of a frame that has been split.
        rest: Bytes,
    }
}

pin_project! {
    /// A future of a response whose body is handed over in pieces.
    pub(crate) struct InPieces<F> {
        #[pin]
        inner: F,
    }
}

// === impl InPieces ===

impl<F> InPieces<F> {
    pub(crate) fn of(inner: F) -> Self {
        Self { inner }
    }
}

impl<F, B, E> Future for InPieces<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<Pieces<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx).map_ok(|response| response.map(Pieces::of))
    }
}

// === impl Pieces ===

impl<B> Pieces<B> {
    fn of(body: B) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes>> Body for Pieces<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if this.rest.is_empty() {
            let frame = match std::task::ready!(this.body.poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(data) if data.len() > MAX_PIECE => *this.rest = data,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let piece = this.rest.split_to(MAX_PIECE.min(this.rest.len()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    #[tokio::test]
    async fn s788_a_body_is_the_same_in_pieces() {
        let bytes: Bytes = (0..200_000u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut pieces = Pieces::of(Full::new(bytes.clone()));
        let mut read = Vec::new();
        while let Some(frame) = pieces.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(!piece.is_empty() && piece.len() <= MAX_PIECE);
            read.extend_from_slice(&piece);
            assert_eq!(pieces.size_hint().exact(), Some((bytes.len() - read.len()) as u64));
            assert_eq!(pieces.is_end_stream(), read.len() == bytes.len());
        }
        assert_eq!(read, bytes);
    }

    #[tokio::test]
    async fn s788_empty_frames_and_trailers_are_kept() {
        let trailers = http::HeaderMap::from_iter([(http::header::ETAG, "7".parse().unwrap())]);
        let frames = [Frame::data(Bytes::new()), Frame::trailers(trailers.clone())];
        let frames = frames.map(Ok::<_, std::convert::Infallible>);
        let mut pieces = Pieces::of(StreamBody::new(tokio_stream::iter(frames)));
        assert!(pieces.frame().await.unwrap().unwrap().into_data().unwrap().is_empty());
        assert_eq!(pieces.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
        assert!(pieces.frame().await.is_none());
    }
}
