//! Takes a pass for each request and holds it to the end of its response.
//!
//! The pass is taken in `call`, not in `poll_ready`: an idle clone of the service on a kept-alive
//! connection must not hold the drain open. It is held until the body has ended, failed or been
//! dropped, and through an upgrade.

mod about;
mod body;
mod future;
mod refusal;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use adieu_core::{DrainClass, Draining, Gate, Pass};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body;
use tower::{Layer, Service};

pub(crate) use about::{Manner, Name};
pub use body::{Cut, GateBody};
pub use future::GateFuture;
pub(crate) use future::within;
pub use refusal::Refusal;

use body::{Told, Window};

use crate::connection::{Conn, Ticket};

/// A tower layer that admits requests through a [`Gate`].
///
/// [`serve`](crate::serve()) has it built in; use it by itself with other servers, or for a part of
/// an application that is to have a gate of its own.
///
/// A request that is refused gets 503 with `Retry-After` and `Connection: close`; a gRPC call gets
/// `UNAVAILABLE`. One that is admitted finishes. When its window is over it is cancelled: if it has
/// not been answered it gets that same 503, and a body that is under way is broken off.
///
/// # Streams
///
/// How a response ends when the gate is drained is its [`DrainClass`]: event streams
/// (`text/event-stream`) and watches of gRPC health close at once, everything else finishes. A
/// route can say otherwise with [`GateLayer::class`], a handler by putting a [`DrainClass`] into the
/// extensions of its response.
///
/// A handler whose work can be resumed says so with [`DrainClass::Resumable`], and listens:
///
/// ```
/// use adieu_core::{DrainClass, Pass};
///
/// # async fn handler() {
/// let pass = Pass::current().map(|pass| pass.reclassified(DrainClass::Resumable));
/// if let Some(pass) = pass {
///     // Fires when the doors close; the response has until its window is over.
///     let closing = pass.token();
/// }
/// # }
/// ```
///
/// # Upgrades
///
/// With [`serve`](crate::serve()) the pass is held for as long as the upgraded connection lives.
/// With another server the layer cannot see that; carry [`Pass::current`] into the task that owns
/// the connection.
#[derive(Clone, Debug)]
pub struct GateLayer {
    door: Door,
}

/// The service that [`GateLayer`] makes.
#[derive(Clone, Debug)]
pub struct GateService<S> {
    inner: S,
    door: Arc<Door>,
}

/// A gate, and how requests go through it.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) gate: Gate,
    /// The status of a refusal.
    pub(crate) status: StatusCode,
    pub(crate) class: Option<DrainClass>,
    /// How long after the gate has closed, if that is less than the gate's window.
    pub(crate) window: Option<Duration>,
    pub(crate) refusal_body: Option<RefusalBody>,
}

/// What a refusal says instead of its usual body, and of which type that is.
#[derive(Clone, Debug)]
pub(crate) struct RefusalBody {
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Bytes,
}

// === impl GateLayer ===

impl GateLayer {
    /// Admits requests through this gate.
    #[must_use]
    pub fn new(gate: &Gate) -> Self {
        Self { door: Door::new(gate.clone()) }
    }

    /// Refuses with 429 instead of 503, for clients that take only that as a reason to wait.
    #[must_use]
    pub fn too_many_requests(mut self) -> Self {
        self.door.status = StatusCode::TOO_MANY_REQUESTS;
        self
    }

    /// How responses end when the gate is drained, unless they say so themselves.
    #[must_use]
    pub fn class(mut self, class: DrainClass) -> Self {
        self.door.class = Some(class);
        self
    }

    /// Cuts requests of this route off when the gate has been closed for this long, if the gate's
    /// window is not over before.
    ///
    /// For a route that is not worth the whole window. A request that is cut off is named in the
    /// report, and the outcome is not clean.
    #[must_use]
    pub fn window(mut self, most: Duration) -> Self {
        self.door.window = Some(most);
        self
    }

    /// Refuses with this body instead of the usual JSON. gRPC calls get their status as ever.
    #[must_use]
    pub fn refusal_body(mut self, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        self.door.refusal_body = Some(RefusalBody { content_type, body: body.into() });
        self
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> GateService<S> {
        GateService { inner, door: Arc::new(self.door.clone()) }
    }
}

// === impl GateService ===

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for GateService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<GateBody<ResBody>>;
    type Error = S::Error;
    type Future = GateFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let manner = Manner::of(&request);
        match self.door.admit(manner) {
            Ok(pass) => {
                let via = Via::Layer(Arc::clone(&self.door), Name::of(&request));
                let inner = within(pass.as_ref(), || self.inner.call(request));
                GateFuture::admitted(inner, Admitted::new(pass, manner, via))
            }
            Err(refused) => GateFuture::given(refused),
        }
    }
}

// === impl Door ===

impl Door {
    pub(crate) fn new(gate: Gate) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { gate, status, class: None, window: None, refusal_body: None }
    }

    /// A pass, or none for what needs none, or the refusal.
    pub(crate) fn admit(&self, manner: Manner) -> Result<Option<Pass>, Box<Response<Bytes>>> {
        if manner.asks_for_health() {
            return Ok(None);
        }
        self.gate.enter().map(Some).map_err(|draining| Box::new(self.refuse(draining, manner)))
    }

    pub(crate) fn refuse(&self, draining: Draining, manner: Manner) -> Response<Bytes> {
        let refusal = Refusal::from(draining).with_status(self.status);
        let mut response = refusal.into_response(manner);
        if let Some(RefusalBody { content_type, body }) = &self.refusal_body
            && !manner.is_grpc()
        {
            response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
            *response.body_mut() = body.clone();
        }
        response
    }

    /// Waits until requests that are inside are to be cut off.
    fn until_cut(&self) -> Told {
        let cut = self.gate.cut_token();
        let Some(window) = self.window else {
            return Box::pin(async move {
                cut.cancelled_owned().await;
                Window::Gate
            });
        };
        let closed = self.gate.closed_token();
        let route = async move {
            closed.cancelled_owned().await;
            tokio::time::sleep(window).await;
        };
        Box::pin(async move {
            tokio::select! {
                () = cut.cancelled_owned() => Window::Gate,
                () = route => Window::Route,
            }
        })
    }
}

/// A request that is inside.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// None for what the gate is not asked about.
    pub(crate) pass: Option<Pass>,
    pub(crate) manner: Manner,
    pub(crate) via: Via,
    pub(crate) is_labelled: bool,
}

/// Through which door. One count of references for each request, and if the server is ours, one
/// that belongs to the connection alone.
#[derive(Debug)]
pub(crate) enum Via {
    Layer(Arc<Door>, Name),
    /// The connection knows what its requests are called.
    Conn(Ticket),
}

impl Admitted {
    pub(crate) fn new(pass: Option<Pass>, manner: Manner, via: Via) -> Self {
        Self { pass, manner, via, is_labelled: false }
    }
}

impl Via {
    pub(crate) fn door(&self) -> &Door {
        match self {
            Self::Layer(door, _) => door,
            Self::Conn(ticket) => &ticket.conn.common.door,
        }
    }

    pub(crate) fn conn(&self) -> Option<&Conn> {
        match self {
            Self::Layer(..) => None,
            Self::Conn(ticket) => Some(&ticket.conn),
        }
    }

    /// It takes its time: from now on it can be seen what is waited for.
    pub(crate) fn label(&self, pass: Option<&mut Pass>) {
        match self {
            Self::Layer(_, name) => pass.into_iter().for_each(|pass| pass.set_label(name.clone())),
            Self::Conn(ticket) => ticket.waits(),
        }
    }
}
