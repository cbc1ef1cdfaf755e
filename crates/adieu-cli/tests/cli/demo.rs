//! `adieu demo`: a fleet under load, in a pipe, in a terminal, and interrupted.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::tmux::Tmux;
use super::{Ran, adieu, until};

/// A demo that is small enough for a machine that runs other tests at the same time.
const SMALL: &str = "demo --replicas 2 --rate 100 --duration 3s";

fn small(more: &[&str]) -> Ran {
    let args: Vec<&str> = SMALL.split(' ').chain(more.iter().copied()).collect();
    adieu(&args)
}

#[test]
fn s181_a_rolling_restart_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Ran { code, stdout, stderr } =
        small(&["--json", "--report-dir", folder.path().to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["failed"], 0);
    assert_eq!(result["failures"], serde_json::json!({}));
    assert_eq!(result["restarts"], 2);
    assert!(result["requests"].as_u64().unwrap() > 200, "{result}");
    // An invoice takes two seconds.
    assert!(result["slowest_ms"].as_u64().unwrap() >= 2_000, "{result}");
    let orders = &result["orders"];
    assert!(orders["taken"].as_u64().unwrap() > 50, "{orders}");
    assert_eq!((&orders["shipped"], &orders["lost"]), (&orders["taken"], &Value::from(0)));

    let replicas = result["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 2);
    for replica in replicas.iter().flat_map(|replica| [replica, &replica["successor"]]) {
        assert_eq!(replica["exit_code"], 0, "{replica}");
        assert_eq!(replica["report"]["outcome"]["kind"], "clean", "{replica}");
        assert_eq!(replica["report"]["reason"], "SIGTERM", "{replica}");
        let at = |what: &str| replica[what].as_u64().unwrap();
        assert!(at("started_ms") <= at("ready_ms"), "{replica}");
        assert!(at("ready_ms") <= at("signalled_ms"), "{replica}");
        assert!(at("signalled_ms") <= at("gone_ms"), "{replica}");
        let name = replica["name"].as_str().unwrap();
        let report = folder.path().join(format!("adieu/{name}.json"));
        let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
        assert_eq!(report, replica["report"], "the report is kept");
    }
    // The successor was ready first.
    let (old, new) = (&replicas[0], &replicas[0]["successor"]);
    assert!(new["ready_ms"].as_u64() <= old["signalled_ms"].as_u64(), "{old}");
}

#[test]
fn s181_the_plain_server_beside_it_loses_some() {
    let Ran { code, stdout, stderr } = adieu(&[
        "demo",
        "--replicas",
        "1",
        "--rate",
        "50",
        "--duration",
        "1s",
        "--compare",
        "--json",
    ]);
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, stderr.as_str()),
        (0, ""),
        "losses of the plain server do not count: {stdout}"
    );
    assert_eq!(result["failed"], 0);
    let plain = &result["compare"];
    // The four clients of the ticker keep the server from ending until it is killed.
    assert!(plain["failed"].as_u64().unwrap() >= 4, "{plain}");
    assert_eq!(plain["replicas"][0]["exit_code"], 137);
    assert_eq!(plain["replicas"][0]["report"], Value::Null);
    assert_eq!(plain["restarts"], 1);
}

#[test]
fn in_a_pipe_it_says_a_line_for_each_change_and_a_table() {
    let Ran { code, stdout, stderr } = small(&[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(!format!("{stdout}{stderr}").contains('\x1b'), "{stdout}{stderr}");
    for name in ["orders-1a", "orders-2a", "orders-1b", "orders-2b"] {
        let lines: Vec<&str> = stderr.lines().filter(|line| line.contains(name)).collect();
        assert!(lines[lines.len() - 1].ends_with(&format!("{name} gone, exit code 0")), "{stderr}");
        assert!(lines.iter().any(|line| line.ends_with("ready")), "{stderr}");
        let row = stdout.lines().find(|line| line.contains(name)).unwrap();
        assert!(row.contains("clean in ") && row.ends_with("exit code 0"), "{stdout}");
        assert!(row.contains('█') && row.contains('▒'), "{stdout}");
    }
    let head: Vec<&str> = stdout.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["requests", "failed", "slowest", "restarts", "orders", "lost"]);
    let row: Vec<&str> = stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[2], row[5]), ("adieu", "0", "2"), "{stdout}");
}

#[test]
fn s182_at_a_terminal_it_draws_and_ctrl_c_ends_it_cleanly() {
    let terminal = Tmux::open("demo", &[]);
    terminal.adieu("demo --replicas 2 --rate 100 --duration 30s");
    let screen = terminal.until("draining");
    assert!(screen.contains("restarted 0 of 2"), "{screen}");
    assert!(screen.contains("in flight") && screen.contains("left"), "{screen}");
    assert!(screen.contains('█'), "{screen}");
    assert!(!terminal.has_cursor());
    assert!(terminal.coloured_screen().contains("\x1b[32m"), "{screen}");

    terminal.press("C-c");
    let screen = terminal.until("code=");
    assert!(screen.contains("code=130"), "{screen}");
    assert!(screen.contains("interrupted; until then:"), "{screen}");
    assert!(screen.contains("clean in ") && !screen.contains("still running"), "{screen}");
    assert!(!screen.contains("in flight"), "the frame is erased: {screen}");
    assert!(terminal.has_cursor());
}

#[test]
fn s326_the_demo_fits_into_a_narrow_terminal() {
    std::thread::scope(|scope| {
        for columns in [60, 40] {
            scope.spawn(move || fits_into(columns));
        }
    });
}

fn fits_into(columns: usize) {
    let terminal = Tmux::with_columns(&format!("narrow-{columns}"), columns, &[]);
    terminal.adieu("demo --replicas 1 --rate 50 --duration 2s --compare");
    let screen = terminal.until("draining");
    assert!(screen.contains("restarted 0 of 1") && screen.contains("s left"), "{screen}");
    let screen = terminal.until("code=");
    assert!(screen.contains("code=0"), "{screen}");
    for figure in ["requests", "failed", "slowest", "restarts", "orders", "lost"] {
        assert!(screen.contains(figure), "{figure}: {screen}");
    }
    assert!(screen.contains("clean in ") && screen.contains("killed after"), "{screen}");
    // A line that the terminal has broken is one line here.
    let widest = screen.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= columns, "{widest}: {screen}");
}

/// A cluster that is small enough for a machine that runs other tests at the same time.
const CLUSTER: &str = "demo cluster --nodes 2 --carts 24 --rate 150 --duration 3s";

fn cluster(more: &[&str]) -> Ran {
    let args: Vec<&str> = CLUSTER.split(' ').chain(more.iter().copied()).collect();
    adieu(&args)
}

#[test]
fn s1510_a_rolling_restart_of_a_cluster_runs_each_ask_once() {
    let folder = tempfile::tempdir().unwrap();
    let Ran { code, stdout, stderr } =
        cluster(&["--json", "--report-dir", folder.path().to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["asks"], result["ran"], "{result}");
    assert!(result["ran"].as_u64().unwrap() > 200, "{result}");
    for figure in ["not_run", "unknown", "lost", "doubled", "untrue"] {
        assert_eq!(result[figure], 0, "{figure}: {result}");
    }
    assert_eq!(result["restarts"], 2);
    // Each of the shards has moved, once.
    let moves = &result["moves"];
    assert_eq!((&moves["fewest"], &moves["most"]), (&Value::from(1), &Value::from(1)), "{moves}");
    assert_eq!(moves["total"], 24, "{moves}");
    let nodes = result["nodes"].as_array().unwrap();
    let names: Vec<_> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["carts-1a", "carts-2a", "carts-1b", "carts-2b"]);
    for node in nodes {
        assert_eq!(node["exit_code"], 0, "{node}");
        assert_eq!(node["report"]["outcome"]["kind"], "clean", "{node}");
        let report = folder.path().join(format!("adieu/{}.json", node["name"].as_str().unwrap()));
        let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
        assert_eq!(report, node["report"], "the report is kept");
    }
}

#[test]
fn s1511_naive_rehashing_beside_it_loses_and_doubles_items() {
    let Ran { code, stdout, stderr } = cluster(&["--compare", "--json"]);
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, stderr.as_str()), (0, ""), "losses there do not count: {stdout}");
    assert_eq!((&result["lost"], &result["doubled"]), (&Value::from(0), &Value::from(0)));
    let naive = &result["compare"];
    assert!(naive["lost"].as_u64().unwrap() > 0, "{naive}");
    assert!(naive["doubled"].as_u64().unwrap() > 0, "{naive}");
    assert!(naive["moves"]["per_shard"].as_f64() > result["moves"]["per_shard"].as_f64());
}

#[test]
fn s1512_killed_nodes_lose_and_double_nothing() {
    let Ran { code, stdout, stderr } = cluster(&["--kill", "--json"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let result: Value = serde_json::from_str(&stdout).unwrap();
    for figure in ["lost", "doubled", "untrue"] {
        assert_eq!(result[figure], 0, "{figure}: {result}");
    }
    assert!(result["ran"].as_u64().unwrap() > 200, "{result}");
    // The shards of a killed node run elsewhere when its session of four seconds has ended.
    assert!(result["longest_stall_ms"].as_u64().unwrap() > 2_000, "{result}");
    let codes: Vec<_> = result["nodes"].as_array().unwrap().iter().collect();
    let codes: Vec<_> = codes.iter().map(|node| node["exit_code"].as_i64().unwrap()).collect();
    assert_eq!(codes, [137, 137, 0, 0]);
}

#[test]
fn s1510_in_a_pipe_the_demo_of_the_cluster_prints_changes_and_a_table() {
    let Ran { code, stdout, stderr } = cluster(&[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(!format!("{stdout}{stderr}").contains('\x1b'), "{stdout}{stderr}");
    for name in ["carts-1a", "carts-2a", "carts-1b", "carts-2b"] {
        assert!(stderr.contains(&format!("{name} gone, exit code 0")), "{stderr}");
        let row = stdout.lines().find(|line| line.contains(name)).unwrap();
        assert!(row.contains("clean in ") && row.ends_with("exit code 0"), "{stdout}");
    }
    let head: Vec<&str> = stdout.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["ran", "not", "run", "unknown", "lost", "doubled", "stall", "moves"]);
    let row: Vec<&str> = stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], &row[2..6], row[8]), ("adieu", &["0"; 4][..], "1.0"), "{stdout}");
}

#[test]
fn s182_at_a_terminal_the_demo_of_the_cluster_draws_and_ctrl_c_ends_it() {
    let terminal = Tmux::open("demo-cluster", &[]);
    terminal.adieu("demo cluster --nodes 2 --carts 24 --rate 100 --duration 60s");
    let screen = terminal.until("carts-1b");
    assert!(screen.contains("restarted 0 of 2") && screen.contains("shards"), "{screen}");
    assert!(screen.contains("not run 0  unknown 0") && screen.contains('█'), "{screen}");
    terminal.press("C-c");
    let screen = terminal.until("code=");
    assert!(screen.contains("code=130"), "{screen}");
    assert!(screen.contains("interrupted; until then:"), "{screen}");
    assert!(!screen.contains("still running"), "{screen}");
    assert!(terminal.has_cursor());
}

#[test]
fn s326_the_demo_of_the_cluster_fits_into_a_narrow_terminal() {
    for (columns, more) in [(40, ""), (60, "--compare")] {
        let terminal = Tmux::with_columns(&format!("narrow-cluster-{columns}"), columns, &[]);
        let small = "demo cluster --nodes 2 --carts 8 --rate 50 --duration 2s";
        terminal.adieu(&format!("{small} {more}"));
        let screen = terminal.until("code=");
        assert!(screen.contains("code=0"), "{screen}");
        for figure in ["ran", "not run", "unknown", "lost", "doubled", "stall", "moves"] {
            assert!(screen.contains(&format!("\n{figure} ")), "{figure}: {screen}");
        }
        let widest = screen.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns, "{widest}: {screen}");
    }
}

#[test]
fn s188_at_a_terminal_without_colours_it_draws_all_the_same() {
    let terminal = Tmux::open("no-color", &[("NO_COLOR", "1")]);
    terminal.adieu("demo --replicas 1 --rate 50 --duration 30s");
    let screen = terminal.until("in flight");
    assert!(screen.contains('█'), "{screen}");
    assert!(!terminal.coloured_screen().contains("\x1b["), "{}", terminal.coloured_screen());
    // After a second signal, no replica is waited for.
    terminal.press("C-c");
    terminal.until("draining");
    terminal.press("C-c");
    let screen = terminal.until("code=");
    assert!(screen.contains("code=130") && screen.contains("killed after"), "{screen}");
    assert!(!terminal.coloured_screen().contains("\x1b["), "{}", terminal.coloured_screen());
}

#[test]
fn s182_replicas_go_when_the_demo_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_adieu"))
        .args(["demo", "--replicas", "2", "--rate", "10", "--duration", "60s", "--report-dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let log = folder.path().join("adieu/orders-2a.log");
    let said = |text: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    until("the replica listens", || said("listening"));
    demo.kill().unwrap();
    demo.wait().unwrap();
    until("the replica ends on its own", || said("reason=abandoned") && said("shutdown complete"));
    until("its report is written", || folder.path().join("adieu/orders-2a.json").exists());
}

#[test]
fn unusable_arguments_are_exit_code_2() {
    for (args, says) in [
        (["--replicas", "0"], "0 is not in 1..=20"),
        (["--rate", "0"], "0 is not in 1..=20000"),
        (["--duration", "15"], "15 has no unit: write 15s"),
        (["--duration", "500000y"], "a year is the most"),
        (["--report-dir", "cli.rs"], "failed to use the folder cli.rs"),
    ] {
        let Ran { code, stdout, stderr } = adieu(&["demo", args[0], args[1]]);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
}
