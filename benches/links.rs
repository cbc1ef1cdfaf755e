//! The cost of a message between two nodes, compared with bare tonic: a bidirectional stream and
//! unary calls, with the same payload, over the loopback interface. Microseconds for each ask.
//!
//! `link` is the link alone, with a receiver that replies at once. `ask` is the whole way: a region asks
//! from a node that hosts nothing, and an entity of another node replies.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use adieu::{Config, Shutdown};
use adieu_benches::{Claim, main as bench};
use adieu_cluster::measure::Linked;
use adieu_cluster::store::Memory;
use adieu_cluster::{Cluster, Command, Entity, Security};
use bytes::Bytes;
use http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::body::Body;
use tonic::server::{NamedService, StreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// How many asks are measured, and how many come before them.
const ASKS: usize = 20_000;
const WARM_UP: usize = 2_000;
const OUTSTANDING: usize = 64;

fn main() {
    bench(
        "links",
        9,
        &[
            ("tonic stream, one at a time", || run(stream(1))),
            ("tonic unary, one at a time", || run(unary(1))),
            ("link, one at a time", || run(link(1))),
            ("ask, one at a time", || run(ask(1))),
            ("tonic stream, 64 outstanding", || run(stream(OUTSTANDING))),
            ("tonic unary, 64 outstanding", || run(unary(OUTSTANDING))),
            ("link, 64 outstanding", || run(link(OUTSTANDING))),
            ("ask, 64 outstanding", || run(ask(OUTSTANDING))),
        ],
        &[
            Claim::ratio(
                "a message over a link, one at a time, against a bare bidirectional stream of tonic",
                "link, one at a time",
                "tonic stream, one at a time",
                1.2,
            ),
            Claim::ratio(
                "a message over a link, one at a time, against a unary call of tonic",
                "link, one at a time",
                "tonic unary, one at a time",
                1.0,
            ),
            Claim::ratio(
                "messages over a link, 64 outstanding, against unary calls of tonic",
                "link, 64 outstanding",
                "tonic unary, 64 outstanding",
                0.5,
            ),
            Claim::ratio(
                "messages over a link, 64 outstanding, against a bare bidirectional stream of tonic",
                "link, 64 outstanding",
                "tonic stream, 64 outstanding",
                f64::INFINITY,
            ),
            Claim::ratio(
                "a remote ask, one at a time, against a bare bidirectional stream of tonic",
                "ask, one at a time",
                "tonic stream, one at a time",
                1.2,
            ),
            Claim::ratio(
                "a remote ask, one at a time, against a unary call of tonic",
                "ask, one at a time",
                "tonic unary, one at a time",
                1.0,
            ),
            Claim::ratio(
                "remote asks, 64 outstanding, against unary calls of tonic",
                "ask, 64 outstanding",
                "tonic unary, 64 outstanding",
                0.5,
            ),
            // For the record: what the region, the entity and JSON add to the link.
            Claim::ratio(
                "a remote ask, one at a time, against a message over a link",
                "ask, one at a time",
                "link, one at a time",
                f64::INFINITY,
            ),
            Claim::ratio(
                "remote asks, 64 outstanding, against messages over a link",
                "ask, 64 outstanding",
                "link, 64 outstanding",
                f64::INFINITY,
            ),
        ],
    );
}

fn run(case: impl Future<Output = f64>) -> f64 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(case)
}

fn payload() -> Bytes {
    Bytes::from_static(&[7; 100])
}

fn per_ask(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / ASKS as f64
}

/// Asks from this many tasks, and returns the time for each ask.
async fn measure<F>(outstanding: usize, ask: impl Fn(u64) -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    let round = async |asks: usize| {
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..outstanding {
            let ask = ask.clone();
            tasks.spawn(async move {
                for number in 0..asks / outstanding {
                    ask((task * asks + number) as u64).await;
                }
            });
        }
        tasks.join_all().await;
    };
    round(WARM_UP).await;
    let begun = Instant::now();
    round(ASKS).await;
    per_ask(begun)
}

async fn link(outstanding: usize) -> f64 {
    let linked = Arc::new(Linked::start().expect("two nodes"));
    linked.prepare().await.expect("a link");
    let asks = Arc::clone(&linked);
    let time = measure(outstanding, move |number| {
        let linked = Arc::clone(&asks);
        async move {
            let reply = linked.ask(number, payload()).await;
            assert_eq!(reply.expect("a reply").len(), 100);
        }
    });
    let time = time.await;
    linked.close().await;
    time
}

/// A command with the payload of the other cases, as text, because it travels as JSON.
#[derive(Serialize, Deserialize)]
struct Text(String);

impl Command for Text {
    type Reply = String;
}

/// Returns a node of a cluster that listens for others. It can reach them when it has joined.
fn node(store: &Memory, name: &str) -> (Shutdown, Cluster) {
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a shutdown");
    let node = Cluster::new(store.connect(), "bench").node(name).ttl(Duration::from_secs(60));
    let node = node.listen("127.0.0.1:0", Security::loopback_only());
    let cluster = node.on(&shutdown).expect("a node");
    (shutdown, cluster)
}

/// Asks the entities of another node: as many entities as there are tasks.
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
    // Every entity has its first message before the measurement.
    let key = move |number: u64| format!("entity-{}", number as usize % outstanding);
    for number in 0..outstanding as u64 {
        let asked = region.at(key(number)).ask(text()).within(Duration::from_secs(60));
        asked.await.expect("a reply");
    }
    measure(outstanding, move |number| {
        let region = region.clone();
        async move {
            let reply = region.at(key(number)).ask(text()).await;
            assert_eq!(reply.expect("a reply").len(), 100);
        }
    })
    .await
}

fn text() -> Text {
    Text("7".repeat(100))
}

async fn unary(outstanding: usize) -> f64 {
    let channel = serve().await;
    measure(outstanding, move |_| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        async move {
            grpc.ready().await.expect("a connection");
            let path = PathAndQuery::from_static("/bench.Echo/Unary");
            let codec = ProstCodec::<Ping, Ping>::default();
            let request = Request::new(Ping { payload: payload() });
            let reply: Response<Ping> = grpc.unary(request, path, codec).await.expect("a reply");
            assert_eq!(reply.into_inner().payload.len(), 100);
        }
    })
    .await
}

/// Keeps this many messages on their way over one stream: the least that any protocol does.
async fn stream(outstanding: usize) -> f64 {
    let mut grpc = tonic::client::Grpc::new(serve().await);
    grpc.ready().await.expect("a connection");
    let (sender, receiver) = mpsc::channel(OUTSTANDING);
    let path = PathAndQuery::from_static("/bench.Echo/Stream");
    let codec = ProstCodec::<Ping, Ping>::default();
    let request = Request::new(ReceiverStream::new(receiver));
    let replies = grpc.streaming(request, path, codec).await.expect("a stream");
    let mut replies: Streaming<Ping> = replies.into_inner();
    let asking = tokio::spawn(async move {
        let mut begun = Instant::now();
        for _ in 0..outstanding {
            sender.send(Ping { payload: payload() }).await.expect("a server");
        }
        for number in 0..WARM_UP + ASKS {
            if number == WARM_UP {
                begun = Instant::now();
            }
            let reply = replies.message().await.expect("no error").expect("a reply");
            assert_eq!(reply.payload.len(), 100);
            sender.send(Ping { payload: payload() }).await.expect("a server");
        }
        per_ask(begun)
    });
    asking.await.expect("no panic")
}

#[derive(Clone, PartialEq, prost::Message)]
struct Ping {
    #[prost(bytes = "bytes", tag = "1")]
    payload: Bytes,
}

/// Starts an echo server, and connects to it.
async fn serve() -> Channel {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let connections = tokio_stream::StreamExt::map(TcpListenerStream::new(listener), |accepted| {
        accepted.inspect(|stream| stream.set_nodelay(true).expect("no delay"))
    });
    tokio::spawn(Server::builder().add_service(Echo).serve_with_incoming(connections));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let endpoint = endpoint.tcp_nodelay(true).connect_timeout(Duration::from_secs(5));
    endpoint.connect().await.expect("a connection")
}

#[derive(Clone)]
struct Echo;

type Reply<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Reply<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Ping, Ping>::default());
            Ok(match request.uri().path() {
                "/bench.Echo/Stream" => grpc.streaming(Echo, request).await,
                _ => grpc.unary(Echo, request).await,
            })
        })
    }
}

impl UnaryService<Ping> for Echo {
    type Response = Ping;
    type Future = Reply<Result<Response<Ping>, Status>>;

    fn call(&mut self, request: Request<Ping>) -> Self::Future {
        Box::pin(std::future::ready(Ok(Response::new(request.into_inner()))))
    }
}

impl StreamingService<Ping> for Echo {
    type Response = Ping;
    type ResponseStream = Streaming<Ping>;
    type Future = Reply<Result<Response<Streaming<Ping>>, Status>>;

    fn call(&mut self, request: Request<Streaming<Ping>>) -> Self::Future {
        Box::pin(std::future::ready(Ok(Response::new(request.into_inner()))))
    }
}
