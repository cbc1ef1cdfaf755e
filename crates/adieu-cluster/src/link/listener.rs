//! Accepts the connections of members, and rejects other callers.

use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};

use super::accepted::Inbound;
use super::core::{Core, Started};
use super::frame::{Backward, Forward, Welcome};
use super::hello::Caller;
use super::reader::Accepted;
use super::rejections::Cause;
use super::together::{Executor, Together};
use super::wire::{AcceptingCodec, Connection, PATH, server};
use crate::time::{Duration, now};

/// With this many tasks, new connections are closed at once. A peer needs three: a connection in
/// each direction, and the dialler.
const MOST_TASKS: usize = 50_000;

/// Accepts connections until the links are closed.
pub(super) async fn run(core: Arc<Core>, listener: TcpListener, runtime: Handle) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = core.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) if core.tasks.len() < MOST_TASKS => {
                let served = serve(Arc::clone(&core), stream, from.ip());
                core.spawn(&runtime, served);
            }
            Ok(_) => {}
            Err(error) => {
                let cluster = Arc::clone(&core.identity.cluster);
                adieu_core::adapter::log_aside(tracing::Level::WARN, || {
                    move || {
                        tracing::warn!(%cluster, %error, "failed to accept a node's connection; retrying");
                    }
                });
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves one connection.
async fn serve(core: Arc<Core>, stream: TcpStream, from: IpAddr) {
    let secured = tokio::select! {
        biased;
        () = core.closing.cancelled() => return,
        secured = timeout(core.limits.silence, secure(&core, stream)) => secured,
    };
    let io = match secured {
        Ok(Ok(io)) => io,
        // A probe of the port, or a peer that has gone.
        Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => return,
        Ok(Err(error)) => {
            let why = format!("the TLS handshake failed: {error}");
            return core.rejected(from, Cause::Handshake, &why);
        }
        Err(_) => return,
    };
    let is_greeted = CancellationToken::new();
    let service = {
        let (core, is_greeted) = (Arc::clone(&core), is_greeted.clone());
        service_fn(move |request| handle(Arc::clone(&core), from, is_greeted.clone(), request))
    };
    let executor = Executor::default();
    let connection =
        server(executor.clone(), &core.limits).serve_connection(TokioIo::new(io), service);
    // Errors of the peer's connection end its stream, too.
    let mut connection = Together::new(executor, async move { drop(connection.await) });
    tokio::select! {
        () = &mut connection => return,
        () = is_greeted.cancelled() => {}
        () = sleep(core.limits.silence) => return,
        () = core.closing.cancelled() => return,
    }
    // The peer closes the connection when it has read `Bye`. If this side closed it first,
    // frames that were not read would make the system reset it, and the farewell could be lost.
    tokio::select! {
        () = &mut connection => {}
        () = core.killed.cancelled() => {}
    }
}

async fn secure(core: &Core, stream: TcpStream) -> std::io::Result<Box<dyn Connection>> {
    stream.set_nodelay(true)?;
    Ok(match &core.tls {
        None => Box::new(stream),
        Some(tls) => Box::new(tls.accept(stream).await?),
    })
}

async fn handle(
    core: Arc<Core>,
    from: IpAddr,
    is_greeted: CancellationToken,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    // Before anything else that the caller has sent is read.
    if let Some(token) = core.security.bearer() {
        let given = request.headers().get(AUTHORIZATION);
        if !given.is_some_and(|given| token.matches(given.as_bytes())) {
            let text = "the token is missing or is not the one of this cluster";
            core.rejected(from, Cause::Token, text);
            return Ok(Status::unauthenticated(text).into_http());
        }
    }
    if request.uri().path() != PATH {
        return Ok(Status::unimplemented("nodes call only the method Link").into_http());
    }
    let mut grpc = Grpc::new(AcceptingCodec::default())
        .max_decoding_message_size(core.limits.longest_frame())
        .max_encoding_message_size(usize::MAX);
    Ok(grpc.streaming(Greeter { core, from, is_greeted }, request).await)
}

/// Reads the hello of a peer, and accepts its link or not.
struct Greeter {
    core: Arc<Core>,
    from: IpAddr,
    is_greeted: CancellationToken,
}

impl StreamingService<Forward> for Greeter {
    type Response = Backward;
    type ResponseStream = Accepted;
    type Future =
        Pin<Box<dyn Future<Output = Result<tonic::Response<Accepted>, Status>> + Send + 'static>>;

    fn call(&mut self, request: tonic::Request<Streaming<Forward>>) -> Self::Future {
        let (core, is_greeted) = (Arc::clone(&self.core), self.is_greeted.clone());
        let from = self.from;
        Box::pin(async move {
            let accepted = greet(core, from, request.into_inner()).await?;
            is_greeted.cancel();
            Ok(tonic::Response::new(accepted))
        })
    }
}

async fn greet(
    core: Arc<Core>,
    from: IpAddr,
    mut frames: Streaming<Forward>,
) -> Result<Accepted, Status> {
    let first = timeout(core.limits.silence, frames.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no hello in time"))??;
    let hello = first.and_then(|frame| frame.hello);
    let hello = hello.ok_or_else(|| Status::invalid_argument("the first frame is not a hello"))?;
    let rejected = |cause, why: String| {
        core.rejected(from, cause, &why);
        why
    };
    let caller = core.identity.check(&hello).map_err(|why| rejected(Cause::Hello, why));
    let caller = caller.map_err(Status::failed_precondition)?;
    let started = recognise(&core, &caller).await.map_err(|why| rejected(Cause::Member, why));
    let started = started.map_err(Status::permission_denied)?;
    let Caller { peer, protocol, link, .. } = caller;
    let receiver = Arc::clone(&started.receiver);
    let inbound = Arc::new(Inbound::new(peer, link, receiver, core.limits));
    core.admit(&inbound).map_err(Status::unavailable)?;
    let welcome = Welcome { protocol, build: core.identity.build.as_ref().to_owned() };
    Ok(Accepted::new(core, started, inbound, frames, welcome))
}

/// Waits until this node's view shows the caller, and until this node is the one that is wanted.
async fn recognise(core: &Core, caller: &Caller) -> Result<Started, String> {
    let begun = now();
    loop {
        let started = core.started();
        let (is_known, why) = match &started {
            None => (false, format!("node {} has not joined yet", core.identity.node)),
            Some(it) if it.incarnation != caller.wanted => {
                let (node, ours, wanted) = (&core.identity.node, it.incarnation, caller.wanted);
                (false, format!("node {node} has the incarnation {ours}, not {wanted}"))
            }
            Some(it) => {
                let (id, incarnation) = (&caller.peer.id, caller.peer.incarnation);
                let why = format!("incarnation {incarnation} of node {id} is not a member");
                (it.receiver.knows(&caller.peer), why)
            }
        };
        match started {
            Some(started) if is_known => return Ok(started),
            _ if now() - begun >= core.limits.unknown_peer => return Err(why),
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}
