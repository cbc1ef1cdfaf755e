//! Answers the requests of one connection: probes first, then through the door to the application.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tower::Service;

use super::Conn;
use super::calling::Calling;
use super::requests::Ticket;
use crate::layer::{Admitted, GateBody, GateFuture, Manner, Name, Via};
use crate::serve::Stage;

/// An application as one connection sees it.
pub(crate) struct ConnService<S> {
    app: S,
    conn: Arc<Conn>,
    introduce: Option<Introduce>,
}

/// Tells a request who is at the other end.
pub(crate) type Introduce = Box<dyn Fn(&mut http::Extensions) + Send + Sync>;

impl<S> ConnService<S> {
    pub(super) fn new(app: S, conn: Arc<Conn>, introduce: Option<Introduce>) -> Self {
        Self { app, conn, introduce }
    }
}

impl<S, B> hyper::service::Service<Request<Incoming>> for ConnService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    B: Body<Data = Bytes>,
{
    type Response = Response<GateBody<B>>;
    type Error = S::Error;
    type Future = GateFuture<Calling<S>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let conn = &self.conn;
        let common = &conn.common;
        if let Some(introduce) = &self.introduce {
            introduce(request.extensions_mut());
        }
        conn.saw(request.version());
        let stream = conn.next_stream();
        let probed = common.probes.as_ref().and_then(|probes| probes.answer(&request));
        if let Some(mut response) = probed {
            // Only while the client can connect anew: later, an open connection is all it has.
            if common.now.get() == Stage::WindingDown {
                Manner::of(&request).close_connection(&mut response);
            }
            return GateFuture::given(Box::new(response));
        }
        let manner = Manner::of(&request);
        let pass = match conn.first_pass() {
            Some(pass) => Ok(Some(pass)),
            None => common.door.admit(manner),
        };
        match pass {
            Ok(pass) => {
                let ticket = match &pass {
                    Some(_) => Ticket::new(conn, Name::of(&request), stream),
                    None => Ticket::uncounted(conn),
                };
                let inner = Calling::new(&self.app, request, pass.as_ref());
                GateFuture::admitted(inner, Admitted::new(pass, manner, Via::Conn(ticket)))
            }
            Err(refused) => {
                if !request.body().is_end_stream() {
                    conn.turns_away();
                }
                GateFuture::given(refused)
            }
        }
    }
}
