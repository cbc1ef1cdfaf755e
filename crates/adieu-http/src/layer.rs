//! The tower layer that admits requests through a gate, for other servers and for single routes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use adieu_core::{DrainClass, Gate, Pass};
use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::admission::{
    Admission, Admitted, AdmittedBody, AdmittedFuture, Origin, RefusalBody, poll_application,
};
use crate::app::BoxError;
use crate::pieces::{InPieces, Pieces};
use crate::request::{Name, RequestInfo};

/// A tower layer that admits requests through a [`Gate`].
///
/// [`serve`](crate::serve()) has it built in. Use the layer with other servers, or for a part of an
/// application that needs a gate of its own.
///
/// A request that the gate refuses gets 503 with `Retry-After` and `Connection: close`; a gRPC call
/// gets `UNAVAILABLE`. An admitted request finishes. When its window has elapsed it is cut off: a
/// request without a response gets the same 503, and a body that is being sent is aborted.
///
/// The layer does not own the connection. An HTTP/1.0 client recognises the end of a body of unknown
/// length by the end of the connection. If such a body is cut behind another server, such as
/// `axum::serve`, that server closes the connection regularly, and the cut body looks complete; only
/// the log, the report and the outcome show the cut. [`serve`](crate::serve()) resets the connection
/// instead. Behind another server, let proxies speak HTTP/1.1, such as nginx with
/// `proxy_http_version 1.1`: then the last chunk is missing, and the proxy recognises the cut.
///
/// For the same reason, the layer does not observe how much of a response the client has received. A
/// request leaves the gate when the server has taken the last piece of its body, of 64 KiB at most. The
/// bytes in the buffers of the server are then not waited for: about half a megabyte for each
/// connection with hyper, in addition to the send buffer of the kernel, which the kernel still sends
/// after the process has ended. If the client reads slowly, and the process ends, these bytes are lost,
/// and the report does not show that. To wait for them, add a task that waits for the server:
///
/// ```no_run
/// use adieu_core::{Phase, Shutdown};
/// use adieu_http::GateLayer;
/// # #[cfg(feature = "axum")]
/// async fn serve(shutdown: &Shutdown, app: axum::Router) -> Result<(), adieu_http::BoxError> {
///     let gate = shutdown.add_gate("api")?;
///     let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
///     let server = axum::serve(listener, app.layer(GateLayer::new(&gate)))
///         .with_graceful_shutdown(gate.closed_token().cancelled_owned());
///     let server = tokio::spawn(server.into_future());
///     shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "axum", async |_| server.await?)?;
///     shutdown.completed().await?;
///     Ok(())
/// }
/// ```
///
/// [`serve`](crate::serve()) waits until the client has acknowledged the last byte, and reports every
/// response that it cuts.
///
/// # Streams
///
/// The [`DrainClass`] of a response decides how it ends when the gate drains. Event streams
/// (`text/event-stream`) and watches of gRPC health close at once, all other responses finish. A
/// route can choose another class with [`GateLayer::class`], a handler by putting a [`DrainClass`]
/// into the extensions of its response.
///
/// A handler whose work can be resumed chooses [`DrainClass::Resumable`] and listens to its token:
///
/// ```
/// use adieu_core::{DrainClass, Pass};
///
/// # async fn handler() {
/// let pass = Pass::current().map(|pass| pass.reclassified(DrainClass::Resumable));
/// if let Some(pass) = pass {
///     // Fires when the gate closes. The response can finish until its window has elapsed.
///     let closing = pass.token();
/// }
/// # }
/// ```
///
/// # Upgrades
///
/// With [`serve`](crate::serve()) the pass is held until the handler has dropped the upgraded
/// connection. A handler that reads or writes observes the end of the connection; one that does
/// neither holds the drain until its window has elapsed, and is then named in the report. With
/// another server the layer cannot observe that: carry [`Pass::current`] into the task that owns
/// the connection.
#[derive(Clone, Debug)]
pub struct GateLayer {
    admission: Admission,
}

/// The service that [`GateLayer`] makes.
#[derive(Clone, Debug)]
pub struct GateService<S> {
    inner: S,
    admission: Arc<Admission>,
}

pin_project! {
    /// The response to an admitted request, or the refusal.
    #[must_use = "futures do nothing unless polled"]
    pub struct GateFuture<F> {
        #[pin]
        inner: AdmittedFuture<InPieces<F>, LayerRequest>,
    }
}

pin_project! {
    /// A body that holds the pass of its request until it has ended, failed or been dropped.
    pub struct GateBody<B> {
        #[pin]
        inner: AdmittedBody<Pieces<B>, LayerRequest>,
    }
}

/// A request that came through a layer.
#[derive(Debug)]
struct LayerRequest {
    admission: Arc<Admission>,
    name: Name,
    /// The request is already inside the same gate, such as that of its server. The layer then only
    /// adds its own window and class.
    is_nested: bool,
}

// === impl GateLayer ===

impl GateLayer {
    /// Admits requests through this gate.
    #[must_use]
    pub fn new(gate: &Gate) -> Self {
        Self { admission: Admission::new(gate.clone()) }
    }

    /// Refuses with 429 instead of 503, for clients that retry only after 429.
    #[must_use]
    pub fn too_many_requests(mut self) -> Self {
        self.admission.refusal_status = StatusCode::TOO_MANY_REQUESTS;
        self
    }

    /// Sets how responses end when the gate drains, unless the response sets its own class.
    #[must_use]
    pub fn class(mut self, class: DrainClass) -> Self {
        self.admission.class = Some(class);
        self
    }

    /// Cuts requests of this route off when the gate has been closed for this long, if the gate's
    /// own window is longer.
    ///
    /// For a route that is not worth the whole window. The report names a request that is cut off,
    /// and the outcome is not clean.
    ///
    /// Below [`serve`](crate::serve()), pass the server's gate to both, with
    /// [`Serve::gate`](crate::Serve::gate) and [`GateLayer::new`]. A request then counts once. A gate
    /// of its own must be drained, too: see [`Shutdown::add_gate`](adieu_core::Shutdown::add_gate).
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.admission.window = Some(window);
        self
    }

    /// Refuses with this body instead of the JSON body. The refusal of a gRPC call does not change.
    #[must_use]
    pub fn refusal_body(mut self, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        self.admission.refusal_body = Some(RefusalBody { content_type, bytes: body.into() });
        self
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> GateService<S> {
        GateService { inner, admission: Arc::new(self.admission.clone()) }
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
        let info = RequestInfo::of(&request);
        let is_nested = self.admission.gate.current().is_some();
        let admitted = if is_nested { Ok(None) } else { self.admission.admit(info) };
        let inner = match admitted {
            Ok(pass) => {
                let admission = Arc::clone(&self.admission);
                let origin = LayerRequest { admission, name: Name::of(&request), is_nested };
                let mut admitted = Some(Admitted::new(origin, pass, info));
                let call = || InPieces::of(self.inner.call(request));
                let inner = poll_application(&mut admitted, call);
                AdmittedFuture::new(inner, admitted)
            }
            Err(refusal) => AdmittedFuture::known(refusal),
        };
        GateFuture { inner }
    }
}

// === impl GateFuture ===

impl<F, B, E> Future for GateFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<GateBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.project().inner.poll(cx);
        polled.map_ok(|response| response.map(|inner| GateBody { inner }))
    }
}

impl<F> std::fmt::Debug for GateFuture<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateFuture").finish_non_exhaustive()
    }
}

// === impl GateBody ===

impl<B> Body for GateBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.project().inner.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> std::fmt::Debug for GateBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateBody").finish_non_exhaustive()
    }
}

// === impl LayerRequest ===

impl Origin for LayerRequest {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn is_nested(&self) -> bool {
        self.is_nested
    }

    fn settle(&self) -> Option<Name> {
        Some(self.name.clone())
    }

    fn report_cut(&self, name: Name) {
        self.admission.gate.note_cut_off(name.to_string());
    }

    fn mark_waiting(&self, pass: Option<&mut Pass>) {
        pass.into_iter().for_each(|pass| pass.set_label(self.name.clone()));
    }
}
