//! Waits for the response of a request that was admitted.

use std::pin::Pin;
use std::task::{Context, Poll};

use adieu_core::{DrainClass, Pass};
use bytes::Bytes;
use http::Response;
use http::header::{CONNECTION, HeaderValue};
use http_body::Body;
use pin_project_lite::pin_project;

use super::Admitted;
use super::about::Kind;
use super::body::{GateBody, Held, Hold, Told};
use super::refusal::Refusal;
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
            // Last: the pass must outlive the work.
            admitted: Admitted,
        },
    }
}

// === impl GateFuture ===

impl<F> GateFuture<F> {
    pub(crate) fn given(response: Box<Response<Bytes>>) -> Self {
        Self { state: State::Given { response: Some(response) } }
    }

    pub(crate) fn admitted(inner: F, admitted: Admitted) -> Self {
        Self { state: State::Admitted { inner, cut: None, admitted } }
    }
}

impl<F, B, E> Future for GateFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<GateBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (inner, cut, admitted) = match self.project().state.project() {
            StateProj::Given { response } => {
                // A future that is polled after its end gets an empty answer rather than a panic.
                let response = response.take().unwrap_or_default();
                return Poll::Ready(Ok((*response).map(GateBody::given)));
            }
            StateProj::Admitted { inner, cut, admitted } => (inner, cut, admitted),
        };
        match within(admitted.pass.as_ref(), || inner.poll(cx)) {
            Poll::Ready(Ok(response)) => return Poll::Ready(Ok(admitted.answer(response))),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {}
        }
        let cut = cut.get_or_insert_with(|| {
            admitted.label();
            Box::pin(admitted.via.door().gate.cut_token().cancelled_owned())
        });
        cut.as_mut().poll(cx).map(|()| Ok(admitted.cut()))
    }
}

impl<F> std::fmt::Debug for GateFuture<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateFuture").finish_non_exhaustive()
    }
}

// === impl Admitted ===

impl Admitted {
    /// It takes its time: from now on it can be seen who is waited for.
    fn label(&mut self) {
        if !std::mem::replace(&mut self.is_labelled, true) {
            let about = &self.about;
            self.pass.iter_mut().for_each(|pass| pass.set_label(about.clone()));
        }
    }

    /// The response has begun; the pass goes on with it. The rest stays: moving it costs.
    fn answer<B: Body<Data = Bytes>>(
        &mut self,
        mut response: Response<B>,
    ) -> Response<GateBody<B>> {
        let (class, is_stream) = match self.about.kind_of(&response, self.via.door().class) {
            Kind::Upgrade { is_websocket } => {
                self.label();
                if let (Some(conn), Some(pass)) = (self.via.conn(), self.pass.take()) {
                    conn.upgrade(pass, is_websocket);
                }
                return response.map(GateBody::free);
            }
            Kind::Body { class, is_stream } => (class, is_stream),
        };
        self.close_connection(&mut response);
        if response.body().is_end_stream() {
            // All that is left is to say so.
            self.pass = None;
            return response.map(GateBody::free);
        }
        let held = match self.pass.take() {
            Some(pass) if class == DrainClass::CloseNow => Held::Pass(pass.reclassified(class)),
            Some(pass) => Held::Pass(pass),
            None => Held::Watch(self.via.door().gate.clone()),
        };
        // What is whole is soon gone; only a stream need be called by its name.
        let about = (is_stream && !self.is_labelled).then(|| Box::new(self.about.clone()));
        let is_grpc = self.about.is_grpc();
        response.map(|body| GateBody::held(body, Hold { held, about, class, is_grpc }))
    }

    /// The window is over, and there is no response yet.
    fn cut<B: Body<Data = Bytes>>(&self) -> Response<GateBody<B>> {
        if let Some(conn) = self.via.conn() {
            conn.turns_away();
        }
        let door = self.via.door();
        let refusal = Refusal::from(door.gate.draining()).with_status(door.status);
        refusal.into_response(&self.about).map(GateBody::given)
    }

    /// A connection that winds down is closed by being used.
    fn close_connection<B>(&self, response: &mut Response<B>) {
        let winds_down = self.via.conn().is_some_and(Conn::winds_down);
        if winds_down && self.about.has_connection_header() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
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
