//! Clients that record the responses that they got.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use adieu_testkit::ledger::{Fact, Ledger};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::plan::{Client, Plan};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How large a large answer is.
pub const LARGE: usize = 12 << 20;

/// How large an answer in one frame is. More than the buffers of both kernels hold.
pub const FRAME: usize = 2 * LARGE;

/// How much of it a slow client reads in a second.
const SLOW: usize = 500_000;

/// How much a client that pauses reads, and for how long it then does not.
const PAUSE_AFTER: usize = LARGE / 6;
const PAUSE: Duration = Duration::from_millis(2_600);

/// Clients at work.
#[derive(Debug)]
pub struct Load {
    thread: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

/// A connection that requests without a body go over.
#[derive(Debug)]
pub enum Connection {
    /// One at a time.
    Http1(hyper::client::conn::http1::SendRequest<Empty<Bytes>>),
    /// Several at a time.
    Http2(hyper::client::conn::http2::SendRequest<Empty<Bytes>>),
}

/// One client.
struct Asking {
    number: u64,
    kind: Client,
    at: SocketAddr,
    socket: PathBuf,
    rng: fastrand::Rng,
    ledger: Arc<Ledger>,
    is_over: Arc<AtomicBool>,
}

// === impl Load ===

impl Load {
    /// Starts all clients of a plan, on a thread of their own. `socket` is the Unix socket of the
    /// service.
    ///
    /// # Panics
    ///
    /// If there can be no thread.
    #[must_use]
    pub fn start(plan: &Plan, at: SocketAddr, socket: &Path, ledger: &Arc<Ledger>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let clients: Vec<Asking> = (0u64..)
            .zip(&plan.clients)
            .map(|(number, kind)| Asking {
                number,
                kind: *kind,
                at,
                socket: socket.to_owned(),
                rng: fastrand::Rng::with_seed(plan.seed ^ (number << 32)),
                ledger: Arc::clone(ledger),
                is_over: Arc::clone(&is_over),
            })
            .collect();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                for client in clients {
                    tasks.spawn(client.run());
                }
                while tasks.join_next().await.is_some() {}
            });
        });
        Self { thread, is_over }
    }

    /// Ends the load, after the process has ended.
    ///
    /// # Panics
    ///
    /// If a client panicked.
    pub fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("clients do not panic");
    }
}

// === impl Asking ===

impl Asking {
    async fn run(mut self) {
        match self.kind {
            Client::Http1 | Client::Http2 => self.orders().await,
            Client::Slow | Client::CutHttp10 | Client::CutUnix | Client::CutFrame => {
                self.large().await;
            }
            Client::Paused => self.paused().await,
            // The outcome of its message is in the journal of the service.
            Client::BusySocket => drop(self.socket().await),
        }
    }

    /// Orders and asks for pages, one after another, until the process has ended.
    async fn orders(&mut self) {
        let mut connection = None;
        let mut asked = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            asked += 1;
            let id = self.number * 1_000_000 + asked;
            let is_order = self.rng.u8(0..4) != 0;
            let answered = async {
                if connection.is_none() {
                    connection = Some(Connection::open(self.kind, self.at).await?);
                }
                let Some(open) = &mut connection else { return Ok(()) };
                if is_order { self.order(open, id).await } else { self.page(open, id).await }
            };
            // A server that does not answer within this time has lost the request.
            let answered = tokio::time::timeout(Duration::from_secs(30), answered).await;
            let is_alive = matches!(answered, Ok(Ok(())));
            if !is_alive || (self.kind == Client::Http1 && self.rng.u8(0..8) == 0) {
                connection = None;
            }
            let pause = if is_alive { self.rng.u64(2..6) } else { 10 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Places an order. An error before the answer leaves it open what became of it.
    async fn order(&self, connection: &mut Connection, id: u64) -> Result<(), Error> {
        let (status, body) = connection.send("POST", &format!("/order/{id}")).await?;
        match status {
            StatusCode::ACCEPTED => self.ledger.accepted("order", id),
            _ => self.ledger.refused("order", id),
        }
        body.collect().await?;
        Ok(())
    }

    async fn page(&self, connection: &mut Connection, id: u64) -> Result<(), Error> {
        let path = format!("/page/{id}");
        let (status, body) = connection.send("GET", &path).await?;
        if status != StatusCode::OK {
            self.ledger.refused("page", &path);
            return Ok(());
        }
        self.ledger.accepted("page", &path);
        match body.collect().await.map(http_body_util::Collected::to_bytes) {
            Ok(body) if body == format!("page {id}") => self.ledger.finished("page", &path),
            Ok(_) => self.ledger.record(Fact::Disguised, "page", &path),
            Err(_) => self.ledger.record(Fact::Cut, "page", &path),
        }
        Ok(())
    }

    /// Asks for a large answer, by hand: how it ends is what matters.
    async fn large(&self) {
        let is_frame = self.kind == Client::CutFrame;
        let (route, size) = if is_frame { ("frame", FRAME) } else { ("large", LARGE) };
        let path = format!("/{route}/{}", self.number);
        let is_http10 = self.kind.is_cut() && !is_frame;
        let Ok(Read { bytes, before_exit, ended }) = self.read_large(&path, is_http10).await else {
            return;
        };
        // The network may be gone with the process: bytes that were not received by then are lost.
        let is_received = before_exit.is_none_or(|before| before == bytes);
        let fact = match ended {
            Ended::Whole if is_received => Fact::Finished,
            // The head states the length.
            Ended::Closed if is_frame && is_received && bytes > size => Fact::Finished,
            // Without a length, the end of the connection is the end of the answer.
            Ended::Closed if is_http10 && bytes < size => Fact::Disguised,
            Ended::Closed if is_http10 => Fact::Finished,
            Ended::Whole | Ended::Closed | Ended::Broken => Fact::Cut,
        };
        self.ledger.record(Fact::Accepted, "large", &path);
        self.ledger.record(fact, "large", &path);
    }

    /// Asks for a large answer over HTTP/2, and reads it with pauses.
    async fn paused(&self) {
        let path = format!("/large/{}", self.number);
        let Ok(mut connection) = Connection::open(Client::Http2, self.at).await else { return };
        let Ok((StatusCode::OK, mut body)) = connection.send("GET", &path).await else { return };
        self.ledger.accepted("large", &path);
        let (mut read, mut until_pause) = (0, PAUSE_AFTER);
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return self.ledger.record(Fact::Cut, "large", &path);
            };
            let more = frame.data_ref().map_or(0, Bytes::len);
            read += more;
            if read >= until_pause {
                until_pause += PAUSE_AFTER;
                tokio::time::sleep(PAUSE).await;
            }
        }
        let fact = if read == LARGE { Fact::Finished } else { Fact::Disguised };
        self.ledger.record(fact, "large", &path);
    }

    /// Opens a WebSocket, and reads until the server closes it. Answers no close frame.
    async fn socket(&self) -> Result<(), Error> {
        let mut stream = TcpStream::connect(self.at).await?;
        let number = self.number;
        let request = format!(
            "GET /socket/{number} HTTP/1.1\r\nhost: compose\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = [0; 1_024];
        while stream.read(&mut buffer).await? > 0 {}
        Ok(())
    }

    /// Reads a large answer, slowly.
    async fn read_large(&self, path: &str, is_http10: bool) -> Result<Read, Error> {
        let mut stream = match self.kind {
            Client::CutUnix => Stream::Unix(UnixStream::connect(&self.socket).await?),
            Client::Http1
            | Client::Http2
            | Client::Slow
            | Client::Paused
            | Client::CutHttp10
            | Client::CutFrame
            | Client::BusySocket => Stream::Tcp(TcpStream::connect(self.at).await?),
        };
        let request = match is_http10 {
            true => format!("GET {path} HTTP/1.0\r\n\r\n"),
            false => format!("GET {path} HTTP/1.1\r\nhost: compose\r\nconnection: close\r\n\r\n"),
        };
        stream.write_all(request.as_bytes()).await?;
        let (mut bytes, mut buffer, mut tail) = (0, vec![0; SLOW / 20], Vec::new());
        let mut before_exit = None;
        loop {
            let ended = match stream.read(&mut buffer).await {
                Ok(0) if tail.ends_with(b"0\r\n\r\n") => Some(Ended::Whole),
                Ok(0) if bytes == 0 => return Err("no answer".into()),
                Ok(0) => Some(Ended::Closed),
                Ok(more) => {
                    bytes += more;
                    tail.extend_from_slice(&buffer[..more]);
                    tail.drain(..tail.len().saturating_sub(8));
                    None
                }
                Err(error) if bytes == 0 => return Err(error.into()),
                Err(_) => Some(Ended::Broken),
            };
            if let Some(ended) = ended {
                return Ok(Read { bytes, before_exit, ended });
            }
            let has_exited = self.is_over.load(Ordering::Relaxed);
            // Not of an answer that is cut: looking there would consume the reset.
            if has_exited && before_exit.is_none() && !is_http10 {
                before_exit = Some(bytes + stream.unread());
            }
            // A client that is to be cut hardly reads for longer than its window. When the process has
            // ended, everything that will arrive has been sent.
            let pause = match has_exited {
                true => 0,
                false if self.kind.is_cut() && bytes > LARGE / 8 => 20,
                false => 1,
            };
            for _ in 0..pause {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The received part of a large answer.
struct Read {
    bytes: usize,
    /// How much of it this machine had received when the process had exited, if it was not the end.
    before_exit: Option<usize>,
    ended: Ended,
}

/// How a large answer ended.
enum Ended {
    /// With its last chunk.
    Whole,
    /// The connection was closed.
    Closed,
    /// The connection was reset.
    Broken,
}

/// A connection whose bytes are read by hand.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

// === impl Stream ===

impl Stream {
    async fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer).await,
            Self::Unix(stream) => stream.read(buffer).await,
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
        }
    }

    /// Returns how many bytes have been received, and not been read.
    fn unread(&self) -> usize {
        let Self::Tcp(stream) = self else { return 0 };
        let mut all = vec![0; 2 * FRAME];
        stream.peek(&mut all).now_or_never().and_then(Result::ok).unwrap_or(0)
    }
}

// === impl Connection ===

impl Connection {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If no process listens there.
    pub async fn open(kind: Client, at: SocketAddr) -> Result<Self, Error> {
        let io = TokioIo::new(TcpStream::connect(at).await?);
        if kind == Client::Http2 {
            let (sender, driving) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
            #[expect(clippy::disallowed_methods, reason = "it ends with its connection")]
            tokio::spawn(driving);
            return Ok(Self::Http2(sender));
        }
        let (sender, driving) = hyper::client::conn::http1::handshake(io).await?;
        #[expect(clippy::disallowed_methods, reason = "it ends with its connection")]
        tokio::spawn(driving);
        Ok(Self::Http1(sender))
    }

    /// Returns whether the server has not closed the connection, as far as is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Self::Http1(sender) => !sender.is_closed(),
            Self::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request, and returns the head of the answer and its body.
    ///
    /// # Errors
    ///
    /// If there is no answer. The outcome of the request is then unknown.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
    ) -> Result<(StatusCode, hyper::body::Incoming), Error> {
        let uri = format!("http://compose{path}");
        let request = match self {
            Self::Http1(_) => Request::builder().uri(path).header("host", "compose"),
            Self::Http2(_) => Request::builder().uri(uri),
        };
        let request = request.method(method).body(Empty::new())?;
        let answer = match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let (head, body) = answer.into_parts();
        Ok((head.status, body))
    }
}
