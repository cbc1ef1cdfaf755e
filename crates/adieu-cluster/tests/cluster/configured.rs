//! The table `cluster` of a configuration, and the keys of Akka.

use std::time::Duration;

use adieu_cluster::store::Memory;
use adieu_cluster::{Cluster, ClusterError, JoinError};
use adieu_core::adapter::error_text;
use adieu_core::{Config, Format, Shutdown};
use tokio::time::Instant;

fn shutdown(text: &str) -> Shutdown {
    let vars: [(String, String); 0] = [];
    let config = Config::parse_with_vars(text, Format::Toml, vars).unwrap();
    Shutdown::configured(config.kill_after(adieu_core::KillAfter::Never)).unwrap()
}

fn refused(text: &str) -> String {
    let error = Cluster::new(Memory::new(), "shop").on(&shutdown(text)).unwrap_err();
    assert!(matches!(error, ClusterError::Config(_)), "{error:?}");
    error_text(&error).replace("failed to set up a cluster node: ", "")
}

/// Returns after which time a node gives up that cannot reach its store.
async fn joins_for(text: &str) -> Duration {
    let store = Memory::new();
    store.faults().cut(true);
    let shutdown = shutdown(text);
    let cluster = Cluster::new(store, "shop").on(&shutdown).unwrap();
    let begun = Instant::now();
    let error = cluster.join().await.unwrap_err();
    assert!(matches!(error, JoinError::TimedOut { .. }), "{error}");
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn s858_the_cluster_table_overrides_options_in_code() {
    let text = "cluster = { ttl = '20s', node = 'n-1', build = 'b', zone = 'z', address = 'a:1', \
                weight = 3, removal-margin = '1s', join-deadline = '9s' }";
    let builder = Cluster::new(Memory::new(), "shop").node("other").ttl(Duration::from_secs(5));
    let shutdown = shutdown(text);
    let cluster = builder.weight(1).on(&shutdown).unwrap();
    cluster.join().await.unwrap();
    assert_eq!(cluster.id().to_string(), "n-1");
    let status = cluster.status();
    let node = &status.nodes[0];
    assert_eq!((node.build.as_str(), node.weight), ("b", 3));
    assert_eq!((node.zone.as_deref(), node.address.as_deref()), (Some("z"), Some("a:1")));
    // Four fifths of the configured time to live.
    assert!(status.session_left > Duration::from_secs(15), "{:?}", status.session_left);
    assert_eq!(joins_for("cluster.join-deadline = '9s'").await, Duration::from_secs(9));
    assert_eq!(joins_for("cluster.join-deadline = '4s'").await, Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn s859_an_unknown_key_of_the_table_cluster_is_an_error() {
    assert_eq!(
        refused("cluster.removal-margn = '1s'"),
        "unknown key cluster.removal-margn; did you mean cluster.removal-margin?"
    );
    assert!(refused("cluster.ttl = 'soon'").starts_with("cluster.ttl: "));
    let vars = [("ADIEU__CLUSTER__TTL".to_owned(), "soon".to_owned())];
    let config = Config::parse_with_vars("", Format::Toml, vars).unwrap();
    let shutdown = Shutdown::configured(config).unwrap();
    let error = Cluster::new(Memory::new(), "shop").on(&shutdown).unwrap_err();
    assert!(error_text(&error).contains("(set by ADIEU__CLUSTER__TTL)"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn s860_keys_of_akka_that_have_a_meaning_are_applied() {
    let join = "akka.cluster.shutdown-after-unsuccessful-join-seed-nodes";
    assert_eq!(joins_for(&format!("{join} = '7s'")).await, Duration::from_secs(7));
    let pekko = join.replace("akka", "pekko");
    assert_eq!(joins_for(&format!("{pekko} = '8s'")).await, Duration::from_secs(8));
    let hour = Duration::from_secs(60 * 60);
    let never = format!("{join} = 'off'");
    assert!(tokio::time::timeout(hour, joins_for(&never)).await.is_err(), "it gave up");
    // Our own key is stronger.
    let both = format!("cluster.join-deadline = '3s'\n{join} = '7s'");
    assert_eq!(joins_for(&both).await, Duration::from_secs(3));
    let version = "akka.cluster.app-version = '1.2'\nakka.cluster.down-removal-margin = 'off'";
    let versioned = shutdown(version);
    let cluster = Cluster::new(Memory::new(), "shop").on(&versioned).unwrap();
    cluster.join().await.unwrap();
    assert_eq!(cluster.status().nodes[0].build, "1.2");
    let down = shutdown("akka.cluster.run-coordinated-shutdown-when-down = 'off'");
    assert!(Cluster::new(Memory::new(), "shop").on(&down).is_ok());
    assert!(!down.runs_when_down());
}

#[tokio::test(start_paused = true)]
async fn s861_keys_of_akka_without_a_meaning_are_errors_that_name_the_alternative() {
    assert_eq!(
        refused("akka.cluster.seed-nodes = ['akka://shop@a:2551']"),
        "akka.cluster.seed-nodes: has no meaning here: nodes find each other through the store: pass \
         it to Cluster::new"
    );
    assert_eq!(
        refused("akka.cluster.roles = ['front']"),
        "akka.cluster.roles: has no meaning here: a node gets the singletons that it declares: \
         declare each where it may run"
    );
    for key in [
        "downing-provider-class = 'x'",
        "auto-down-unreachable-after = 'off'",
        "split-brain-resolver.active-strategy = 'keep-majority'",
        "failure-detector.threshold = 8",
        "min-nr-of-members = 3",
        "gossip-interval = '1s'",
        "sharding.number-of-shards = 100",
        "singleton.singleton-name = 'x'",
    ] {
        let error = refused(&format!("akka.cluster.{key}"));
        assert!(error.contains("has no meaning here: "), "{error}");
    }
    let misspelt = refused("akka.cluster.shutdown-after-unsuccessful-join-seed-node = '7s'");
    assert!(
        misspelt
            .ends_with("did you mean akka.cluster.shutdown-after-unsuccessful-join-seed-nodes?"),
        "{misspelt}"
    );
    // A program without a cluster does not care.
    drop(shutdown("akka.cluster.seed-nodes = ['akka://shop@a:2551']"));
}

/// Sets one key by a variable. Returns the error.
fn refused_by_variable(key: &str, value: &str) -> String {
    let vars = [(format!("ADIEU__CLUSTER__{key}"), value.to_owned())];
    let config = Config::parse_with_vars("", Format::Toml, vars).unwrap();
    let shutdown = Shutdown::configured(config).unwrap();
    error_text(&Cluster::new(Memory::new(), "shop").on(&shutdown).unwrap_err())
}

#[tokio::test(start_paused = true)]
async fn s1268_a_value_out_of_bounds_names_its_key_and_where_it_was_set() {
    for value in ["0s", "10ms"] {
        let error = refused(&format!("cluster.ttl = '{value}'"));
        let least = "the shortest time to live of the store memory is 100ms";
        assert_eq!(error, format!("cluster.ttl: is {value}, but {least}"));
    }
    assert_eq!(refused("cluster.join-deadline = '0s'"), "cluster.join-deadline: must not be zero");
    assert_eq!(refused("cluster.weight = 0"), "cluster.weight: must not be zero");
    let error = refused("cluster.node = ''");
    assert!(error.starts_with("cluster.node: ") && error.contains("it is empty"), "{error}");
    let error = refused("cluster.node = 'a b'");
    assert!(error.starts_with("cluster.node: ") && error.contains("a b"), "{error}");
    for (key, value) in [("TTL", "10ms"), ("JOIN_DEADLINE", "0s"), ("NODE", "a b"), ("WEIGHT", "0")]
    {
        let error = refused_by_variable(key, value);
        assert!(error.contains(&format!("(set by ADIEU__CLUSTER__{key})")), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn s1268_a_time_to_live_of_the_program_that_is_too_short_names_the_least() {
    let ttl = Duration::from_millis(10);
    let error = Cluster::new(Memory::new(), "shop").ttl(ttl).on(&shutdown("")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("10ms") && text.contains("store memory is 100ms"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn s1624_an_address_to_which_no_node_can_connect_is_refused_when_the_node_is_set_up() {
    let advice =
        "set the host and port at which other nodes reach this node, such as 10.0.0.7:7070";
    let error = refused("cluster.address = 'shop-1'");
    assert_eq!(error, format!("cluster.address: \"shop-1\" has no port: {advice}"));
    let error = refused_by_variable("ADDRESS", "0.0.0.0:7070");
    assert!(error.contains("(set by ADIEU__CLUSTER__ADDRESS)"), "{error}");
    let builder = Cluster::new(Memory::new(), "shop").address("shop-1:0");
    let error = builder.on(&shutdown("")).unwrap_err();
    let problem =
        format!("the address \"shop-1:0\" has port 0, which no node can connect to: {advice}");
    assert_eq!(error.to_string(), format!("failed to set up a cluster node: {problem}"));
    assert!(matches!(error, ClusterError::Address { address, .. } if address == "shop-1:0"));
}

#[cfg(feature = "links")]
#[tokio::test]
async fn s1624_without_a_proof_the_address_must_be_on_this_machine() {
    let listen = |address: &str| {
        let security = adieu_cluster::Security::loopback_only();
        let builder = Cluster::new(Memory::new(), "shop").listen("127.0.0.1:0", security);
        builder.address(address).on(&shutdown("")).map(drop).map_err(|error| error_text(&error))
    };
    let error = listen("10.0.0.7:7070").unwrap_err();
    assert!(error.contains("the address 10.0.0.7:7070 is not on this machine"), "{error}");
    assert!(error.contains("use certificates or a token"), "{error}");
    listen("127.0.0.1:7070").unwrap();
    listen("[::1]:7070").unwrap();
    listen("localhost:7070").unwrap();
}

#[tokio::test(start_paused = true)]
async fn s1269_run_when_down_in_the_table_cluster_is_an_error_that_names_its_place() {
    assert_eq!(
        refused("cluster.run-when-down = false"),
        "cluster.run-when-down: is not a key of this table: set coordinated-shutdown.run-when-down"
    );
}

#[tokio::test(start_paused = true)]
async fn s1273_a_weight_of_zero_is_refused() {
    let error = Cluster::new(Memory::new(), "shop").weight(0).on(&shutdown("")).unwrap_err();
    let expected = "failed to set up a cluster node: the weight is 0, but must be at least 1: cordon \
                    the process to give it no shards";
    assert_eq!(error.to_string(), expected);
}
