//! Nodes of one process that route requests by key, and an application that notes what it runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_cluster::routing::{OwnedKey, Routed, RoutedBody, path};
use adieu_cluster::store::Memory;
use adieu_cluster::{Command, Entity, InProcess, Region};
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use http::request::Builder;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::notes::beside;
use crate::stage::{SECOND, TestNode, config, node_with};

pub(crate) const WITHIN: Duration = Duration::from_secs(5);
pub(crate) const BODY: usize = 10_000;

/// Counts the commands of an entity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Count;

impl Command for Count {
    type Reply = u64;
}

/// A cluster in this process.
pub(crate) struct Network {
    store: Memory,
    pub(crate) links: InProcess,
    runs: Runs,
}

pub(crate) struct Node {
    pub(crate) node: TestNode,
    pub(crate) region: Region<Count>,
    pub(crate) app: Routed<Router>,
}

/// The requests that ran, in order.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<Vec<Run>>>);

#[derive(Clone, Debug)]
struct Run {
    key: String,
    node: String,
    fence: u64,
    has_ended: bool,
}

/// A response that was read.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

// === impl Network ===

impl Network {
    pub(crate) fn new() -> Self {
        Self { store: Memory::new(), links: InProcess::new(), runs: Runs::default() }
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        let (node, region) = self.declare(name);
        let app = application(name, &self.runs, &region);
        let layer = region.route([path("/carts/{id}"), path("/carts/{id}/{*rest}")]).unwrap();
        let app = layer.within(WITHIN).body_limit(BODY).layer(app);
        Node { node: node.joined().await, region, app }
    }

    /// A node that owns shards, and runs no requests of others.
    pub(crate) async fn node_without_routes(&self, name: &str) -> TestNodeAlone {
        let (node, region) = self.declare(name);
        TestNodeAlone { _node: node.joined().await, region }
    }

    fn declare(&self, name: &str) -> (TestNode, Region<Count>) {
        let node = node_with(&self.store, name, config(), |it| it.in_process(&self.links));
        let region = node.cluster.region::<Count>("carts").shards(16).serve(count).unwrap();
        (node, region)
    }

    /// Returns the nodes that ran requests to a key, in order.
    pub(crate) fn runs(&self, key: &str) -> Vec<String> {
        let runs = self.runs.0.lock().unwrap();
        runs.iter().filter(|it| it.key == key).map(|it| it.node.clone()).collect()
    }

    /// Returns how many requests to a key ran to their ends.
    pub(crate) fn finished(&self, key: &str) -> usize {
        let runs = self.runs.0.lock().unwrap();
        runs.iter().filter(|it| it.key == key && it.has_ended).count()
    }

    /// The fence of each key never falls, and a fence belongs to one node.
    pub(crate) fn assert_sound(&self) {
        let mut last = BTreeMap::<String, Run>::new();
        for run in self.runs.0.lock().unwrap().iter() {
            if let Some(before) = last.insert(run.key.clone(), run.clone()) {
                assert!(before.fence <= run.fence, "the fence fell: {before:?}, {run:?}");
                let is_same = before.fence == run.fence;
                assert_eq!(is_same, before.node == run.node, "{before:?}, {run:?}");
            }
        }
    }
}

/// A node of whose application only the region is left.
pub(crate) struct TestNodeAlone {
    _node: TestNode,
    pub(crate) region: Region<Count>,
}

// === impl Node ===

impl Node {
    pub(crate) async fn get(&self, key: &str) -> Answered {
        self.send(Request::get(format!("/carts/{key}")), "").await
    }

    pub(crate) async fn send(&self, request: Builder, body: &str) -> Answered {
        send(self.app.clone(), request, body).await
    }

    pub(crate) async fn call(&self, request: Builder, body: &str) -> Response<RoutedBody> {
        self.call_with(request, Body::from(body.to_owned())).await
    }

    pub(crate) async fn call_with(&self, request: Builder, body: Body) -> Response<RoutedBody> {
        let Ok(response) = self.app.clone().oneshot(request.body(body).unwrap()).await;
        response
    }

    /// Sends a request at the same time as the test.
    pub(crate) fn begin(&self, request: Builder) -> JoinHandle<Answered> {
        let app = self.app.clone();
        beside(async move { send(app, request, "").await })
    }
}

pub(crate) async fn send(app: Routed<Router>, request: Builder, body: &str) -> Answered {
    let Ok(response) = app.oneshot(request.body(Body::from(body.to_owned())).unwrap()).await;
    answered(response).await
}

pub(crate) async fn answered(response: Response<RoutedBody>) -> Answered {
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.into()).unwrap();
    Answered { status: head.status.as_u16(), headers: head.headers, text }
}

// === impl Answered ===

impl Answered {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|it| it.to_str().unwrap())
    }
}

// === impl Runs ===

impl Runs {
    /// Notes that a request runs. Returns its place.
    fn begin(&self, node: &str, owned: &OwnedKey) -> usize {
        owned.check().unwrap();
        let mut runs = self.0.lock().unwrap();
        let (key, node) = (owned.key().to_owned(), node.to_owned());
        runs.push(Run { key, node, fence: owned.fence().get(), has_ended: false });
        runs.len() - 1
    }

    fn end(&self, at: usize) {
        self.0.lock().unwrap()[at].has_ended = true;
    }
}

pub(crate) async fn count(mut me: Entity<Count>) {
    let mut counted = 0;
    while let Some(mail) = me.next().await {
        counted += 1;
        mail.reply(counted);
        // Each of the tests that ask expects a new entity.
        counted = 0;
    }
}

type Owned = Extension<OwnedKey>;

fn application(node: &str, runs: &Runs, region: &Region<Count>) -> Router {
    let (node, runs, region) = (node.to_owned(), runs.clone(), region.clone());
    let begin = {
        let (node, runs) = (node.clone(), runs.clone());
        move |owned: &OwnedKey| runs.begin(&node, owned)
    };
    let pause = |millis: u64| tokio::time::sleep(Duration::from_millis(millis));
    let slow = {
        let (begin, runs, node) = (begin.clone(), runs.clone(), node.clone());
        async move |Extension(owned): Owned, Path((_, millis)): Path<(String, u64)>| {
            let at = begin(&owned);
            pause(millis).await;
            owned.check().unwrap();
            runs.end(at);
            node
        }
    };
    let show = {
        let (begin, node) = (begin.clone(), node.clone());
        async move |Extension(owned): Owned| {
            begin(&owned);
            format!("{node} {}", owned.fence())
        }
    };
    let ask = async move |Extension(owned): Owned, Path((_, millis)): Path<(String, u64)>| {
        pause(millis).await;
        let asked = region.at(owned.key()).ask(Count).within(SECOND).await;
        asked.map_or_else(|error| error.to_string(), |count| count.to_string())
    };
    let echo = {
        let begin = begin.clone();
        async move |Extension(owned): Owned, body: String| {
            begin(&owned);
            body
        }
    };
    let drip = {
        let begin = begin.clone();
        async move |Extension(owned): Owned| {
            begin(&owned);
            drips(3)
        }
    };
    let hang = slow.clone();
    Router::new()
        .route("/plain", get(async move || node))
        .route("/carts/{id}", get(show.clone()).post(show))
        .route("/carts/{id}/slow/{millis}", get(slow.clone()).post(slow))
        .route("/carts/{id}/hang/{millis}", get(hang))
        .route("/carts/{id}/ask/{millis}", post(ask))
        .route("/carts/{id}/echo", put(echo))
        .route("/carts/{id}/drip", get(drip))
        .route("/carts/{id}/endless", get(async || drips(usize::MAX)))
        .route("/carts/{id}/big/{bytes}", get(big))
        .route("/carts/{id}/panic", get(panics))
}

async fn big(Path((_, bytes)): Path<(String, usize)>) -> String {
    "x".repeat(bytes)
}

async fn panics() -> String {
    panic!("as requested")
}

/// A body of that many frames, one per second.
fn drips(count: usize) -> Body {
    let (sender, body) = http_body_util::channel::Channel::<bytes::Bytes>::new(1);
    drop(beside(async move {
        let mut sender = sender;
        for _ in 0..count {
            tokio::time::sleep(SECOND).await;
            if sender.send_data("drip ".into()).await.is_err() {
                return;
            }
        }
    }));
    Body::new(body)
}
