//! An ask to an entity of another node, compared with a remote call of ractor_cluster and a request of
//! rio-rs, over the loopback interface. Microseconds for each ask, with a text of 100 characters in each
//! direction. For the record: no limit.

#[path = "../lib.rs"]
mod benches;

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adieu_cluster::store::Memory;
use adieu_cluster::{Cluster, Entity, Security};
use adieu_core::{Config, Shutdown};
use async_trait::async_trait;
use benches::{Claim, main as bench};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, call_t};
use ractor_cluster::{NodeServer, RactorClusterMessage};
use rio_rs::cluster::storage::local::LocalStorage;
use rio_rs::object_placement::local::LocalObjectPlacement;
use rio_rs::prelude::{
    AppData, ClientBuilder, Handler, MembershipStorage, Message, NoopError,
    PeerToPeerClusterProvider, Registry, Server, TypeName, WithId,
};
use serde::{Deserialize, Serialize};

const ASKS: usize = 20_000;
const WARM_UP: usize = 2_000;
const OUTSTANDING: usize = 64;

/// The argument with which this program is a node of ractor_cluster.
const RACTOR_NODE: &str = "ractor-node";
const GROUP: &str = "echoes";
const COOKIE: &str = "cookie";

fn main() {
    if std::env::args().nth(1).as_deref() == Some(RACTOR_NODE) {
        return run(ractor_node());
    }
    let against = |what, ours, peer| Claim::ratio(what, ours, peer, f64::INFINITY);
    bench(
        "peers",
        5,
        &[
            ("ask, one at a time", || run(ask(1))),
            ("ractor_cluster call, one at a time", || run(ractor_call(1))),
            ("rio-rs request, one at a time", || run(rio(1))),
            ("ask, 64 outstanding", || run(ask(OUTSTANDING))),
            ("ractor_cluster call, 64 outstanding", || run(ractor_call(OUTSTANDING))),
            ("rio-rs request, 64 outstanding", || run(rio(OUTSTANDING))),
        ],
        &[
            against(
                "a remote ask, one at a time, against a remote call of ractor_cluster",
                "ask, one at a time",
                "ractor_cluster call, one at a time",
            ),
            against(
                "a remote ask, one at a time, against a request of rio-rs",
                "ask, one at a time",
                "rio-rs request, one at a time",
            ),
            against(
                "remote asks, 64 outstanding, against remote calls of ractor_cluster",
                "ask, 64 outstanding",
                "ractor_cluster call, 64 outstanding",
            ),
            against(
                "remote asks, 64 outstanding, against requests of rio-rs",
                "ask, 64 outstanding",
                "rio-rs request, 64 outstanding",
            ),
        ],
    );
}

fn run<T>(case: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(case)
}

fn text() -> String {
    "7".repeat(100)
}

/// Asks from this many tasks, and returns the time for each ask. `asker` returns what one task asks.
async fn measure<A, F>(outstanding: usize, asker: impl Fn(usize) -> A) -> f64
where
    A: FnMut() -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let mut askers: Vec<A> = (0..outstanding).map(asker).collect();
    let mut begun = Instant::now();
    for asks in [WARM_UP, ASKS] {
        begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for mut asker in askers.drain(..) {
            tasks.spawn(async move {
                for _ in 0..asks / outstanding {
                    asker().await;
                }
                asker
            });
        }
        askers = tasks.join_all().await;
    }
    begun.elapsed().as_secs_f64() * 1e6 / ASKS as f64
}

// --- adieu ---

#[derive(Serialize, Deserialize)]
struct Text(String);

impl adieu_cluster::Command for Text {
    type Reply = String;
}

fn node(store: &Memory, name: &str) -> (Shutdown, Cluster) {
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a shutdown");
    let node = Cluster::new(store.connect(), "bench").node(name).ttl(Duration::from_secs(60));
    let node = node.listen("127.0.0.1:0", Security::loopback_only());
    let cluster = node.on(&shutdown).expect("a node");
    (shutdown, cluster)
}

async fn ask(outstanding: usize) -> f64 {
    let store = Memory::new();
    let (_one, host) = node(&store, "host");
    let served = host.region::<Text>("echo").serve(async |mut me: Entity<Text>| {
        while let Some(mail) = me.next().await {
            let (Text(text), reply) = mail.into_parts();
            reply.reply(text);
        }
    });
    let _served = served.expect("a region");
    host.join().await.expect("a member");
    let (_two, proxy) = node(&store, "proxy");
    let region = proxy.region::<Text>("echo").proxy().expect("a region");
    proxy.join().await.expect("a member");
    let first = region.at("entity").ask(Text(text())).within(Duration::from_secs(60));
    first.await.expect("a reply");
    measure(outstanding, |task| {
        let region = region.clone();
        move || {
            let region = region.clone();
            async move {
                let reply = region.at(format!("entity-{task}")).ask(Text(text())).await;
                assert_eq!(reply.expect("a reply").len(), 100);
            }
        }
    })
    .await
}

// --- ractor_cluster ---

#[derive(RactorClusterMessage)]
enum EchoMessage {
    #[rpc]
    Echo(String, RpcReplyPort<String>),
}

struct Echo;

impl Actor for Echo {
    type Msg = EchoMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, me: ActorRef<EchoMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        ractor::pg::join(GROUP.to_owned(), vec![me.get_cell()]);
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<EchoMessage>,
        message: EchoMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let EchoMessage::Echo(text, reply) = message;
        reply.send(text)?;
        Ok(())
    }
}

/// The other node is a process of its own, because the registry of ractor is global.
struct RactorNode(Child);

impl Drop for RactorNode {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ractor_server(port: u16, name: &str) -> ActorRef<ractor_cluster::NodeServerMessage> {
    let server = NodeServer::new(
        port,
        COOKIE.to_owned(),
        name.to_owned(),
        "localhost".to_owned(),
        None,
        None,
    );
    let server = server.with_listen_addr(std::net::Ipv4Addr::LOCALHOST.into());
    Actor::spawn(None, server, ()).await.expect("a node").0
}

/// Serves 64 actors until the process is killed.
async fn ractor_node() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let _server = ractor_server(port, "host").await;
    for _ in 0..OUTSTANDING {
        Actor::spawn(None, Echo, ()).await.expect("an actor");
    }
    println!("{port}");
    std::future::pending().await
}

async fn ractor_call(outstanding: usize) -> f64 {
    let me = std::env::current_exe().expect("this program");
    let child = Command::new(me).arg(RACTOR_NODE).stdout(Stdio::piped()).spawn();
    let mut node = RactorNode(child.expect("a process"));
    let mut port = String::new();
    let stdout = node.0.stdout.take().expect("its output");
    BufReader::new(stdout).read_line(&mut port).expect("a port");
    let port: u16 = port.trim().parse().expect("a port");
    let server = ractor_server(0, "asks").await;
    ractor_cluster::client_connect(&server, ("127.0.0.1", port)).await.expect("a connection");
    let begun = Instant::now();
    let actors = loop {
        let actors = ractor::pg::get_members(&GROUP.to_owned());
        if actors.len() == OUTSTANDING {
            break actors;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{} actors are seen", actors.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    measure(outstanding, |task| {
        let actor: ActorRef<EchoMessage> = actors[task].clone().into();
        move || {
            let actor = actor.clone();
            async move {
                let reply = call_t!(actor, EchoMessage::Echo, 5_000, text());
                assert_eq!(reply.expect("a reply").len(), 100);
            }
        }
    })
    .await
}

// --- rio-rs ---

#[derive(TypeName, WithId, Default)]
struct EchoService {
    id: String,
}

#[derive(TypeName, Message, Serialize, Deserialize)]
struct EchoRequest {
    text: String,
}

#[derive(TypeName, Message, Serialize, Deserialize)]
struct EchoResponse {
    text: String,
}

#[async_trait]
impl Handler<EchoRequest> for EchoService {
    type Returns = EchoResponse;
    type Error = NoopError;

    async fn handle(
        &mut self,
        request: EchoRequest,
        _: Arc<AppData>,
    ) -> Result<EchoResponse, NoopError> {
        Ok(EchoResponse { text: request.text })
    }
}

async fn rio(outstanding: usize) -> f64 {
    let (members, placement) = (LocalStorage::default(), LocalObjectPlacement::default());
    let provider = PeerToPeerClusterProvider::builder().members_storage(members.clone()).build();
    let mut registry = Registry::new();
    registry.add_type::<EchoService>();
    registry.add_handler::<EchoService, EchoRequest>();
    let mut server = Server::builder()
        .address("127.0.0.1:0".to_owned())
        .registry(registry)
        .app_data(AppData::new())
        .cluster_provider(provider)
        .object_placement_provider(placement)
        .build();
    let listener = server.bind().await.expect("a port");
    let serving = tokio::spawn(async move { server.run(listener).await });
    let begun = Instant::now();
    while members.active_members().await.expect("the members").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "no server is active");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A client has one request at a time.
    let took = measure(outstanding, |task| {
        let client = ClientBuilder::new().members_storage(members.clone()).build();
        let client = Arc::new(tokio::sync::Mutex::new(client.expect("a client")));
        move || {
            let client = Arc::clone(&client);
            async move {
                let request = EchoRequest { text: text() };
                let mut client = client.lock().await;
                let (service, id) = ("EchoService", format!("entity-{task}"));
                let reply = client.send::<EchoResponse, NoopError>(service, id, &request).await;
                assert_eq!(reply.expect("a reply").text.len(), 100);
            }
        }
    })
    .await;
    serving.abort();
    took
}
