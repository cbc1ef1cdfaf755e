//! Five processes that lose their Redis.

use std::collections::HashMap;

use adieu_testkit::process::Process;
use adieu_testkit::proxy::Proxy;
use adieu_testkit::servers::Server;
use std::time::Duration;
use tempfile::NamedTempFile;

use crate::outages::{connect, signal};
use crate::processes::set;
use crate::replica::start;

/// The lines that a replica wrote about one stage.
struct Stage {
    figures: HashMap<String, String>,
    admitted: Vec<u64>,
}

impl Stage {
    fn read(replica: &mut Process, name: &str) -> Self {
        let line = replica.wait_for(&format!("@stage {name} "));
        let words = line.split_whitespace().filter_map(|word| word.split_once('='));
        let figures: HashMap<_, _> =
            words.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let admitted = figures["admitted"].split(',').filter_map(|time| time.parse().ok());
        Self { admitted: admitted.collect(), figures }
    }

    fn number(&self, key: &str) -> u64 {
        self.figures[key].parse().unwrap()
    }
}

struct Fleet {
    file: NamedTempFile,
    replicas: Vec<Process>,
    stage: &'static str,
}

impl Fleet {
    /// Ends the current stage; returns what each replica wrote about it.
    fn next(&mut self, next: &'static str) -> Vec<Stage> {
        set(&self.file, next);
        let stage = std::mem::replace(&mut self.stage, next);
        self.replicas.iter_mut().map(|replica| Stage::read(replica, stage)).collect()
    }

    /// Waits until it has lasted for this long: the figures of a stage need time to be meaningful.
    async fn run(&mut self, next: &'static str, millis: u64) -> Vec<Stage> {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        tokio::task::block_in_place(|| self.next(next))
    }
}

/// No call waits while the store is away, and none for longer than 25 ms. The fleet admits at most `factor` of its rate: each
/// replica admits a fifth of it while it decides alone.
fn check(what: &str, stages: &[Stage], factor: f64) {
    for (at, stage) in stages.iter().enumerate() {
        let (waited, too_long) = (stage.number("waited"), stage.number("too_long"));
        println!(
            "{what}, replica {at}: {} calls, {waited} waited while it was away, worst {} us (lag {} us), \
             away {} times",
            stage.number("made"),
            stage.number("worst"),
            stage.number("lag"),
            stage.number("away"),
        );
        assert_eq!((waited, too_long), (0, 0), "{what}: calls that waited");
        assert!(stage.number("made") > 50, "{what}");
    }
    let mut admitted: Vec<u64> = stages.iter().flat_map(|stage| stage.admitted.clone()).collect();
    admitted.sort_unstable();
    let took = (admitted[admitted.len() - 1] - admitted[0]) as f64 / 1e6;
    // 100 ms of slices, and one burst.
    let most = factor * 500.0 * (took + 0.1) + 50.0;
    println!("{what}: {} admitted in {took:.2} s, at most {most:.0}", admitted.len());
    assert!(admitted.len() as f64 <= most, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s1239_five_processes_without_redis_wait_once_and_keep_their_rate() {
    let (mut redis, file) = (Server::redis(), NamedTempFile::new().unwrap());
    set(&file, "well");
    // One way to Redis of its own for each replica.
    let mut proxies = Vec::new();
    for _ in 0..5 {
        proxies.push(Proxy::new(redis.address()).await);
    }
    let replicas = proxies.iter().enumerate();
    let replicas =
        replicas.map(|(number, proxy)| start("measure", number, proxy.port(), file.path()));
    let replicas = replicas.collect();
    let mut fleet = Fleet { file, replicas, stage: "well" };
    tokio::task::block_in_place(|| {
        fleet.replicas.iter_mut().for_each(|replica| drop(replica.wait_for("@there")));
    });
    // The burst at the start, and replicas that have not seen each other yet.
    fleet.run("begun", 500).await;

    let all_away = |stages: &[Stage], what: &str| {
        assert!(stages.iter().all(|stage| stage.figures["is_away"] == "true"), "{what}");
    };
    // The store does not count what a replica admits for which it is away: one that was cut off, or
    // one that had to wait too long for an answer because the machine is busy.
    let with_some_away = |stages: &[Stage]| {
        let is_away = |stage: &&Stage| stage.figures["is_away"] == "true";
        let away = stages.iter().filter(|stage| is_away(stage) || stage.number("away") > 0).count();
        f64::max(1.1, 1.0 + away as f64 / 5.0)
    };
    let stages = fleet.run("emptied", 1_000).await;
    check("well", &stages, with_some_away(&stages));
    let mut connection = connect(&redis).await;
    for command in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"]] {
        let mut flush = redis::cmd(command[0]);
        flush.arg(command[1]).query_async::<String>(&mut connection).await.unwrap();
    }
    let stages = fleet.run("killed", 1_000).await;
    check("emptied", &stages, with_some_away(&stages));
    redis.kill();
    let stages = fleet.run("back", 3_000).await;
    all_away(&stages, "killed");
    check("killed", &stages, 1.1);
    redis.start();
    fleet.run("stopped", 3_000).await;
    let mut connection = connect(&redis).await;
    let info =
        redis::cmd("INFO").arg("server").query_async::<String>(&mut connection).await.unwrap();
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim();
    signal("-STOP", pid);
    let stages = fleet.run("back again", 3_000).await;
    signal("-CONT", pid);
    all_away(&stages, "suspended");
    check("suspended", &stages, 1.1);
    fleet.run("slow", 3_000).await;
    proxies.iter().for_each(|proxy| proxy.delay(Duration::from_millis(100)));
    let stages = fleet.run("fast", 3_000).await;
    all_away(&stages, "slow");
    check("200 ms slow", &stages, 1.1);
    proxies.iter().for_each(|proxy| proxy.delay(Duration::ZERO));
    fleet.run("one", 3_000).await;
    proxies[0].cut();
    let stages = fleet.run("end", 3_000).await;
    assert_eq!(stages[0].figures["is_away"], "true");
    check("cut from one replica", &stages, with_some_away(&stages));
    let alive = stages[1..].iter().filter(|stage| stage.figures["is_away"] == "false").count();
    assert!(alive > 0, "the others go on with the store");
}
