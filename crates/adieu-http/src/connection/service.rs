//! Answers the requests of one connection: probes directly, all others through the gate and the
//! application.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower::{Service, ServiceExt};

use super::Conn;
use super::requests::OpenRequest;
use crate::admission::{Admitted, AdmittedBody, AdmittedFuture, poll_application};
use crate::request::{Name, RequestInfo};
use crate::stage::Stage;

/// The service of one connection.
pub(super) struct ConnService<S> {
    app: S,
    conn: Arc<Conn>,
    add_peer: Option<AddPeer>,
}

/// Adds the client's address to the extensions of a request.
pub(crate) type AddPeer = Box<dyn Fn(&mut http::Extensions) + Send + Sync>;

pin_project! {
    /// The application's response to a request.
    pub(super) struct Call<S: Service<Request<Incoming>>> {
        #[pin]
        state: State<S>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S: Service<Request<Incoming>>> {
        Called { #[pin] response: S::Future },
        // Boxed, because it is rare and large, and this future is moved with every request.
        NotReady { oneshot: Pin<Box<Oneshot<S, Request<Incoming>>>> },
    }
}

// === impl ConnService ===

impl<S> ConnService<S> {
    pub(super) fn new(app: S, conn: Arc<Conn>, add_peer: Option<AddPeer>) -> Self {
        Self { app, conn, add_peer }
    }
}

impl<S, B> hyper::service::Service<Request<Incoming>> for ConnService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    B: Body<Data = Bytes>,
{
    type Response = Response<AdmittedBody<B, OpenRequest>>;
    type Error = S::Error;
    type Future = AdmittedFuture<Call<S>, OpenRequest>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let conn = &self.conn;
        let server = &conn.server;
        if let Some(add_peer) = &self.add_peer {
            add_peer(request.extensions_mut());
        }
        conn.set_version(request.version());
        let stream = conn.next_stream();
        let probed = server.probes.as_ref().and_then(|probes| probes.answer(&request));
        if let Some(mut response) = probed {
            conn.record_answered();
            // Not in later stages: the client could not connect again.
            if server.stage.get() == Stage::WindingDown {
                RequestInfo::of(&request).close_connection(&mut response);
            }
            return AdmittedFuture::known(Box::new(response));
        }
        let info = RequestInfo::of(&request);
        let pass = match conn.take_first_request() {
            Some(pass) => Ok(Some(pass)),
            None => server.admission.admit(info),
        };
        match pass {
            Ok(pass) => {
                let open = match &pass {
                    Some(_) => OpenRequest::new(conn, Name::of(&request), stream),
                    None => OpenRequest::uncounted(conn),
                };
                let mut admitted = Some(Admitted::new(open, pass, info));
                let call = poll_application(&mut admitted, || Call::new(&self.app, request));
                AdmittedFuture::new(call, admitted)
            }
            Err(refusal) => {
                conn.record_answered();
                if !request.body().is_end_stream() {
                    conn.mark_client_sending();
                }
                AdmittedFuture::known(refusal)
            }
        }
    }
}

// === impl Call ===

impl<S: Service<Request<Incoming>> + Clone> Call<S> {
    /// Calls the application at once if it is ready, as most applications always are.
    fn new(app: &S, request: Request<Incoming>) -> Self {
        let mut app = app.clone();
        // No waker is needed: `Oneshot` polls an application that is not ready again.
        let ready = app.poll_ready(&mut Context::from_waker(Waker::noop()));
        let state = match ready {
            Poll::Ready(Ok(())) => State::Called { response: app.call(request) },
            Poll::Ready(Err(_)) | Poll::Pending => {
                State::NotReady { oneshot: Box::pin(app.oneshot(request)) }
            }
        };
        Self { state }
    }
}

impl<S: Service<Request<Incoming>>> Future for Call<S> {
    type Output = Result<S::Response, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Called { response } => response.poll(cx),
            StateProj::NotReady { oneshot } => oneshot.as_mut().poll(cx),
        }
    }
}
