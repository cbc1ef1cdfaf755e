//! HTTP requests by key: they run on the node that owns the key, and no hand-off loses one.

mod app;
#[cfg(all(target_os = "linux", feature = "links"))]
mod child;
#[cfg(all(target_os = "linux", feature = "links"))]
mod processes;

use std::collections::BTreeSet;
use std::time::Duration;

use adieu_cluster::routing::path;
use adieu_cluster::{ClusterError, Region};
use adieu_core::adapter::Metrics;
use http::Request;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use self::app::{Answered, Count, Network, Node};
use crate::notes::beside;
use crate::stage::{SECOND, id, until};
use crate::visible::page;

/// Two nodes between which the keys are spread.
async fn spread() -> (Network, Node, Node) {
    let network = Network::new();
    let one = network.node("one").await;
    let two = network.node("two").await;
    tokio::time::sleep(400 * SECOND).await;
    (network, one, two)
}

/// Returns a key that a node owns.
fn key_of(region: &Region<Count>) -> String {
    let mut keys = (0..1_000).map(|at| format!("k-{at}"));
    keys.find(|key| region.enter(key).is_ok()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn s1450_a_request_runs_on_the_node_that_owns_its_key() {
    let (network, one, two) = spread().await;
    let mut owners = BTreeSet::new();
    for at in 0..32 {
        let key = format!("k-{at}");
        let [by_one, by_two] = [one.get(&key).await, two.get(&key).await];
        assert_eq!((by_one.status, by_two.status), (200, 200));
        assert_eq!(by_one.text, by_two.text, "two owners, or two fences");
        let owner = by_one.text.split(' ').next().unwrap().to_owned();
        let is_here = one.region.enter(&key).is_ok();
        assert_eq!(owner, if is_here { "one" } else { "two" });
        assert_eq!(network.runs(&key), [owner.as_str(), owner.as_str()]);
        owners.insert(owner);
    }
    assert_eq!(owners.len(), 2);
    // Without a key, it runs where it arrives.
    assert_eq!(one.send(Request::get("/plain"), "").await.text, "one");
    assert_eq!(two.send(Request::get("/plain"), "").await.text, "two");
    let late = one.region.route(path("/late/{id}"));
    assert!(matches!(late, Err(ClusterError::TooLate { .. })), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn s1631_a_request_is_counted_as_an_ask_by_the_node_that_received_it() {
    let (_network, one, two) = spread().await;
    let key = key_of(&one.region);
    let counted = |node: &Node, outcome: &str| -> u64 {
        let mut metrics = Metrics::default();
        page(&node.node.shutdown).metrics(&mut metrics);
        let text = metrics.to_string();
        let mut asks = text.lines().filter(|it| it.starts_with("adieu_cluster_asks_total"));
        let line = asks.find(|it| it.contains(&format!("outcome=\"{outcome}\""))).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    one.get(&key).await;
    one.get(&key).await;
    two.get(&key).await;
    assert_eq!((counted(&one, "ran"), counted(&two, "ran")), (2, 1));
    // A handler that is stopped.
    let stopped = one.begin(Request::get(format!("/carts/{key}/slow/60000")));
    tokio::time::sleep(SECOND).await;
    one.node.store.faults().cut(true);
    assert_eq!(stopped.await.unwrap().status, 502);
    assert_eq!((counted(&one, "ran"), counted(&one, "unknown")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn s1451_a_shard_is_handed_over_after_the_requests_inside_have_ended() {
    let (network, one, two) = spread().await;
    let key = key_of(&one.region);
    // One that arrived here, one that was forwarded, and a response whose body is being sent.
    let here = one.begin(Request::post(format!("/carts/{key}/slow/2000")));
    let there = two.begin(Request::post(format!("/carts/{key}/slow/2000")));
    let streamed = one.call(Request::get(format!("/carts/{key}/drip")), "").await.into_body();
    tokio::time::sleep(SECOND).await;
    let streamed = beside(async move { streamed.collect().await.map(|it| it.to_bytes()) });
    let (report, took) = one.node.leave().await;
    assert!(report.is_clean(), "{report}");
    // The body is sent for the longest time.
    assert!((2 * SECOND..4 * SECOND).contains(&took), "{took:?}");
    assert_eq!(here.await.unwrap().text, "one");
    assert_eq!(there.await.unwrap().text, "one");
    assert_eq!(streamed.await.unwrap().unwrap(), "drip drip drip ");
    assert!(two.get(&key).await.text.starts_with("two "));
    assert_eq!(network.runs(&key), ["one", "one", "one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn s1452_an_ask_of_a_handler_is_answered_while_its_shard_drains() {
    let (_network, one, two) = spread().await;
    let key = key_of(&one.region);
    let here = one.begin(Request::post(format!("/carts/{key}/ask/2000")));
    let there = two.begin(Request::post(format!("/carts/{key}/ask/2000")));
    tokio::time::sleep(SECOND).await;
    let (report, took) = one.node.leave().await;
    assert!(report.is_clean() && took < 3 * SECOND, "{took:?}: {report}");
    for asked in [here.await.unwrap(), there.await.unwrap()] {
        assert_eq!((asked.status, asked.text.as_str()), (200, "1"));
    }
}

#[tokio::test(start_paused = true)]
async fn s1453_no_request_is_lost_or_doubled_while_nodes_leave() {
    let network = Network::new();
    let nodes = [network.node("one").await, network.node("two").await, network.node("three").await];
    network.links.delay(Duration::from_millis(3));
    tokio::time::sleep(400 * SECOND).await;
    let mut clients = JoinSet::new();
    // The third node stays, and receives all requests.
    for client in 0..20 {
        let app = nodes[2].app.clone();
        clients.spawn(async move {
            for step in 0..60 {
                let uri = format!("/carts/c-{client}");
                let answered = app::send(app.clone(), Request::post(uri), "x").await;
                assert_eq!(answered.status, 200, "{client}, {step}: {}", answered.text);
                tokio::time::sleep(Duration::from_millis(7)).await;
            }
        });
    }
    for node in &nodes[..2] {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (report, took) = node.node.leave().await;
        assert!(report.is_clean() && took < 2 * SECOND, "{took:?}: {report}");
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let runs: Vec<_> = (0..20).map(|client| network.runs(&format!("c-{client}"))).collect();
    assert!(runs.iter().all(|runs| runs.len() == 60), "{runs:?}");
    assert!(runs.iter().any(|runs| runs[0] != runs[59]), "no key has moved");
    network.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s1454_a_request_that_waits_for_too_long_is_refused_and_does_not_run() {
    let (network, one, two) = spread().await;
    let key = key_of(&one.region);
    network.links.cut(&id("one"), &id("two"));
    let begun = tokio::time::Instant::now();
    let refused = two.get(&key).await;
    assert_eq!(begun.elapsed(), app::WITHIN);
    assert_eq!((refused.status, refused.header("adieu-refused")), (503, Some("unreachable")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.text.contains("the request was not handled"), "{}", refused.text);
    // A shard that drains, and does not move in time.
    network.links.mend(&id("one"), &id("two"));
    let slow = one.begin(Request::post(format!("/carts/{key}/slow/8000")));
    tokio::time::sleep(SECOND).await;
    let left = beside(async move { one.node.leave().await });
    tokio::time::sleep(SECOND).await;
    let refused = two.get(&key).await;
    assert_eq!((refused.status, refused.header("adieu-refused")), (503, Some("moving")));
    assert_eq!(slow.await.unwrap().status, 200);
    assert!(left.await.unwrap().0.is_clean());
    assert_eq!(network.runs(&key), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn s1455_a_request_whose_owner_is_cut_off_is_answered_502_and_not_repeated() {
    let (network, one, two) = spread().await;
    let key = key_of(&one.region);
    let ends = two.begin(Request::get(format!("/carts/{key}/slow/2000")));
    let late = two.begin(Request::get(format!("/carts/{key}/slow/7000")));
    tokio::time::sleep(SECOND).await;
    assert_eq!(network.runs(&key).len(), 2);
    tokio::time::sleep(app::WITHIN - SECOND / 2).await;
    let late = late.await.unwrap();
    assert_eq!(late.status, 504);
    assert!(late.text.contains("may have been handled"), "{}", late.text);
    assert_eq!(ends.await.unwrap().status, 200);
    let cut = two.begin(Request::get(format!("/carts/{key}/slow/2000")));
    tokio::time::sleep(SECOND).await;
    network.links.cut(&id("one"), &id("two"));
    tokio::time::sleep(SECOND / 10).await;
    network.links.mend(&id("one"), &id("two"));
    let cut = cut.await.unwrap();
    assert_eq!((cut.status, cut.header("adieu-refused")), (502, None));
    assert!(cut.text.contains("may have been handled"), "{}", cut.text);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(network.runs(&key).len(), 3, "a request was repeated");
    // A handler that panics is stopped, too.
    let panicked = two.send(Request::get(format!("/carts/{key}/panic")), "").await;
    assert_eq!(panicked.status, 502);
    assert!(panicked.text.contains("panicked"), "{}", panicked.text);
    drop(one);
}

#[tokio::test(start_paused = true)]
async fn s1456_bodies_of_forwarded_requests_and_responses_are_bounded() {
    let (network, one, two) = spread().await;
    let key = key_of(&one.region);
    let echo = || Request::put(format!("/carts/{key}/echo"));
    let (fits, long) = ("x".repeat(app::BODY), "x".repeat(app::BODY + 1));
    assert_eq!(two.send(echo(), &fits).await.text, fits);
    let refused = two.send(echo(), &long).await;
    assert_eq!(refused.status, 413, "{}", refused.text);
    assert!(refused.text.contains(&format!("more than {} bytes", app::BODY)), "{}", refused.text);
    assert_eq!(network.runs(&key).len(), 1, "the request ran");
    // The length is not known before.
    let frames = futures_body(vec![long.clone(), long.clone()]);
    let streamed = app::answered(two.call_with(echo(), frames).await).await;
    assert_eq!(streamed.status, 413);
    // On the owner there is no limit.
    assert_eq!(one.send(echo(), &long).await.text, long);
    let big = || Request::get(format!("/carts/{key}/big/{}", app::BODY + 1));
    assert_eq!(one.send(big(), "").await.text.len(), app::BODY + 1);
    let cut = two.send(big(), "").await;
    assert_eq!(cut.status, 502);
    assert!(
        cut.text.contains("the request was handled, but its response has more"),
        "{}",
        cut.text
    );
    let head = Request::get(format!("/carts/{key}")).header("x-long", "x".repeat(70_000));
    assert_eq!(two.send(head, "").await.status, 431);
    let upgrade = || Request::get(format!("/carts/{key}")).header("upgrade", "websocket");
    assert_eq!(two.send(upgrade(), "").await.status, 501);
    assert_eq!(one.send(upgrade(), "").await.status, 200);
}

/// A body of several frames, without a length.
fn futures_body(frames: Vec<String>) -> axum::body::Body {
    let frames = frames.into_iter().map(Ok::<_, std::convert::Infallible>);
    axum::body::Body::from_stream(tokio_stream::iter(frames))
}

#[tokio::test(start_paused = true)]
async fn s1457_a_client_that_goes_away_delays_nothing() {
    let (network, one, two) = spread().await;
    let key = key_of(&one.region);
    // It waits at the second node, and is taken back.
    network.links.cut(&id("one"), &id("two"));
    let waits = two.begin(Request::get(format!("/carts/{key}")));
    tokio::time::sleep(SECOND).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    network.links.mend(&id("one"), &id("two"));
    tokio::time::sleep(10 * SECOND).await;
    assert!(network.runs(&key).is_empty(), "a request ran whose client has gone");
    // It runs on the first node, and continues there.
    let forwarded = two.begin(Request::get(format!("/carts/{key}/slow/2000")));
    let here = one.begin(Request::get(format!("/carts/{key}/slow/600000")));
    tokio::time::sleep(SECOND).await;
    forwarded.abort();
    here.abort();
    let (report, took) = one.node.leave().await;
    assert!(report.is_clean() && took < 2 * SECOND, "{took:?}: {report}");
    assert_eq!(network.finished(&key), 1);
    // A response that is dropped before its end.
    let key = key_of(&two.region);
    drop(two.call(Request::get(format!("/carts/{key}/drip")), "").await);
    let (report, took) = two.node.leave().await;
    assert!(report.is_clean() && took < SECOND, "{took:?}: {report}");
}

#[tokio::test(start_paused = true)]
async fn s1459_a_header_cannot_make_a_request_run_elsewhere_or_twice() {
    let (network, one, two) = spread().await;
    let key = key_of(&one.region);
    let forged = [
        ("adieu-forwarded", "1"),
        ("adieu-refused", "moving"),
        ("x-forwarded-host", "two"),
        ("via", "1.1 one, 1.1 two, 1.1 one"),
        ("max-forwards", "0"),
        ("host", "one"),
    ];
    for (name, value) in forged {
        let request = || Request::get(format!("/carts/{key}")).header(name, value);
        assert!(two.send(request(), "").await.text.starts_with("one "), "{name}");
        assert!(one.send(request(), "").await.text.starts_with("one "), "{name}");
    }
    assert_eq!(network.runs(&key).len(), 2 * forged.len());
}

#[tokio::test(start_paused = true)]
async fn s1460_a_request_that_does_not_end_is_stopped_and_named_and_its_shard_moves() {
    let (network, one, two) = spread().await;
    let key = key_of(&one.region);
    let here = one.begin(Request::get(format!("/carts/{key}/slow/600000")));
    let there = two.begin(Request::get(format!("/carts/{key}/hang/600000")));
    let body = one.call(Request::get(format!("/carts/{key}/endless")), "").await.into_body();
    let body = beside(async move { body.collect().await.map(|_| ()) });
    tokio::time::sleep(SECOND).await;
    let (report, took) = one.node.leave().await;
    assert!((9 * SECOND..10 * SECOND).contains(&took), "{took:?}");
    let phase = report.phase("cluster-sharding-shutdown-region").unwrap();
    let text = format!("{:?}", phase.task("cluster: hand over regions").unwrap());
    assert!(text.contains(&format!("request to {key} busy 10")), "{text}");
    let here = here.await.unwrap();
    assert_eq!(here.status, 502);
    assert!(here.text.contains("may have been handled: the handler was stopped"), "{}", here.text);
    // This one had waited for longer than its client.
    assert_eq!(there.await.unwrap().status, 504);
    assert!(body.await.unwrap().unwrap_err().to_string().contains("the response was cut"));
    assert!(two.get(&key).await.text.starts_with("two "));
    network.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s1461_a_node_without_a_route_refuses_forwarded_requests() {
    let network = Network::new();
    let one = network.node_without_routes("one").await;
    let two = network.node("two").await;
    let key = key_of(&one.region);
    let Answered { status, text, .. } = two.get(&key).await;
    assert_eq!(status, 503);
    assert!(text.contains("node one does not route the requests of region carts"), "{text}");
    until("nothing waits", || two.node.cluster.status().regions[0].kept == 0).await;
}
