//! A response's body, with the pass of its request inside.

use std::pin::Pin;
use std::task::{Context, Poll};

use adieu_core::{DrainClass, Draining, Gate, Pass};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::Name;
use super::future::within;
use super::refusal::grpc_trailers;
use crate::connection::Ticket;
use crate::serve::BoxError;

pin_project! {
    /// A body that holds the pass of its request until it has ended, failed or been dropped.
    pub struct GateBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        /// Our own answer.
        Given { bytes: Option<Bytes> },
        /// The application's.
        Passed {
            #[pin]
            body: B,
            // Boxed, for the few that have to wait: most never do.
            told: Option<Told>,
            // Last: the pass must outlive the body.
            hold: Option<Hold>,
        },
    }
}

/// Waits until a response is to end without its doing.
pub(super) type Told = Pin<Box<dyn Future<Output = Window> + Send>>;

/// Whose window was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// That of the gate: whoever drains it reports what was left.
    Gate,
    /// That of the route.
    Route,
}

/// What is held while the body lasts.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) of: Of,
    pub(super) held: Held,
    pub(super) class: DrainClass,
    pub(super) is_grpc: bool,
}

/// What a body belongs to.
#[derive(Debug)]
pub(super) enum Of {
    /// A request of a connection, which knows what it is called.
    Conn(Ticket),
    /// A request behind a layer: what to call it, if it has no label yet. Boxed: this is copied
    /// about with every response.
    Layer(Option<Box<Name>>),
}

/// What tells a body to end.
#[derive(Debug)]
pub(super) enum Held {
    /// The pass of its request.
    Pass(Pass),
    /// A look at the gate: it was not asked about this one.
    Watch(Gate),
}

/// The error of a body that was broken off because the window for it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response was broken off: {}", Draining::CODE)]
#[non_exhaustive]
pub struct Cut;

// === impl GateBody ===

impl<B> GateBody<B> {
    pub(crate) fn given(bytes: Bytes) -> Self {
        Self { kind: Kind::Given { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
    }

    /// `told` is for a route with a window of its own.
    pub(super) fn held(body: B, mut hold: Hold, told: Option<Told>) -> Self {
        if told.is_some() {
            hold.label();
        }
        Self { kind: Kind::Passed { body, told, hold: Some(hold) } }
    }

    pub(super) fn free(body: B) -> Self {
        Self { kind: Kind::Passed { body, told: None, hold: None } }
    }
}

impl<B> Body for GateBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let (body, told, hold) = match self.as_mut().project().kind.project() {
            KindProj::Given { bytes } => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            KindProj::Passed { body, told, hold } => (body, told, hold),
        };
        let Some(held) = hold else {
            return body.poll_frame(cx).map_err(Into::into);
        };
        let polled = within(held.pass(), || body.poll_frame(cx));
        // Once it has something to send, it is the client who has to make room for more.
        held.set_ours(polled.is_pending());
        match polled {
            Poll::Ready(None) => {
                *hold = None;
                return Poll::Ready(None);
            }
            // A body that never has to wait must be told, too; until the gate is closed there is
            // nothing to tell.
            Poll::Ready(frame) if !held.is_closed() => {
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            }
            Poll::Ready(_) | Poll::Pending => {}
        }
        let told = told.get_or_insert_with(|| {
            held.label();
            held.until_told()
        });
        let Poll::Ready(window) = told.as_mut().poll(cx) else {
            return polled.map_err(Into::into);
        };
        held.note_end(window);
        let last = held.last_frame();
        // Drops the body first, then the pass.
        self.set(Self::given(Bytes::new()));
        Poll::Ready(last)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Given { bytes } => bytes.is_none(),
            Kind::Passed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Given { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Passed { body, .. } => body.size_hint(),
        }
    }
}

impl<B> std::fmt::Debug for GateBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateBody").finish_non_exhaustive()
    }
}

// === impl Hold ===

impl Hold {
    fn pass(&self) -> Option<&Pass> {
        match &self.held {
            Held::Pass(pass) => Some(pass),
            Held::Watch(_) => None,
        }
    }

    /// Whether the gate is closed.
    fn is_closed(&self) -> bool {
        match &self.held {
            Held::Pass(pass) => pass.is_draining(),
            Held::Watch(gate) => gate.is_closed(),
        }
    }

    /// It takes its time: from now on it can be seen what is waited for.
    fn label(&mut self) {
        match (&mut self.of, &mut self.held) {
            (Of::Conn(ticket), _) => ticket.waits(),
            (Of::Layer(name), Held::Pass(pass)) => {
                name.iter().for_each(|name| pass.set_label(Name::clone(name)));
            }
            (Of::Layer(_), Held::Watch(_)) => {}
        }
    }

    /// The body ends without its doing. Unless that is how it should end, it is cut off.
    fn note_end(&self, window: Window) {
        let Held::Pass(pass) = &self.held else { return };
        match (self.class, window, &self.of) {
            (DrainClass::CloseNow, ..) => {}
            (_, Window::Route, Of::Layer(Some(name))) => pass.note_cut_off(name.to_string()),
            (_, Window::Gate | Window::Route, _) => pass.count_cut_off(),
        }
    }

    /// Says whether the application or the client has to continue.
    #[inline]
    fn set_ours(&mut self, is_ours: bool) {
        if let Of::Conn(ticket) = &mut self.of {
            ticket.set_ours(is_ours);
        }
    }

    /// When the body is to end without its doing. What can be resumed ends itself, until the
    /// window is over.
    fn until_told(&self) -> Told {
        let token = match &self.held {
            Held::Pass(pass) => pass.token(),
            Held::Watch(gate) if self.class == DrainClass::CloseNow => gate.closed_token(),
            Held::Watch(gate) => gate.cut_token(),
        };
        Box::pin(async move {
            token.cancelled_owned().await;
            Window::Gate
        })
    }

    /// What the client sees of it: an end where that is one, or else that it was broken off.
    fn last_frame(&self) -> Option<Result<Frame<Bytes>, BoxError>> {
        if self.is_grpc {
            return Some(Ok(Frame::trailers(grpc_trailers())));
        }
        match self.class {
            DrainClass::CloseNow => None,
            DrainClass::Finish | DrainClass::Resumable | _ => Some(Err(Cut.into())),
        }
    }
}
