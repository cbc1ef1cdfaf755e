//! Three processes that serve HTTP, clients with connections that are kept alive, and the notes of what
//! was handled. Every request and every note is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_testkit::process::Process;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::child::{Noted, ORDER, Order, notes};
use crate::notes::beside;

const NODES: usize = 3;
const CLIENTS: usize = 12;

struct Stage {
    folder: tempfile::TempDir,
    ports: Vec<SocketAddr>,
    ttl: Duration,
}

/// The clients, and how far they are.
struct Clients {
    tasks: JoinSet<()>,
    is_over: Arc<AtomicBool>,
    answers: Answers,
    sent: Arc<AtomicUsize>,
}

/// The outcome of each request.
type Answers = Arc<Mutex<BTreeMap<String, Ended>>>;

#[derive(Clone, Debug, PartialEq)]
enum Ended {
    /// The status and the text.
    Answered(u16, String),
    /// The connection ended without a response.
    Broken(String),
}

/// A connection of one client.
struct Connection {
    sender: SendRequest<Full<bytes::Bytes>>,
    task: tokio::task::JoinHandle<()>,
}

// === impl Stage ===

impl Stage {
    fn new(ttl: Duration) -> Self {
        let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // All at once, so that no two are the same.
        let listeners: Vec<_> = (0..NODES).map(|_| listen()).collect();
        let ports = listeners.iter().map(|it| it.local_addr().unwrap()).collect();
        let folder = tempfile::tempdir().unwrap();
        Self { folder, ports, ttl }
    }

    fn up(&self, at: usize) -> Process {
        let order = Order {
            folder: self.folder.path().to_owned(),
            node: format!("node-{at}"),
            http: self.ports[at],
            ttl: self.ttl,
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "routed::child::node_process", "--nocapture", "--test-threads=1"])
            .env(ORDER, serde_json::to_string(&order).unwrap());
        let mut process = Process::start(&mut command);
        process.wait_for("@up");
        process
    }

    fn notes(&self) -> Vec<Noted> {
        let text = std::fs::read_to_string(notes(self.folder.path())).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Compares the responses to clients with the notes of the nodes.
    fn judge(&self, answers: &BTreeMap<String, Ended>) {
        let mut by_id = BTreeMap::<String, Vec<Noted>>::new();
        let mut last = BTreeMap::<String, Noted>::new();
        for note in self.notes() {
            if let Some(before) = last.insert(note.key.clone(), note.clone()) {
                assert!(before.fence <= note.fence, "the fence fell: {before:?}, {note:?}");
                let is_same = before.fence == note.fence;
                assert!(!is_same || before.node == note.node, "two owners: {before:?}, {note:?}");
            }
            by_id.entry(note.id.clone()).or_default().push(note);
        }
        for (id, ended) in answers {
            let ran = by_id.get(id).map(Vec::as_slice).unwrap_or_default();
            match (ended, ran) {
                (Ended::Answered(200, text), [one]) => {
                    assert_eq!(*text, format!("{} {}", one.node, one.fence), "of another owner");
                }
                (Ended::Answered(503, _), []) => {}
                (Ended::Answered(502 | 504, _) | Ended::Broken(_), [] | [_]) => {}
                (ended, ran) => panic!("{id} ended with {ended:?}, and ran: {ran:?}"),
            }
        }
    }
}

// === impl Clients ===

impl Clients {
    /// Sends requests without end, to all of these nodes.
    fn start(ports: &[SocketAddr]) -> Self {
        let (is_over, answers) = (Arc::new(AtomicBool::new(false)), Answers::default());
        let sent = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for client in 0..CLIENTS {
            let ports = ports.to_vec();
            let (is_over, answers) = (Arc::clone(&is_over), Arc::clone(&answers));
            let sent = Arc::clone(&sent);
            tasks.spawn(async move { run(client, ports, &is_over, &answers, &sent).await });
        }
        Self { tasks, is_over, answers, sent }
    }

    async fn until_sent(&self, more: usize) {
        let target = self.sent.load(Ordering::Relaxed) + more;
        while self.sent.load(Ordering::Relaxed) < target {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn finish(mut self) -> BTreeMap<String, Ended> {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.answers.lock().unwrap().clone()
    }
}

async fn run(
    client: usize,
    ports: Vec<SocketAddr>,
    is_over: &AtomicBool,
    answers: &Answers,
    sent: &AtomicUsize,
) {
    let mut connections: BTreeMap<SocketAddr, Connection> = BTreeMap::new();
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let port = ports[(client + number) % ports.len()];
        number += 1;
        let mut connection = match connections.remove(&port) {
            Some(connection) => connection,
            // A node that does not listen has not received the request.
            None => match Connection::open(port).await {
                Some(connection) => connection,
                None => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            },
        };
        let id = format!("{client}-{number}");
        let (ended, is_kept) = connection.send(client, number, &id).await;
        answers.lock().unwrap().insert(id, ended);
        sent.fetch_add(1, Ordering::Relaxed);
        match is_kept {
            true => drop(connections.insert(port, connection)),
            false => connection.close().await,
        }
    }
    for connection in connections.into_values() {
        connection.close().await;
    }
}

// === impl Connection ===

impl Connection {
    async fn open(to: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(to).await.ok()?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        // An error of the connection is also one of the request.
        let task = beside(async move { drop(connection.await) });
        Some(Self { sender, task })
    }

    /// Sends one request. Returns what became of it, and whether the connection can be used again.
    async fn send(&mut self, client: usize, number: usize, id: &str) -> (Ended, bool) {
        let uri = format!("/carts/c-{client}-{}", number % 5);
        let request = Request::post(uri).header("host", "shop");
        let request = request.body(Full::from(id.to_owned())).unwrap();
        let answered = async {
            let response = self.sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let is_kept = head.headers.get("connection").is_none_or(|it| it != "close");
            let text = String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned();
            Ok::<_, hyper::Error>((Ended::Answered(head.status.as_u16(), text), is_kept))
        };
        answered.await.unwrap_or_else(|error| (Ended::Broken(format!("{error:?}")), false))
    }

    async fn close(self) {
        drop(self.sender);
        self.task.await.unwrap();
    }
}

fn signal(process: &mut Process, signal: nix::sys::signal::Signal) {
    process.signal(adieu_core::Signal::new(signal as i32));
}

fn leaves(mut process: Process) {
    signal(&mut process, nix::sys::signal::SIGTERM);
    let ended = process.wait();
    let is_clean = ended.stdout.contains("@ended SIGTERM clean=true");
    assert!(is_clean, "{}{}", ended.stdout, ended.stderr);
}

/// Every request is answered by the owner of its key, although each node is restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1462_requests_survive_a_rolling_restart() {
    let stage = Stage::new(Duration::from_secs(10));
    let mut nodes: Vec<Process> = (0..NODES).map(|at| stage.up(at)).collect();
    let clients = Clients::start(&stage.ports);
    clients.until_sent(300).await;
    for at in 0..NODES {
        tokio::task::block_in_place(|| {
            leaves(nodes.remove(at));
            nodes.insert(at, stage.up(at));
        });
        clients.until_sent(300).await;
    }
    let answers = clients.finish().await;
    tokio::task::block_in_place(|| nodes.into_iter().for_each(leaves));
    stage.judge(&answers);
    let failed: Vec<_> =
        answers.iter().filter(|(_, it)| !matches!(it, Ended::Answered(200, _))).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:?}", failed.len(), answers.len());
    let notes = stage.notes();
    assert_eq!(notes.len(), answers.len(), "a request ran that no client has sent");
    let owners: BTreeSet<_> = notes.iter().map(|it| &it.node).collect();
    assert_eq!(owners.len(), NODES);
    let mut fences = BTreeMap::<&str, BTreeSet<u64>>::new();
    for note in &notes {
        fences.entry(&note.key).or_default().insert(note.fence);
    }
    assert!(fences.values().filter(|it| it.len() > 1).count() > 5, "no key has moved: {fences:?}");
}

/// Only requests that were forwarded or sent to the killed node can have failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1463_a_killed_owner_leaves_only_requests_that_it_had_read_unknown() {
    let stage = Stage::new(Duration::from_secs(5));
    // The first node receives all shards.
    let mut victim = stage.up(0);
    let others: Vec<Process> = (1..NODES).map(|at| stage.up(at)).collect();
    let clients = Clients::start(&stage.ports[1..]);
    clients.until_sent(300).await;
    signal(&mut victim, nix::sys::signal::SIGKILL);
    let ended = tokio::task::block_in_place(|| victim.wait());
    assert!(!ended.status.success());
    // The keys of the victim are served again.
    clients.until_sent(300).await;
    let answers = clients.finish().await;
    tokio::task::block_in_place(|| others.into_iter().for_each(leaves));
    stage.judge(&answers);
    let mut others = answers.values().filter(|it| !matches!(it, Ended::Answered(200, _)));
    let unknown = others.clone().count();
    let is_unknown = |it: &Ended| matches!(it, Ended::Answered(502, text) if text.contains("may have been handled"));
    assert!(others.all(is_unknown), "{:?}", others.collect::<Vec<_>>());
    // Each of the other nodes had a link to it, and a client has one request at a time.
    assert!((1..=CLIENTS * (NODES - 1)).contains(&unknown), "{unknown} requests are unknown");
}
