//! The body of the response to an admitted request.

use std::pin::Pin;
use std::task::{Context, Poll};

use adieu_core::{DrainClass, Draining};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{Admitted, Origin, UntilCut, Window, poll_application};
use crate::app::BoxError;
use crate::full_body::FullBody;
use crate::refusal::grpc_trailers;

pin_project! {
    /// A body that holds the pass of its request until it has ended, failed or been dropped.
    pub(crate) struct AdmittedBody<B, O> {
        #[pin]
        state: State<B, O>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<B, O> {
        /// A response of this crate, such as a refusal.
        Full { #[pin] body: FullBody },
        /// The application's response.
        Application {
            #[pin]
            body: B,
            // Boxed, and created when the body first waits: most bodies never do.
            until_end: Option<UntilCut>,
            // Last, because the pass must outlive the body.
            admitted: Option<Admitted<O>>,
        },
    }
}

/// The error of a body that was cut because its window has elapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response was cut: {}", Draining::CODE)]
#[non_exhaustive]
pub struct Cut;

/// Returns whether the error, or one of its causes, is that of a layer that has cut the body.
fn is_cut(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| error.is::<Cut>())
}

/// The maximum length of a body that a server takes at once, in bytes.
const SHORT: u64 = 64 * 1024;

type Polled = Option<Result<Frame<Bytes>, BoxError>>;

// === impl AdmittedBody ===

impl<B, O: Origin> AdmittedBody<B, O> {
    pub(super) fn full(bytes: Bytes) -> Self {
        Self { state: State::Full { body: bytes.into() } }
    }

    /// `until_end` is set for a route with a window of its own.
    pub(super) fn admitted(body: B, mut admitted: Admitted<O>, until_end: Option<UntilCut>) -> Self
    where
        B: Body,
    {
        // If the client does not read, the server may never poll a long body again, so this is the last
        // opportunity. A short body is taken as a whole, and a label would cost more than that.
        let is_short = body.size_hint().exact().is_some_and(|length| length <= SHORT);
        if until_end.is_some() || !is_short {
            admitted.label();
        }
        Self { state: State::Application { body, until_end, admitted: Some(admitted) } }
    }

    /// A body that holds no pass: it is empty, or its connection has been upgraded.
    pub(super) fn unaccounted(body: B) -> Self {
        Self { state: State::Application { body, until_end: None, admitted: None } }
    }
}

impl<B, O> Body for AdmittedBody<B, O>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    O: Origin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Polled> {
        let (mut body, until_end, slot) = match self.as_mut().project().state.project() {
            StateProj::Full { body } => return body.poll_frame(cx).map_err(Into::into),
            StateProj::Application { body, until_end, admitted } => (body, until_end, admitted),
        };
        let polled = poll_application(slot, || body.as_mut().poll_frame(cx));
        let Some(admitted) = slot else {
            return polled.map_err(Into::into);
        };
        // Once the body has a frame, the request waits for the client to make room for more.
        admitted.origin.set_awaits_application(polled.is_pending());
        match polled {
            Poll::Ready(None) => {
                admitted.origin.mark_done();
                *slot = None;
                return Poll::Ready(None);
            }
            // This was the last frame: the response is complete, also if its window has just elapsed.
            Poll::Ready(Some(Ok(frame))) if body.is_end_stream() => {
                admitted.origin.mark_done();
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(error))) => {
                // The application has failed the response, or a layer has cut and reported it.
                let error = error.into();
                if !is_cut(&*error) {
                    admitted.report_failure(&format!("failed: {error}"));
                }
                let _ = admitted.origin.settle();
                return Poll::Ready(Some(Err(error)));
            }
            // Until the gate is closed there is no end to wait for. From then on the end is polled
            // with every frame, because a body that is always ready would otherwise never be cut.
            Poll::Ready(frame) if !admitted.is_gate_closed() => {
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            }
            Poll::Ready(_) | Poll::Pending => {}
        }
        let until_end = until_end.get_or_insert_with(|| {
            admitted.label();
            admitted.until_end()
        });
        let Poll::Ready(window) = until_end.as_mut().poll(cx) else {
            return polled.map_err(Into::into);
        };
        let last = admitted.end_body(window);
        admitted.origin.mark_done();
        // Drops the application's body, then the pass.
        self.set(Self::full(Bytes::new()));
        Poll::Ready(last)
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Full { body } => body.is_end_stream(),
            State::Application { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Full { body } => body.size_hint(),
            State::Application { body, .. } => body.size_hint(),
        }
    }
}

// === impl Admitted ===

impl<O: Origin> Admitted<O> {
    /// Returns the last frame of a body that the drain ends: a regular end for a body of the class
    /// `CloseNow`, gRPC trailers, or an error that the client recognises as a cut.
    fn end_body(&self, window: Window) -> Polled {
        if self.class != DrainClass::CloseNow {
            self.report_cut(window);
        }
        if self.info.is_grpc() {
            return Some(Ok(Frame::trailers(grpc_trailers())));
        }
        match self.class {
            DrainClass::CloseNow => None,
            DrainClass::Finish | DrainClass::Resumable | _ => Some(Err(Cut.into())),
        }
    }
}
