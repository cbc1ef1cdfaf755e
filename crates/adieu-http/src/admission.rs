//! Admits requests through a gate, and carries each request's pass to the end of its response.
//!
//! The pass is taken in `call`, not in `poll_ready`: an idle clone of a service on a kept-alive
//! connection must not hold the drain open. It is held until the body has ended, failed or been
//! dropped, and for as long as an upgraded connection lives.
//!
//! The server's connections and [`GateLayer`](crate::GateLayer) share this code. They differ in
//! which facts about a request they have; [`Origin`] is that difference.

mod body;
mod future;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::time::Duration;

use adieu_core::{DrainClass, Draining, Gate, Pass};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;

pub(crate) use body::AdmittedBody;
pub use body::Cut;
pub(crate) use future::AdmittedFuture;

use crate::refusal::Refusal;
use crate::request::{Name, RequestInfo, ResponseKind};

/// A gate, and the settings with which requests are admitted through it.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) gate: Gate,
    pub(crate) refusal_status: StatusCode,
    /// The drain class of responses that do not set one.
    pub(crate) class: Option<DrainClass>,
    /// How long after the gate has closed requests are cut off, if the gate's window is longer.
    pub(crate) window: Option<Duration>,
    pub(crate) refusal_body: Option<RefusalBody>,
}

/// A custom body for refusals.
#[derive(Clone, Debug)]
pub(crate) struct RefusalBody {
    pub(crate) content_type: HeaderValue,
    pub(crate) bytes: Bytes,
}

/// The origin of an admitted request: a connection of [`serve`](crate::serve()), or a layer.
pub(crate) trait Origin {
    /// Returns the settings under which the request was admitted.
    fn admission(&self) -> &Admission;

    /// Makes the request appear by name while the gate drains. Called when the request first waits.
    fn mark_waiting(&self, pass: Option<&mut Pass>);

    /// Returns whether the request is admitted by an outer origin of the same gate, which cuts and
    /// reports it when the gate's window has elapsed.
    fn is_nested(&self) -> bool {
        false
    }

    /// Records whether the request waits for the application, or for the client to read.
    fn set_awaits_application(&mut self, _awaits: bool) {}

    /// Returns whether responses should ask clients to reconnect elsewhere.
    fn is_winding_down(&self) -> bool {
        false
    }

    /// Records that only the end of the connection marks the end of the response.
    fn mark_ends_by_close(&self) {}

    /// Records that the request was refused, and that its body may still be arriving.
    fn mark_refused(&self) {}

    /// Records that the application has answered completely, or that the rest of the request is accounted
    /// for elsewhere.
    fn mark_done(&mut self) {}

    /// Marks the request as settled: either the caller reports it as cut now, or the application
    /// itself has failed the response. Returns the request's name if it was not settled before.
    fn settle(&self) -> Option<Name>;

    /// Counts and names a request that was cut because the gate's window has elapsed.
    fn report_cut(&self, name: Name);

    /// Takes the pass of a request whose connection is upgraded.
    ///
    /// By default the pass ends here, because the life of the connection cannot be observed.
    fn upgrade(&self, pass: Pass, _is_websocket: bool) {
        drop(pass);
    }
}

/// An admitted request. It moves from the future of the response into the response's body.
#[derive(Debug)]
pub(crate) struct Admitted<O> {
    // Dropped before the pass: a request that has left the gate must not count as stalled, or the
    // server would conclude that all remaining requests are.
    origin: O,
    /// `None` for gRPC health checks, which need no pass.
    pass: Option<Pass>,
    info: RequestInfo,
    /// How the response ends when the gate drains. Known when the response has begun.
    class: DrainClass,
    is_labelled: bool,
}

/// An extension of the refusal to a request that was cut and has been reported.
#[derive(Clone, Copy, Debug)]
struct IsCut;

/// Waits until a request must end, and returns whose window has elapsed.
type UntilCut = Pin<Box<dyn Future<Output = Window> + Send>>;

/// The window that has elapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    /// The gate's.
    Gate,
    /// The route's.
    Route,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(gate: Gate) -> Self {
        let refusal_status = StatusCode::SERVICE_UNAVAILABLE;
        Self { gate, refusal_status, class: None, window: None, refusal_body: None }
    }

    /// Returns a pass, `None` for a gRPC health check, or the refusal.
    pub(crate) fn admit(&self, request: RequestInfo) -> Result<Option<Pass>, Box<Response<Bytes>>> {
        if request.is_health_check() {
            return Ok(None);
        }
        self.gate.enter().map(Some).map_err(|draining| Box::new(self.refuse(draining, request)))
    }

    fn refuse(&self, draining: Draining, request: RequestInfo) -> Response<Bytes> {
        let refusal = Refusal::from(draining).with_status(self.refusal_status);
        let mut response = refusal.into_response(request);
        if let Some(RefusalBody { content_type, bytes }) = &self.refusal_body
            && !request.is_grpc()
        {
            response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
            *response.body_mut() = bytes.clone();
        }
        response
    }

    /// Waits until admitted requests must be cut off.
    fn until_cut(&self, is_nested: bool) -> UntilCut {
        let (cut, closed, window) = (self.gate.cut_token(), self.gate.closed_token(), self.window);
        let gate = async move {
            if is_nested {
                std::future::pending::<()>().await;
            }
            cut.cancelled_owned().await;
        };
        let Some(window) = window else {
            return Box::pin(async move {
                gate.await;
                Window::Gate
            });
        };
        let route = async move {
            closed.cancelled_owned().await;
            tokio::time::sleep(window).await;
        };
        Box::pin(async move {
            tokio::select! {
                () = gate => Window::Gate,
                () = route => Window::Route,
            }
        })
    }
}

// === impl Admitted ===

impl<O: Origin> Admitted<O> {
    pub(crate) fn new(origin: O, pass: Option<Pass>, info: RequestInfo) -> Self {
        Self { origin, pass, info, class: DrainClass::Finish, is_labelled: false }
    }

    /// Makes the request appear by name while the gate drains.
    fn label(&mut self) {
        if !std::mem::replace(&mut self.is_labelled, true) {
            self.origin.mark_waiting(self.pass.as_mut());
        }
    }

    /// Moves the pass into the body of the response, or into the upgraded connection.
    fn answer<B: Body<Data = Bytes>>(
        mut self,
        mut response: Response<B>,
    ) -> Response<AdmittedBody<B, O>> {
        let route_class = self.origin.admission().class;
        let (class, is_stream) = match self.info.response_kind(&response, route_class) {
            ResponseKind::Upgrade { is_websocket } => {
                self.origin.mark_done();
                if let Some(pass) = self.pass.take() {
                    self.origin.upgrade(pass, is_websocket);
                }
                return response.map(AdmittedBody::unaccounted);
            }
            ResponseKind::Body { class, is_stream } => (class, is_stream),
        };
        if self.origin.is_winding_down() {
            self.info.close_connection(&mut response);
        } else {
            self.info.keep_close(&mut response);
        }
        if response.extensions_mut().remove::<IsCut>().is_some() {
            // A layer has reported the request.
            let _ = self.origin.settle();
        }
        if response.body().is_end_stream() {
            self.origin.mark_done();
            return response.map(AdmittedBody::unaccounted);
        }
        if is_stream && self.info.ends_by_close(&response) {
            self.origin.mark_ends_by_close();
        }
        self.class = class;
        if class == DrainClass::CloseNow {
            self.pass = self.pass.take().map(|pass| pass.reclassified(class));
        }
        self.origin.set_awaits_application(false);
        let admission = self.origin.admission();
        let has_window = admission.window.is_some() && class != DrainClass::CloseNow;
        let until_cut = has_window.then(|| admission.until_cut(self.origin.is_nested()));
        response.map(|body| AdmittedBody::admitted(body, self, until_cut))
    }

    /// Returns the refusal for a request that has no response when its window has elapsed.
    fn cut_without_answer(&self, window: Window) -> Response<Bytes> {
        self.origin.mark_refused();
        self.report_cut(window);
        let admission = self.origin.admission();
        let mut response = admission.refuse(admission.gate.draining(), self.info);
        response.extensions_mut().insert(IsCut);
        response
    }

    /// Counts and names the request as cut, unless it has been already. gRPC health checks are not
    /// counted.
    fn report_cut(&self, window: Window) {
        if let Some(name) = self.origin.settle() {
            match window {
                Window::Gate => self.origin.report_cut(name),
                Window::Route => self.origin.admission().gate.note_cut_off(name.to_string()),
            }
        }
    }

    /// Names the request as not finished, if the application has failed it after the gate was closed.
    /// Before, that is an ordinary failure of the application.
    fn report_failure(&self, how: &str) {
        if self.pass.is_none() || self.origin.is_nested() || !self.is_gate_closed() {
            return;
        }
        if let Some(name) = self.origin.settle() {
            self.origin.admission().gate.note_cut_off(format!("{name} {how}"));
        }
    }

    fn is_gate_closed(&self) -> bool {
        match &self.pass {
            Some(pass) => pass.is_draining(),
            None => self.origin.admission().gate.is_closed(),
        }
    }

    /// Waits until the body must end. A resumable response ends itself before that.
    fn until_end(&self) -> UntilCut {
        let gate = &self.origin.admission().gate;
        let token = match &self.pass {
            Some(pass) => pass.token(),
            None if self.class == DrainClass::CloseNow => gate.closed_token(),
            None if self.origin.is_nested() => return Box::pin(std::future::pending()),
            None => gate.cut_token(),
        };
        Box::pin(async move {
            token.cancelled_owned().await;
            Window::Gate
        })
    }
}

/// Calls or polls the application's code inside the pass. If it panics, names the request as not finished, and
/// releases its pass here: a pass that is dropped while the thread unwinds records itself, without the
/// name of the request.
#[inline]
pub(crate) fn poll_application<O: Origin, T>(
    slot: &mut Option<Admitted<O>>,
    poll: impl FnOnce() -> T,
) -> T {
    let pass = slot.as_ref().and_then(|admitted| admitted.pass.as_ref());
    let polled = catch_unwind(AssertUnwindSafe(|| within(pass, poll)));
    polled.unwrap_or_else(|panic| {
        if let Some(admitted) = slot.take() {
            admitted.report_failure("panicked");
        }
        resume_unwind(panic)
    })
}

/// Runs `work` inside the pass, if there is one.
#[inline]
fn within<T>(pass: Option<&Pass>, work: impl FnOnce() -> T) -> T {
    match pass {
        Some(pass) => pass.within(work),
        None => work(),
    }
}
