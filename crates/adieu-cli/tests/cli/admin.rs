//! `adieu status`, `watch`, `cordon`, `uncordon`, `drain` and `stop`, piped.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use adieu::{Phase, Readiness, Reason, Stage, TaskCx, TaskSpec};
use expect_test::{Expect, expect};
use serde_json::Value;

use super::service::{Service, answering, answering_first};
use super::{Ran, adieu, command, until};

/// Runs the command on this service, and compares its output without the port, which changes.
#[track_caller]
fn says(service: &Service, args: &[&str], code: i32, expected: Expect) {
    let url = service.url();
    let args: Vec<_> = args.iter().map(|arg| if *arg == "URL" { &url } else { *arg }).collect();
    let Ran { code: got, stdout, stderr } = adieu(&args);
    assert_eq!(got, code, "{stdout}{stderr}");
    let process = process();
    let text = (stdout + &stderr).replace(&url, "HOST:PORT").replace(&process, "shop (process)");
    expected.assert_eq(&without_uptime(&text));
}

/// Returns how the command shows the service of this test, which runs in this process.
fn process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.map_or_else(|_| String::new(), |host| format!(" on {}", host.trim_end()));
    format!("shop (process {}{host})", std::process::id())
}

fn without_uptime(text: &str) -> String {
    match text.split_once("up for ") {
        Some((before, after)) => {
            let (_, after) = after.split_once('\n').unwrap();
            format!("{before}up for TIME\n{after}")
        }
        None => text.to_owned(),
    }
}

/// A running `adieu watch`. Tests wait for lines of its output.
struct Watching {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    said: Vec<String>,
}

impl Watching {
    fn of(service: &Service, args: &[&str]) -> Self {
        let mut command = command(&["watch", &service.url()]);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, said: Vec::new() }
    }

    #[track_caller]
    fn until(&mut self, text: &str) {
        while !self.said.last().is_some_and(|line| line.contains(text)) {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "{text}: {:?}", self.said);
            self.said.push(line);
        }
    }

    fn end(mut self) -> Ran {
        let (mut stdout, mut stderr) = (self.said.concat(), String::new());
        self.lines.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: self.child.wait().unwrap().code().unwrap(), stdout, stderr }
    }
}

/// `850ms` or `4.9s`, as seconds.
fn seconds(text: &str) -> f64 {
    let millis = text.strip_suffix("ms").map(|millis| millis.parse::<f64>().unwrap() / 1e3);
    millis.unwrap_or_else(|| text.strip_suffix('s').unwrap().parse().unwrap())
}

#[test]
fn s327_status_names_the_service_and_its_stage() {
    let service = Service::start();
    let database = service.shutdown.add_check("database");
    database.mark_failed("connection refused");
    let cache = service.shutdown.add_check("cache");
    let _pass = service.orders.enter();
    says(
        &service,
        &["status", "URL"],
        0,
        expect![[r#"
            shop (process) at http://HOST:PORT
              up for TIME
              ! unavailable
                1 in flight: orders 1

            Checks
              ! database  failed: connection refused
              . cache     not yet
        "#]],
    );
    let json = adieu(&["status", &service.url(), "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["in_flight"], &json["stage"]), (&1.into(), &"up".into()));
    drop(cache);
}

#[test]
fn s324_status_shows_pending_tasks_with_time_left_and_then_the_outcome() {
    let service = Service::start();
    let run = service.shutdown.run(Reason::Unknown);
    let waits_for_it = || {
        let waiting = service.shutdown.status().waiting_for;
        waiting.iter().any(|waiting| &*waiting.task == "flush")
    };
    until("the flush", waits_for_it);
    let shown = adieu(&["status", &service.url()]).stdout;
    assert!(shown.contains("shutting down for "), "{shown}");
    // The running time, the remaining time, and the name.
    let line = shown.lines().find(|line| line.ends_with("  service-stop / flush")).unwrap();
    let times: Vec<_> = line.split_whitespace().take(2).map(seconds).collect();
    assert!(times[0] < 5.0 && (times[0] + times[1] - 5.0).abs() < 0.2, "{shown}");
    service.flush.cancel();
    run.wait().unwrap();
    let shown = adieu(&["status", &service.url()]).stdout;
    assert!(shown.contains("its shutdown is over"), "{shown}");
    assert!(shown.contains("shutdown clean in "), "{shown}");
}

#[test]
fn s187_a_cordon_can_be_undone_until_the_shutdown_begins() {
    let service = Service::start();
    says(&service, &["cordon", "URL"], 0, expect!["http://HOST:PORT is cordoned\n"]);
    assert_eq!(service.shutdown.readiness(), Readiness::Cordoned);
    let shown = adieu(&["status", &service.url()]).stdout;
    assert!(shown.contains("- cordoned, refuses work\n"), "{shown}");
    says(&service, &["uncordon", "URL"], 0, expect!["http://HOST:PORT is ready\n"]);
    says(&service, &["cordon", "URL", "--now"], 0, expect!["http://HOST:PORT is cordoned\n"]);
    assert!(service.orders.enter().is_err(), "it refuses at once");
    says(&service, &["uncordon", "URL"], 0, expect!["http://HOST:PORT is ready\n"]);
    drop(service.shutdown.run(Reason::Unknown));
    says(
        &service,
        &["uncordon", "URL"],
        1,
        expect!["adieu: http://HOST:PORT: the shutdown has begun\n"],
    );
}

#[test]
fn drain_waits_until_nothing_is_in_flight_but_not_for_ever() {
    let service = Service::start();
    let pass = service.orders.enter().unwrap();
    says(
        &service,
        &["drain", "URL", "--yes", "--wait", "300ms"],
        1,
        expect![[r#"
            1 in flight: orders 1
            adieu: http://HOST:PORT is not drained after 300ms: 1 in flight: orders 1; it stays cordoned: adieu uncordon undoes that
        "#]],
    );
    assert_eq!(service.shutdown.readiness(), Readiness::Cordoned);
    drop(pass);
    says(
        &service,
        &["drain", "URL", "--yes"],
        0,
        expect![[r#"
            0 in flight
            http://HOST:PORT is drained
        "#]],
    );
    assert_eq!(service.shutdown.stage(), Stage::Up);
}

#[test]
fn drain_waits_also_if_its_output_is_closed() {
    let service = Service::start();
    let _pass = service.orders.enter().unwrap();
    let mut draining = command(&["drain", &service.url(), "--yes", "--wait", "300ms"]);
    let mut draining = draining.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(draining.stdout.take());
    assert_eq!(draining.wait().unwrap().code(), Some(1));
    assert_eq!(service.shutdown.readiness(), Readiness::Cordoned);
}

#[test]
fn a_service_in_shutdown_is_not_drained_and_a_stop_raises_its_urgency() {
    let service = Service::start();
    drop(service.shutdown.run(Reason::Unknown));
    says(
        &service,
        &["drain", "URL", "--yes"],
        1,
        expect![[r#"
            adieu: http://HOST:PORT is shutting down, which includes a drain: adieu watch follows it
        "#]],
    );
    says(
        &service,
        &["stop", "URL", "--yes"],
        0,
        expect![[r#"
            http://HOST:PORT was shutting down already; its urgency is raised
        "#]],
    );
}

#[test]
fn s187_stop_and_drain_need_consent() {
    let service = Service::start();
    says(
        &service,
        &["stop", "URL"],
        2,
        expect![[r#"
            adieu: stop shop (process) at http://HOST:PORT? It is ready, 0 in flight. There is no terminal to ask at: pass --yes
        "#]],
    );
    assert_eq!(adieu(&["drain", &service.url()]).code, 2);
    assert_eq!(service.shutdown.readiness(), Readiness::Ready);
    says(
        &service,
        &["stop", "URL", "-y"],
        0,
        expect!["http://HOST:PORT is shutting down: admin-port\n"],
    );
    assert_eq!(service.shutdown.stage(), Stage::ShuttingDown);
}

#[test]
fn s186_stop_can_follow_to_the_end() {
    let service = Service::start();
    service.flush.cancel();
    let Ran { code, stdout, stderr } = adieu(&["stop", &service.url(), "--yes", "--watch"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("shutdown over: clean, exit code 0\n"), "{stdout}");
    assert!(stdout.contains("shutdown clean in "), "{stdout}");
}

#[test]
fn s186_watch_has_a_line_for_each_change_and_the_report() {
    let service = Service::start();
    let mut watching = Watching::of(&service, &[]);
    watching.until("ready");
    let run = service.shutdown.run(Reason::Unknown);
    watching.until("service-stop / flush started");
    service.flush.cancel();
    run.wait().unwrap();
    // The process exits at once, and the report has been received all the same.
    service.vanish();
    let Ran { code, stdout, stderr } = watching.end();
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("shutting down, "), "{stdout}");
    assert!(stdout.contains("Phases that decided the duration"), "{stdout}");
}

#[test]
fn watch_has_an_object_for_each_change_if_asked() {
    let service = Service::start();
    let mut watching = Watching::of(&service, &["--json"]);
    watching.until("\"ready\"");
    drop(service.shutdown.run(Reason::Unknown));
    watching.until("task-started");
    service.flush.cancel();
    let Ran { code, stdout, .. } = watching.end();
    assert_eq!(code, 0);
    let changes: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = changes.last().unwrap();
    assert_eq!((&last["stage"], &last["report"]["exit_code"]), (&"over".into(), &0.into()));
    let started = changes.iter().find(|change| change["change"] == "task-started").unwrap();
    assert_eq!((&started["phase"], &started["task"]), (&"service-stop".into(), &"flush".into()));
}

#[test]
fn s186_watch_says_that_it_was_not_clean_or_vanished_by_its_exit_code() {
    let service = Service::start();
    let failing = async |_: TaskCx| Err::<(), _>("disk full");
    service.shutdown.add_task(Phase::SERVICE_UNBIND, "sync", failing).unwrap();
    let mut watching = Watching::of(&service, &[]);
    watching.until("ready");
    drop(service.shutdown.run(Reason::Unknown));
    service.flush.cancel();
    let Ran { code, stdout, .. } = watching.end();
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("! service-unbind / sync: failed: disk full"), "{stdout}");

    let service = Service::start();
    let mut watching = Watching::of(&service, &[]);
    watching.until("ready");
    drop(service.shutdown.run(Reason::Unknown));
    watching.until("service-stop / flush started");
    service.vanish();
    let Ran { code, stderr, .. } = watching.end();
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("vanished in the middle of its shutdown"), "{stderr}");
    assert!(stderr.contains("service-stop / flush"), "{stderr}");

    // The shutdown is over and its outcome is unknown: that is not a success.
    let status = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
        {\"stage\":\"over\",\"readiness\":\"stopping\",\"elapsed_ms\":1,\"remaining_ms\":1,\
        \"waiting_for\":[],\"report\":{\"odd\":1}}";
    let Ran { code, stdout, stderr } = adieu(&["watch", &answering(status).to_string()]);
    assert_eq!(code, 1, "{stdout}{stderr}");
}

#[test]
fn s323_watch_names_a_task_that_timed_out() {
    let service = Service::start();
    let hangs = TaskSpec::new("sync").timeout(std::time::Duration::from_secs(1));
    let hangs = service.shutdown.add_task(Phase::SERVICE_UNBIND, hangs, async |_: TaskCx| {
        std::future::pending::<()>().await;
    });
    hangs.unwrap();
    let mut watching = Watching::of(&service, &[]);
    watching.until("ready");
    drop(service.shutdown.run(Reason::Unknown));
    // Not "over": polls are a tenth of a second apart, so one of them observes the cancelled task.
    watching.until("service-unbind / sync timed out, is being cancelled");
    watching.until("service-unbind / sync timed out after 1s");
    watching.until("service-stop / flush started");
    service.flush.cancel();
    let Ran { code, stdout, .. } = watching.end();
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("service-stop / flush finished\n"), "{stdout}");
    assert!(stdout.contains("shutdown over: unclean, exit code 70\n"), "{stdout}");
    assert!(stdout.contains("> service-unbind / sync: timed out after 1s"), "{stdout}");
}

#[test]
fn s329_watch_notices_that_another_process_answers() {
    let said = |host: &str, uptime: u64| {
        let body = serde_json::json!({
            "stage": "up", "readiness": "ready", "waiting_for": [],
            "process": { "name": "shop", "host": host, "pid": 1, "uptime_ms": uptime },
        });
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}"
        )
    };
    for (first, second) in [(said("a", 9_000), said("a", 10)), (said("a", 9_000), said("b", 9_500))]
    {
        let addr = answering_first(&first, &second);
        let Ran { code, stderr, .. } = adieu(&["watch", &addr.to_string()]);
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("vanished before a shutdown was observed; shop"), "{stderr}");
        assert!(stderr.contains("answers in its place. Last state:"), "{stderr}");
    }
}

#[test]
fn the_token_is_asked_for_and_taken() {
    const TOKEN: &str = "correct horse battery";
    let service = Service::with(|admin| admin.token(TOKEN).unwrap().require_token());
    says(
        &service,
        &["cordon", "URL"],
        3,
        expect![
            "adieu: http://HOST:PORT refuses: Authorization: Bearer is required; pass --token, or set ADIEU_ADMIN_TOKEN\n"
        ],
    );
    says(
        &service,
        &["cordon", "URL", "--token", "wrong"],
        3,
        expect![
            "adieu: http://HOST:PORT refuses: the token is wrong; see --token and ADIEU_ADMIN_TOKEN\n"
        ],
    );
    says(
        &service,
        &["cordon", "URL", "--token", TOKEN],
        0,
        expect!["http://HOST:PORT is cordoned\n"],
    );
    let mut uncordon = command(&["uncordon", &service.url()]);
    assert!(uncordon.env("ADIEU_ADMIN_TOKEN", TOKEN).output().unwrap().status.success());
    assert_eq!(service.shutdown.readiness(), Readiness::Ready);
    let help = command(&["stop", "--help"]).env("ADIEU_ADMIN_TOKEN", TOKEN).output().unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains(TOKEN), "it is a secret");
}

#[test]
fn a_name_that_is_not_an_address_is_refused_with_advice() {
    let service = Service::with(|admin| admin);
    // A name with a dot that every resolver knows: 127.0.0.1 in the short form of inet_aton.
    let url = service.url().replace("127.0.0.1", "127.1");
    let Ran { code, stdout, stderr } = adieu(&["status", &url]);
    let advice = "the Host header 127.1 is not an address of this machine; use its address";
    let expected = format!("adieu: http://{url} refuses: {advice}\n");
    assert_eq!((code, stdout.as_str(), stderr), (3, "", expected));
}

#[test]
fn a_peer_that_is_not_an_admin_port_is_reported() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let page: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p/>";
    let refusing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let cases = [
        (unused, "nothing listens at http://ADDR; start the service, or pass the address that"),
        (
            answering(page),
            "the server at http://ADDR is not an admin port: it answered 200, text/html",
        ),
        (answering(refusing), "is not an admin port: it answered 404"),
        (answering(b"SSH-2.0-OpenSSH_9.2\r\n"), "the server at http://ADDR is not an admin port"),
        (answering(b""), "the server at http://ADDR is not an admin port"),
        (silent.local_addr().unwrap(), "http://ADDR did not answer within 200ms"),
    ];
    for (addr, message) in cases {
        let url = addr.to_string();
        for verb in ["status", "watch", "cordon", "stop"] {
            let Ran { code, stdout, stderr } = adieu(&[verb, &url, "--timeout", "200ms"]);
            assert_eq!((code, stdout.as_str()), (3, ""), "{stderr}");
            assert!(stderr.contains(&message.replace("ADDR", &url)), "{verb}: {stderr}");
        }
    }
    let wrong = [
        ("https://pod:8558", "plain HTTP"),
        ("pod:port", "write a URL such as"),
        ("http://pod/shutdown", "without a path"),
    ];
    for (url, message) in wrong {
        let Ran { code, stderr, .. } = adieu(&["status", url]);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
    assert_eq!(adieu(&["status", "--timeout", "0s"]).code, 2);
}
