//! `adieu cluster`, and what `plan` and `check` show of a cluster.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use adieu::cluster::store::Memory;
use adieu::cluster::{Cluster, Entity, Region, ShardPass, SingletonCx};
use adieu::http::{Admin, AdminHandle};
use adieu::{Config, Reason, Shutdown};
use expect_test::expect;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::service::Service;
use super::{Ran, adieu, command, config, shows, until};

/// A node of a cluster with a real admin port, in this process.
struct Node {
    shutdown: Shutdown,
    cluster: Cluster,
    carts: Option<Region<Add>>,
    admin: Option<AdminHandle>,
    addr: SocketAddr,
}

/// The nodes run here.
struct Cloud {
    runtime: Option<Runtime>,
    store: Memory,
    /// How many shards the region `cart` has; without it, there is no region.
    shards: Option<u32>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Add;
impl adieu::cluster::Command for Add {
    type Reply = ();
}

impl Cloud {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let store = runtime.block_on(async { Memory::new() });
        Self { runtime: Some(runtime), store, shards: None }
    }

    fn with_shards(shards: u32) -> Self {
        let mut cloud = Self::new();
        cloud.shards = Some(shards);
        cloud
    }

    fn join(&self, name: &str) -> Node {
        let node = self.node(name);
        self.runtime.as_ref().unwrap().block_on(node.cluster.join()).unwrap();
        node.shutdown.mark_started();
        node
    }

    fn node(&self, name: &str) -> Node {
        self.runtime.as_ref().unwrap().block_on(async {
            let config = Config::for_tests().run_when_down(true);
            let config = config.default_phase_timeout(Duration::from_secs(60));
            let shutdown = Shutdown::configured(config).unwrap();
            let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap().start().unwrap();
            let builder = Cluster::new(self.store.connect(), "shop").node(name).build("7");
            let cluster = builder.zone("a").address("h:1").on(&shutdown).unwrap();
            let sweeper = async |me: SingletonCx| me.stopped().await;
            cluster.singleton("sweeper", sweeper).unwrap();
            let carts = self.shards.map(|shards| {
                let carts = cluster.region::<Add>("cart").shards(shards);
                carts.serve(async |mut me: Entity<Add>| while me.next().await.is_some() {}).unwrap()
            });
            let addr = admin.local_addr();
            Node { shutdown, cluster, carts, admin: Some(admin), addr }
        })
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Node {
    fn url(&self) -> String {
        self.addr.to_string()
    }

    fn owner(&self) -> Option<String> {
        let status = self.cluster.status();
        let sweeper = status.singletons.iter().find(|it| &*it.name == "sweeper")?;
        sweeper.instance.map(|_| ())?;
        sweeper.owner.as_ref().map(ToString::to_string)
    }

    /// Enters a shard of the region, which keeps it from being handed over.
    fn pass_of_shard_0(&self) -> ShardPass {
        let carts = self.carts.as_ref().unwrap();
        let mut keys = (0..).map(|it| format!("cart-{it}"));
        carts.enter(&keys.find(|key| carts.shard_of(key) == 0).unwrap()).unwrap()
    }
}

/// The lines without what differs in each run: times, fences, and the width of columns.
fn stable(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = line.split_once("may act without ").map_or(line, |(before, _)| before);
        let line = line.split_once("renewed ").map_or(line, |(before, _)| before);
        let words: Vec<_> = line.split_whitespace().collect();
        let words: Vec<_> =
            words
                .iter()
                .map(|word| {
                    if word.chars().all(|c| c.is_ascii_digit()) && *word != "7" {
                        "N"
                    } else {
                        word
                    }
                })
                .collect();
        out += words.join(" ").trim_end_matches(',');
        out.push('\n');
    }
    out
}

#[test]
fn s862_cluster_status_shows_nodes_singletons_and_the_leader() {
    let cloud = Cloud::new();
    let one = cloud.join("shop-1");
    let two = cloud.join("shop-2");
    until("it runs", || one.owner().as_deref() == Some("shop-1"));
    until("both are seen", || one.cluster.status().nodes.len() == 2);
    expect![[r#"
        cluster shop, as shop-1 sees it
        up

        Nodes
        node state build zone address
        shop-1 up 7 a h:1 leads
        shop-2 up 7 a h:1

        Singletons
        singleton owner fence state
        sweeper shop-1 N owned, running
    "#]]
    .assert_eq(&stable(&shows(&["cluster", "status", &one.url()])));
    let json: Value =
        serde_json::from_str(&shows(&["cluster", "status", &two.url(), "--json"])).unwrap();
    assert_eq!(json["clusters"][0]["node"], "shop-2");
    assert_eq!(json["clusters"][0]["leader"], "shop-1");

    // A service without a cluster, and no service.
    let service = Service::start();
    let Ran { code, stderr, .. } = adieu(&["cluster", "status", &service.url()]);
    assert_eq!(code, 3);
    let expected = format!(
        "adieu: http://{} has no page /cluster: the process has no cluster, or an older adieu\n",
        service.url()
    );
    assert_eq!(stderr, expected);
    service.vanish();
    let Ran { code, stderr, .. } = adieu(&["cluster", "status", &service.url()]);
    assert_eq!((code, stderr.contains("nothing listens")), (3, true), "{stderr}");
}

#[test]
fn s1277_if_nothing_listens_the_command_names_what_to_do() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = unused.to_string();
    let problem = format!(
        "adieu: nothing listens at http://{url}; start the service, or pass the address that it gives \
         to Admin::bind"
    );
    let Ran { code, stderr, .. } = adieu(&["status", &url]);
    assert_eq!((code, stderr), (3, format!("{problem}\n")));
    for command in [&["status", &url][..], &["leave", "shop-1", &url, "--yes"], &["stop", &url]] {
        let Ran { code, stderr, .. } = adieu(&[&["cluster"], command].concat());
        let expected = format!("{problem}; the admin port of any node will do\n");
        assert_eq!((code, stderr), (3, expected), "{command:?}");
    }
}

#[test]
fn s862_a_node_that_has_not_joined_is_shown_in_plain_words() {
    let cloud = Cloud::new();
    let _one = cloud.join("shop-1");
    let twin = cloud.node("shop-1");
    let _joins = cloud.runtime.as_ref().unwrap().spawn({
        let cluster = twin.cluster.clone();
        async move { cluster.join().await }
    });
    until("it waits", || twin.cluster.status().nodes.len() == 1);
    let shown = shows(&["cluster", "status", &twin.url()]);
    let mut lines = shown.lines().skip(1);
    assert_eq!(lines.next(), Some("  not in the cluster"), "{shown}");
    let waits = "  join: waiting until the earlier node shop-1 is gone, ";
    assert!(lines.next().is_some_and(|line| line.starts_with(waits)), "{shown}");
}

/// A node that has left or lost its place does not see what becomes of the others.
#[test]
fn s1276_a_node_that_is_no_longer_in_the_cluster_is_not_asked() {
    let cloud = Cloud::new();
    let (one, two) = (cloud.join("shop-1"), cloud.join("shop-2"));
    until("it is seen", || one.cluster.status().nodes.len() == 2);
    shows(&["cluster", "out", "shop-2", &one.url(), "--yes"]);
    until("it is down", || two.cluster.stage() == adieu::cluster::Stage::Down);
    let commands = [&["leave", "shop-1", "--wait", "30s"][..], &["out", "shop-1"], &["stop"]];
    for command in commands {
        let url = two.url();
        let args = [&["cluster"], command, &["--yes", &url]].concat();
        let Ran { code, stderr, .. } = adieu(&args);
        let expected = "adieu: shop-2 is no longer in cluster shop: an operator has declared the node \
                        dead; use the admin port of another node\n";
        assert_eq!((code, stderr.as_str()), (3, expected));
    }
    assert_eq!(one.shutdown.reason(), None, "nothing was changed");
}

#[test]
fn s1276_leave_ends_when_the_node_that_was_asked_leaves_first() {
    for vanishes in [false, true] {
        let cloud = Cloud::new();
        let (one, mut two) = (cloud.join("shop-1"), cloud.join("shop-2"));
        until("it is seen", || two.cluster.status().nodes.len() == 2);
        // The shutdown of the node that is to leave hangs.
        let phase = adieu::Phase::BEFORE_CLUSTER_SHUTDOWN;
        one.shutdown
            .add_task(phase, "hangs", async |_| std::future::pending::<()>().await)
            .unwrap();
        let args = ["cluster", "leave", "shop-1", &two.url(), "--yes", "--wait", "5m"];
        let leaving = command(&args).stderr(Stdio::piped()).spawn().unwrap();
        until("it leaves", || one.shutdown.reason().is_some());
        drop(two.shutdown.run(Reason::Unknown));
        until("it has left", || two.cluster.stage() == adieu::cluster::Stage::Removed);
        if vanishes {
            drop(two.admin.take());
        }
        let ended = leaving.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        let expected = "adieu: shop-1 was requested to leave cluster shop, but the queried node \
                        shop-2 is itself no longer in it; see adieu cluster status with the admin port of \
                        another node\n";
        assert_eq!((ended.status.code(), stderr.as_str()), (Some(3), expected));
    }
}

#[test]
fn s1276_leave_reports_a_node_that_died_on_its_way() {
    let cloud = Cloud::new();
    let (one, two) = (cloud.join("shop-1"), cloud.join("shop-2"));
    until("it is seen", || two.cluster.status().nodes.len() == 2);
    let phase = adieu::Phase::BEFORE_CLUSTER_SHUTDOWN;
    one.shutdown.add_task(phase, "hangs", async |_| std::future::pending::<()>().await).unwrap();
    let args = ["cluster", "leave", "shop-1", &two.url(), "--yes", "--wait", "5m"];
    let leaving = command(&args).stderr(Stdio::piped()).spawn().unwrap();
    until("it leaves", || one.shutdown.reason().is_some());
    shows(&["cluster", "out", "shop-1", &two.url(), "--yes"]);
    let ended = leaving.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    let expected = "adieu: shop-1 died or lost its place before it had left cluster shop\n";
    assert_eq!((ended.status.code(), stderr.as_str()), (Some(1), expected));
}

#[test]
fn s863_cluster_leave_out_and_stop_ask_and_act() {
    let cloud = Cloud::new();
    let nodes: Vec<Node> = ["shop-1", "shop-2", "shop-3"].map(|name| cloud.join(name)).into();
    let [one, two, three] = &nodes[..] else { panic!("three nodes") };
    until("it runs", || one.owner().as_deref() == Some("shop-1"));
    until("all are seen", || nodes.iter().all(|it| it.cluster.status().nodes.len() == 3));
    let url = two.url();

    let Ran { code, stderr, .. } = adieu(&["cluster", "leave", "shop-4", &url, "--yes"]);
    let expected = "adieu: no node shop-4 in cluster shop; there are shop-1, shop-2, shop-3\n";
    assert_eq!((code, stderr.as_str()), (1, expected));
    let Ran { code, stderr, .. } = adieu(&["cluster", "leave", "shop-1", &url]);
    let expected = "adieu: let shop-1 leave cluster shop? It is up. It runs sweeper. There is no \
                    terminal to ask at: pass --yes\n";
    assert_eq!((code, stderr.as_str()), (2, expected));
    assert_eq!(one.shutdown.reason(), None, "nothing was changed");

    let left = shows(&["cluster", "leave", "shop-1", &url, "--yes", "--wait", "30s"]);
    assert_eq!(left, "shop-1 has left cluster shop\n");
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterLeaving));
    until("it moved", || [two.owner(), three.owner()].iter().flatten().next().is_some());

    let out = shows(&["cluster", "out", "shop-3", &url, "--yes"]);
    assert_eq!(out, "shop-3 of cluster shop is declared dead\n");
    until("it is down", || three.shutdown.reason() == Some(Reason::ClusterDowning));
    let other = adieu(&["cluster", "stop", &url, "--yes", "--cluster", "till"]);
    assert_eq!((other.code, other.stderr.contains("it is in shop")), (2, true), "{}", other.stderr);
    let stops = shows(&["cluster", "stop", &url, "--yes"]);
    assert!(stops.starts_with("cluster shop stops: "), "{stops}");
    until("it stops", || two.shutdown.reason() == Some(Reason::ClusterLeaving));
}

#[test]
fn s1506_cluster_move_asks_and_acts() {
    let cloud = Cloud::with_shards(4);
    let nodes: Vec<Node> = ["shop-1", "shop-2"].map(|name| cloud.join(name)).into();
    let [one, two] = &nodes[..] else { panic!("two nodes") };
    let owner = |node: &Node, shard: u32| {
        let status = node.cluster.status();
        let mut owners = status.regions.first()?.owners.clone().into_iter();
        owners.find(|(_, shards)| shards.contains(&shard)).map(|(owner, _)| owner.to_string())
    };
    until("all are owned", || (0..4).all(|it| owner(two, it).is_some()));
    until("both are ready", || nodes.iter().all(|it| it.cluster.status().nodes.len() == 2));
    let url = one.url();
    // All are at the first node, which was there before the second.
    assert_eq!(owner(one, 3).as_deref(), Some("shop-1"));

    let refused = |args: &[&str]| {
        let Ran { code, stderr, .. } = adieu(&[&["cluster", "move"], args, &[&url]].concat());
        (code, stderr.trim_end().to_owned())
    };
    let question = "adieu: move cart/3 of cluster shop to shop-2? Now shop-1 owns it. There is no \
                    terminal to ask at: pass --yes";
    assert_eq!(refused(&["cart/3", "shop-2"]), (2, question.to_owned()));
    let (code, problem) = refused(&["cart/x", "shop-2", "--yes"]);
    assert_eq!((code, problem.contains("write REGION/NUMBER, such as cart/17")), (2, true));
    for (shard, to, why) in [
        ("basket/0", "shop-2", "there is no region basket; regions: cart, sweeper"),
        ("cart/4", "shop-2", "region cart has the shards 0 to 3"),
        ("cart/3", "shop-1", "shop-1 owns it already"),
        ("cart/3", "shop-9", "no node shop-9 in cluster shop; there are shop-1, shop-2"),
    ] {
        let (code, problem) = refused(&[shard, to, "--yes"]);
        assert_eq!((code, problem.ends_with(why)), (1, true), "{problem}");
    }
    assert_eq!(owner(one, 3).as_deref(), Some("shop-1"), "nothing was changed");

    let moved = shows(&["cluster", "move", "cart/3", "shop-2", &url, "--yes", "--wait", "1m"]);
    assert_eq!(moved, "cart/3 of cluster shop has moved to shop-2\n");
    assert_eq!(owner(one, 3).as_deref(), Some("shop-2"));
    let status = shows(&["cluster", "status", &url]);
    assert!(stable(&status).contains("cart N shop-1 3, shop-2 N N N N"), "{}", stable(&status));
    let json: Value = serde_json::from_str(&shows(&["cluster", "status", &url, "--json"])).unwrap();
    let owners = &json["clusters"][0]["regions"][0]["owners"];
    assert_eq!(*owners, serde_json::json!({ "shop-1": [0, 1, 2], "shop-2": [3] }));

    let moved = shows(&["cluster", "move", "sweeper", "shop-2", &url, "--yes", "--wait", "1m"]);
    assert_eq!(moved, "sweeper of cluster shop has moved to shop-2\n");
    until("it runs there", || two.owner().as_deref() == Some("shop-2"));

    two.shutdown.cordon();
    until("it is cordoned", || {
        let nodes = one.cluster.status().nodes;
        nodes.iter().any(|it| it.node.as_str() == "shop-2" && !it.ready)
    });
    let (code, problem) = refused(&["cart/2", "shop-2", "--yes"]);
    let why = "shop-2 takes no shards: it is cordoned, not ready, or shuts down";
    assert_eq!((code, problem.ends_with(why)), (1, true), "{problem}");
}

/// `adieu cluster watch`, which is killed when it is dropped.
struct Watching {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Watching {
    fn of(node: &Node) -> Self {
        let mut watch = command(&["cluster", "watch", &node.url()]);
        let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn until_line(&mut self, text: &str) {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with(text)), "{text} was not printed");
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Joins two nodes, of which the first owns the two shards of a region.
fn two_nodes() -> (Cloud, Node, Node) {
    let cloud = Cloud::with_shards(2);
    let (one, two) = (cloud.join("shop-1"), cloud.join("shop-2"));
    until("all are owned", || {
        let regions = one.cluster.status().regions;
        regions.first().is_some_and(|it| it.free == 0) && two.cluster.status().nodes.len() == 2
    });
    (cloud, one, two)
}

/// A shard that does not drain is shown while it moves.
#[test]
fn s1507_a_shard_that_moves_is_shown() {
    let (_cloud, one, two) = two_nodes();
    let mut watching = Watching::of(&two);
    watching.until_line("shop: region cart on shop-1: 2 of 2 shards");
    let pass = one.pass_of_shard_0();
    let args = ["cluster", "move", "cart/0", "shop-2", &two.url(), "--yes", "--wait", "1s"];
    let Ran { code, stderr, .. } = adieu(&args);
    assert_eq!((code, stderr.contains("does not own cart/0")), (1, true), "{stderr}");
    watching.until_line("shop: shard cart/0: moves from shop-1 to shop-2");
    let status = stable(&shows(&["cluster", "status", &two.url()]));
    assert!(status.contains("Moves\nshard from to\ncart/0 shop-1 shop-2\n"), "{status}");
    drop(pass);
    watching.until_line("shop: region cart on shop-2: 1 of 2 shards");
}

/// A node that leaves is shown with how many shards it has handed over, and then where they are.
#[test]
fn s1629_cluster_watch_prints_how_far_a_hand_over_is() {
    let (_cloud, one, two) = two_nodes();
    let mut watching = Watching::of(&one);
    watching.until_line("shop: region cart on shop-1: 2 of 2 shards");
    let pass = one.pass_of_shard_0();
    drop(one.shutdown.run(Reason::Unknown));
    watching.until_line("shop: shop-1 waits: leave: 1/2 shards handed over (cart 1/2)");
    let shown = shows(&["cluster", "status", &one.url()]);
    assert!(shown.contains("  leave: 1/2 shards handed over (cart 1/2), "), "{shown}");
    drop(pass);
    until("it has left", || one.cluster.stage() == adieu::cluster::Stage::Removed);
    let shown = stable(&shows(&["cluster", "status", &two.url()]));
    let (_, moves) = shown.split_once("Last moves\nshard from to took why ago\n").unwrap();
    assert!(moves.contains("cart/0 shop-1 shop-2 ") && moves.contains(" left "), "{shown}");
    assert!(moves.contains("sweeper shop-1 shop-2 "), "{shown}");
}

#[test]
fn s864_cluster_watch_prints_a_line_for_each_change() {
    let cloud = Cloud::new();
    let mut one = cloud.join("shop-1");
    until("it runs", || one.owner().as_deref() == Some("shop-1"));
    let mut watching = command(&["cluster", "watch", &one.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut until_line = |text: &str| {
        let line = lines.find(|line| line.starts_with(text));
        line.unwrap_or_else(|| panic!("{text} was not printed"))
    };
    until_line("shop: leader: shop-1");
    until_line("shop: node shop-1: up");
    until_line("shop: singleton sweeper: owned, shop-1, fence ");
    let two = cloud.join("shop-2");
    until_line("shop: node shop-2: up");
    drop(two.shutdown.run(Reason::Unknown));
    until_line("shop: node shop-2: gone, left");
    drop(one.admin.take());
    let ended = watching.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("is gone; watch through the admin port of another node"), "{stderr}");
}

#[test]
fn s865_plan_shows_the_tasks_of_a_cluster_that_the_configuration_has() {
    let with = config("cluster.ttl = '10s'");
    let plan = shows(&["plan", "--config", with.path().to_str().unwrap()]);
    let tasks = plan.split_once("The configuration has a cluster. ").unwrap().1;
    expect![[r#"
        A node leaves it with these tasks:
          cluster-sharding-shutdown-region  cluster: hand over regions
          cluster-leave                     cluster: leave
          cluster-exiting                   cluster: hand over singletons
          cluster-exiting-done              cluster: be removed
          cluster-shutdown                  cluster: close
    "#]]
    .assert_eq(tasks);
    assert!(!shows(&["plan"]).contains("has a cluster"));
}

#[test]
fn s866_check_counts_the_cluster_phases_of_a_configuration_with_a_cluster() {
    let checked = |text: &str| {
        let config = config(text);
        let path = config.path().to_str().unwrap().to_owned();
        adieu(&["check", "--config", &path, "--grace", "40s"])
    };
    let (without, with) = (checked(""), checked("[cluster]"));
    assert_eq!(without.code, 0, "{}{}", without.stdout, without.stderr);
    // The five phases have 35 s in addition.
    assert_eq!(with.code, 1, "{}{}", with.stdout, with.stderr);
    assert!(with.stdout.contains("cluster-exiting"), "{}", with.stdout);
}
