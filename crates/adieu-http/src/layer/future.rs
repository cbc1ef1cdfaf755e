//! Waits for the response of a request that was admitted.

use std::pin::Pin;
use std::task::{Context, Poll};

use adieu_core::{DrainClass, Pass};
use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::about::Kind;
use super::body::{GateBody, Held, Hold, Of, Told, Window};
use super::{Admitted, Via};
use crate::connection::Conn;

pin_project! {
    /// The response of a request that was admitted, or the refusal of one that was not.
    #[must_use = "futures do nothing unless polled"]
    pub struct GateFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        /// The answer is there already.
        Given { response: Option<Box<Response<Bytes>>> },
        Admitted {
            #[pin]
            inner: F,
            // Asked for only when the handler has to wait: many never do.
            cut: Option<Told>,
            // Last: the pass must outlive the work. None when it has gone on with the response.
            admitted: Option<Admitted>,
        },
    }
}

// === impl GateFuture ===

impl<F> GateFuture<F> {
    pub(crate) fn given(response: Box<Response<Bytes>>) -> Self {
        Self { state: State::Given { response: Some(response) } }
    }

    pub(crate) fn admitted(inner: F, admitted: Admitted) -> Self {
        Self { state: State::Admitted { inner, cut: None, admitted: Some(admitted) } }
    }
}

impl<F, B, E> Future for GateFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<GateBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (inner, cut, slot) = match self.project().state.project() {
            StateProj::Given { response } => {
                // A future that is polled after its end gets an empty answer rather than a panic.
                let response = response.take().unwrap_or_default();
                return Poll::Ready(Ok((*response).map(GateBody::given)));
            }
            StateProj::Admitted { inner, cut, admitted } => (inner, cut, admitted),
        };
        let pass = slot.as_ref().and_then(|admitted| admitted.pass.as_ref());
        match within(pass, || inner.poll(cx)) {
            Poll::Ready(Ok(response)) => {
                let response = match slot.take() {
                    Some(admitted) => admitted.answer(response),
                    None => response.map(GateBody::free),
                };
                return Poll::Ready(Ok(response));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {}
        }
        let Some(admitted) = slot else { return Poll::Pending };
        let cut = cut.get_or_insert_with(|| {
            admitted.label();
            admitted.via.door().until_cut()
        });
        cut.as_mut().poll(cx).map(|window| Ok(admitted.cut(window)))
    }
}

impl<F> std::fmt::Debug for GateFuture<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateFuture").finish_non_exhaustive()
    }
}

// === impl Admitted ===

impl Admitted {
    /// It takes its time: from now on it can be seen what is waited for.
    fn label(&mut self) {
        if !std::mem::replace(&mut self.is_labelled, true) {
            self.via.label(self.pass.as_mut());
        }
    }

    /// The response has begun; the pass goes on with its body.
    fn answer<B: Body<Data = Bytes>>(mut self, mut response: Response<B>) -> Response<GateBody<B>> {
        let (class, is_stream) = match self.manner.kind_of(&response, self.via.door().class) {
            Kind::Upgrade { is_websocket } => {
                self.upgrade(is_websocket);
                return response.map(GateBody::free);
            }
            Kind::Body { class, is_stream } => (class, is_stream),
        };
        // A connection that winds down is closed by being used.
        if self.via.conn().is_some_and(Conn::winds_down) {
            self.manner.close_connection(&mut response);
        } else {
            self.manner.keep_close(&mut response);
        }
        if response.body().is_end_stream() {
            return response.map(GateBody::free);
        }
        if is_stream
            && let Some(conn) = self.via.conn()
            && self.manner.ends_by_close(&response)
        {
            conn.answer_ends_by_close();
        }
        let held = match self.pass.take() {
            Some(pass) if class == DrainClass::CloseNow => Held::Pass(pass.reclassified(class)),
            Some(pass) => Held::Pass(pass),
            None => Held::Watch(self.via.door().gate.clone()),
        };
        let has_window = self.via.door().window.is_some() && class != DrainClass::CloseNow;
        let told = has_window.then(|| self.via.door().until_cut());
        let of = match self.via {
            Via::Conn(mut ticket) => {
                ticket.set_ours(false);
                Of::Conn(ticket)
            }
            // A whole body is soon gone; only a stream need be labelled.
            Via::Layer(_, name) => {
                let is_named = has_window || is_stream && !self.is_labelled;
                Of::Layer(is_named.then(|| Box::new(name)))
            }
        };
        let hold = Hold { of, held, class, is_grpc: self.manner.is_grpc() };
        response.map(|body| GateBody::held(body, hold, told))
    }

    /// The connection keeps the pass for as long as it lives.
    fn upgrade(mut self, is_websocket: bool) {
        if let (Via::Conn(ticket), Some(mut pass)) = (&self.via, self.pass.take()) {
            if let Some(name) = ticket.name() {
                pass.set_label(name);
            }
            ticket.conn.upgrade(pass, is_websocket);
        }
    }

    /// The window is over, and there is no response yet.
    fn cut<B: Body<Data = Bytes>>(&self, window: Window) -> Response<GateBody<B>> {
        if let Some(conn) = self.via.conn() {
            conn.turns_away();
        }
        let door = self.via.door();
        match (&self.pass, &self.via) {
            (Some(pass), Via::Layer(_, name)) if window == Window::Route => {
                pass.note_cut_off(name.to_string());
            }
            (Some(pass), _) => pass.count_cut_off(),
            (None, _) => {}
        }
        door.refuse(door.gate.draining(), self.manner).map(GateBody::given)
    }
}

/// Runs `work` on the pass, if there is one.
#[inline]
pub(crate) fn within<T>(pass: Option<&Pass>, work: impl FnOnce() -> T) -> T {
    match pass {
        Some(pass) => pass.within(work),
        None => work(),
    }
}
