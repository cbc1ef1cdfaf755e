//! Dials one peer whenever something is to be sent, and delivers what becomes of it.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::client::Grpc;
use tonic::{Request, Status, Streaming};

use super::core::Core;
use super::frame::Backward;
use super::lane::Lane;
use super::together::{Executor, Together};
use super::wire::{Calls, Connection, DiallingCodec, Io, PATH, client, text};
use crate::time::{Duration, Instant, now, sleep_until};

/// A link that is open.
struct Link {
    answers: Streaming<Backward>,
    /// Ends the connection.
    _connection: DropGuard,
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A link that lasted for less is followed by a pause, as a failed attempt is.
const SHORT: Duration = Duration::from_secs(1);
const CLOSED: &str = "this node closes its links";

/// Serves one lane until the links are closed, or until the lane was not used for long.
pub(super) async fn run(core: Arc<Core>, lane: Arc<Lane>) {
    let mut pause = None;
    while !core.closing.is_cancelled() {
        lane.deliver();
        if !lane.needs_link() {
            tokio::select! {
                biased;
                () = core.closing.cancelled() => {}
                () = lane.woken() => {}
                () = sleep(core.limits.idle) => {
                    if core.retire(&lane) {
                        return;
                    }
                }
            }
            continue;
        }
        let Some(link) = wait_for_link(&core, &lane, pause).await else { break };
        let opened = now();
        let failed = match link {
            Ok(link) => {
                lane.open();
                core.link_opened(&lane.peer);
                log(&core, &lane, None);
                let (why, is_ours) = converse(&core, &lane, link).await;
                log(&core, &lane, Some(&why));
                let failed = !is_ours && now() - opened < SHORT;
                match failed {
                    true => core.link_failed(&lane.peer, &lane.address(), &why),
                    false => core.link_lasted(&lane.peer),
                }
                failed
            }
            Err(why) => {
                log(&core, &lane, Some(&why));
                core.link_failed(&lane.peer, &lane.address(), &why);
                lane.end(None, &why);
                true
            }
        };
        pause =
            failed.then(|| pause.map_or(FIRST_PAUSE, |it: Duration| (it * 2).min(LONGEST_PAUSE)));
    }
    lane.close(CLOSED);
    lane.end(None, CLOSED);
}

/// Pauses, then dials. Meanwhile envelopes expire. `None` if the links are closed.
async fn wait_for_link(
    core: &Arc<Core>,
    lane: &Arc<Lane>,
    pause: Option<Duration>,
) -> Option<Result<Link, String>> {
    let dialling = async {
        if let Some(pause) = pause {
            // Not all nodes at the same instant, after the peer has come back.
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
        dial(core, lane).await
    };
    tokio::pin!(dialling);
    loop {
        let next = lane.expire();
        let expiry = next.map(|next| next.max(now() + Duration::from_millis(5)));
        tokio::select! {
            biased;
            () = core.closing.cancelled() => return None,
            link = &mut dialling => return Some(link),
            () = optional(expiry) => {}
            () = lane.woken() => {}
        }
    }
}

/// Connects, and waits until the peer accepts the link.
async fn dial(core: &Arc<Core>, lane: &Arc<Lane>) -> Result<Link, String> {
    let address = lane.address();
    let peer = &lane.peer.id;
    let started = core.started().ok_or("this node has not joined the cluster")?;
    let io = timeout(core.limits.dial, connect(core, &address)).await;
    let io = io.map_err(|_| format!("timed out connecting to node {peer} at {address}"))?;
    let io = io.map_err(|why| format!("failed to connect to node {peer} at {address}: {why}"))?;

    let number = core.next_link();
    let hello = core.identity.hello(started.incarnation, &lane.peer, number);
    let opening = async {
        let executor = Executor::default();
        let handshake = client(executor.clone(), &core.limits).handshake(io).await;
        let (calls, connection) = handshake.map_err(|error| text(&error))?;
        let end = CancellationToken::new();
        let (ended, killed) = (end.clone(), core.killed.clone());
        let connection = Together::new(executor, async move {
            tokio::select! {
                () = ended.cancelled() => {}
                // An error also ends the stream of answers, which reports it.
                _ = connection => {}
            }
        });
        core.spawn(&started.runtime, async move {
            tokio::select! {
                () = killed.cancelled() => {}
                () = connection => {}
            }
        });
        let connection = end.drop_guard();
        // HTTP/2 requires a host name. The hello names the peer.
        let origin = http::Uri::from_static("http://adieu.cluster");
        let mut grpc = Grpc::with_origin(Calls(calls), origin)
            .max_decoding_message_size(core.limits.longest_answer())
            .max_encoding_message_size(core.limits.longest_frame());
        let mut request = Request::new(lane.begin(number, hello));
        if let Some(token) = core.security.bearer() {
            let header = token.header().parse().map_err(|_| "the token is not a header value")?;
            request.metadata_mut().insert("authorization", header);
        }
        let path = http::uri::PathAndQuery::from_static(PATH);
        grpc.ready().await.map_err(|error| text(&error))?;
        let response = grpc.streaming(request, path, DiallingCodec::default()).await;
        let mut answers = response.map_err(|status| explain(&status))?.into_inner();
        let welcome = answers.message().await.map_err(|status| explain(&status))?;
        let welcome = welcome.and_then(|frame| frame.welcome);
        let welcome = welcome.ok_or("the peer ended the link before it was open")?;
        let (oldest, newest) = core.identity.protocol;
        if !(oldest..=newest).contains(&welcome.protocol) {
            return Err(format!("the peer chose the unknown protocol {}", welcome.protocol));
        }
        Ok(Link { answers, _connection: connection })
    };
    let patience = core.limits.dial + core.limits.unknown_peer;
    let opened = timeout(patience, opening).await;
    let opened = opened.unwrap_or_else(|_| Err("timed out waiting for its welcome".to_owned()));
    opened.map_err(|why: String| format!("no link to node {peer} at {address}: {why}"))
}

async fn connect(core: &Core, address: &str) -> Result<Io, String> {
    let mut last = "the name has no address".to_owned();
    for target in lookup_host(address).await.map_err(|error| error.to_string())? {
        if !core.security.allows(target.ip()) {
            last = format!(
                "{target} is on another machine, so certificates or a token are required; only \
                 loopback addresses need neither"
            );
            continue;
        }
        match TcpStream::connect(target).await {
            Ok(stream) => return secure(core, address, stream).await.map_err(|it| it.to_string()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

async fn secure(core: &Core, address: &str, stream: TcpStream) -> std::io::Result<Io> {
    stream.set_nodelay(true)?;
    let io: Box<dyn Connection> = match &core.tls {
        None => Box::new(stream),
        Some(tls) => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Box::new(tls.connect(host, stream).await?)
        }
    };
    Ok(TokioIo::new(io))
}

/// Delivers answers until the link ends. Returns why it did, and whether this side ended it.
async fn converse(core: &Core, lane: &Lane, mut link: Link) -> (String, bool) {
    let mut is_finishing = false;
    let timer = sleep(core.limits.idle);
    let closing = core.closing.cancelled();
    let woken = lane.woken();
    // Kept from one frame to the next: registering them again for each frame costs time.
    tokio::pin!(timer, closing, woken);
    let (last_read, why) = loop {
        tokio::select! {
            biased;
            // First, so that a peer which answers all the time does not hide them.
            () = &mut closing, if !is_finishing => {
                is_finishing = true;
                lane.close(CLOSED);
                timer.as_mut().reset(tokio::time::Instant::now() + core.limits.farewell);
            }
            () = &mut timer => {
                if is_finishing {
                    let why = match core.closing.is_cancelled() {
                        true => "this node closed its links before the reply",
                        false => "the peer did not close the link in time",
                    };
                    break (None, why.to_owned());
                }
                let since = now().checked_sub(core.limits.idle).unwrap_or_else(now);
                let next = match lane.finish_if_unused_since(since) {
                    Ok(()) => {
                        is_finishing = true;
                        now() + core.limits.farewell
                    }
                    // In use, perhaps with an ask that takes long: look again later.
                    Err(last_use) => (last_use + core.limits.idle).max(now() + core.limits.idle / 8),
                };
                timer.as_mut().reset(next.into());
            }
            frame = link.answers.message() => match frame {
                Ok(Some(frame)) => {
                    let bye = frame.bye;
                    if let Err(violation) = lane.answered(frame) {
                        break (None, violation.to_string());
                    }
                    if let Some(bye) = bye {
                        break (Some(bye.last_read), "the peer closed the link".to_owned());
                    }
                }
                Ok(None) => break (None, "the peer ended the link unexpectedly".to_owned()),
                Err(status) => break (None, format!("the link broke: {}", explain(&status))),
            },
            () = &mut woken => {
                woken.set(lane.woken());
                lane.deliver();
            }
        }
    };
    lane.end(last_read, &why);
    (why, is_finishing)
}

async fn optional(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn explain(status: &Status) -> String {
    match status.message() {
        "" => text(status),
        message => message.to_owned(),
    }
}

fn log(core: &Core, lane: &Lane, ended: Option<&str>) {
    let (cluster, peer) = (Arc::clone(&core.identity.cluster), lane.peer.id.clone());
    let ended = ended.map(str::to_owned);
    adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
        move || match ended {
            None => tracing::debug!(%cluster, %peer, "link opened"),
            Some(why) => tracing::debug!(%cluster, %peer, why, "link ended"),
        }
    });
}
