//! The admin port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use adieu_core::{Config, Phase, Readiness, Reason, Shutdown, Signal, TaskCx};
use adieu_http::{Admin, AdminError, AdminHandle, AdminStop};

use super::client::PATIENCE;

pub(super) fn start(shutdown: &Shutdown) -> AdminHandle {
    Admin::new(shutdown).bind("127.0.0.1:0").unwrap().start().unwrap()
}

/// Sends `bytes`, and returns everything that arrives until the port closes the connection.
fn send(addr: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes.as_ref());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub(super) fn request(addr: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
    );
    let answer = send(addr, request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(super) fn json(body: &str) -> serde_json::Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn s97_the_admin_port_answers_while_the_runtime_is_blocked() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (blocked, is_blocked) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let released = std::sync::Mutex::new(released);
    shutdown
        .add_task(Phase::SERVICE_UNBIND, "stuck", async move |_: TaskCx| {
            blocked.send(()).unwrap();
            released.lock().unwrap().recv().unwrap(); // Blocks the only thread.
        })
        .unwrap();
    let run = {
        let shutdown = shutdown.clone();
        std::thread::spawn(move || runtime.block_on(shutdown.run(Reason::Unknown)).unwrap())
    };
    is_blocked.recv().unwrap();

    assert_eq!(request(addr, "GET", "/livez", ""), (200, "alive".into()));
    assert_eq!(request(addr, "GET", "/readyz", ""), (503, "draining".into()));
    let (code, body) = request(addr, "GET", "/shutdown", "");
    let status = json(&body);
    assert_eq!(code, 200);
    assert_eq!(status["stage"], "shutting-down");
    assert_eq!(status["readiness"], "draining");
    assert_eq!(status["waiting_for"][0]["task"], "stuck");
    assert!(status["report"].is_null());
    release.send(()).unwrap();
    assert!(run.join().unwrap().is_clean());
    let (_, body) = request(addr, "GET", "/shutdown", "");
    assert_eq!(json(&body)["report"]["exit_code"], 0, "{body}");
    drop(admin);
    assert!(TcpStream::connect(addr).is_err(), "the port is closed with its handle");
}

#[test]
fn s390_a_task_whose_description_blocks_delays_no_probe() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shutdown = runtime.block_on(async { Shutdown::configured(Config::for_tests()).unwrap() });
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let (described, is_described) = std::sync::mpsc::sync_channel(9);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let task = adieu_core::TaskSpec::new("mute").describe(move || {
        let _ = described.send(());
        std::thread::sleep(PATIENCE);
        "too late".into()
    });
    shutdown
        .add_task(Phase::SERVICE_UNBIND, task, async move |cx: TaskCx| {
            begun.send(()).unwrap();
            cx.cancelled().await
        })
        .unwrap();
    let run = shutdown.run(Reason::Unknown);
    has_begun.recv().unwrap();
    let requesting = std::thread::spawn(move || request(addr, "GET", "/shutdown", ""));
    is_described.recv().unwrap();
    assert_eq!(request(addr, "GET", "/livez", "").0, 200);
    assert_eq!(requesting.join().unwrap().0, 504);
    // The shutdown calls the description, too, and is not delayed.
    let report = run.wait().unwrap();
    assert!(report.took < Duration::from_secs(9), "{report}");
    drop(admin);
    runtime.shutdown_background();
}

#[test]
fn s390_metrics_that_block_delay_no_probe() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let (rendering, is_rendering) = std::sync::mpsc::sync_channel(9);
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let render = move || {
        rendering.send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        "up 1\n".to_owned()
    };
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap().metrics(render);
    let admin = admin.start().unwrap();
    let addr = admin.local_addr();
    let scraping = std::thread::spawn(move || request(addr, "GET", "/metrics", ""));
    is_rendering.recv().unwrap();
    assert_eq!(request(addr, "GET", "/livez", "").0, 200);
    release.send(()).unwrap();
    assert!(scraping.join().unwrap().1.ends_with("\nup 1\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s98_only_an_authorised_caller_can_cordon_and_stop() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.token("correct horse battery").unwrap().metrics(|| "up 1\n".into());
    let admin = admin.start().unwrap();
    let addr = admin.local_addr();
    shutdown.mark_started();
    tokio::task::block_in_place(|| {
        assert!(request(addr, "GET", "/metrics", "").1.ends_with("\nup 1\n"));
        assert_eq!(request(addr, "GET", "/nothing", "").0, 404);
        assert_eq!(request(addr, "DELETE", "/shutdown", "").0, 405);
        assert_eq!(request(addr, "GET", "/cordon", "").0, 405);
        let wrong = "authorization: Bearer correct horse batterx\r\n";
        assert_eq!(request(addr, "POST", "/cordon", wrong).0, 401);
        assert_eq!(request(addr, "POST", "/cordon", "origin: http://evil.example\r\n").0, 403);
        assert_eq!(shutdown.readiness(), Readiness::Ready, "no request has changed the process");

        let right = "authorization: Bearer correct horse battery\r\n";
        assert_eq!(json(&request(addr, "POST", "/cordon", right).1)["readiness"], "cordoned");
        assert_eq!(json(&request(addr, "POST", "/uncordon", "").1)["readiness"], "ready");
        let (code, body) = request(addr, "POST", "/shutdown", "");
        assert_eq!((code, &json(&body)["reason"]), (202, &"admin-port".into()), "{body}");
        assert_eq!(request(addr, "POST", "/uncordon", "").0, 409);
    });
    assert!(shutdown.completed().await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s328_a_stop_has_a_reason_of_its_own_and_the_ladder_of_sigterm() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    shutdown
        .add_task(Phase::SERVICE_UNBIND, "wait", async |cx: TaskCx| cx.hurried().await)
        .unwrap();
    tokio::task::block_in_place(|| {
        assert_eq!(request(addr, "POST", "/shutdown", "").0, 202);
        let reason = shutdown.reason().unwrap();
        assert!(reason.downcast_ref::<AdminStop>().is_some(), "{reason}");
        // The lame duck and the deadline depend on it.
        assert_eq!(reason.signal(), Some(Signal::TERM));
        // The same signal within this time is one signal.
        std::thread::sleep(2 * Signal::ECHO);
        assert_eq!(json(&request(addr, "GET", "/shutdown", "").1)["stage"], "shutting-down");
        assert_eq!(request(addr, "POST", "/shutdown", "").0, 202);
    });
    let report = shutdown.completed().await.unwrap();
    assert_eq!(report.reason, "admin-port");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s327_the_status_names_the_process() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let status = |admin: &AdminHandle| {
        let addr = admin.local_addr();
        tokio::task::block_in_place(|| json(&request(addr, "GET", "/shutdown", "").1))
    };
    let admin = Admin::new(&shutdown).name("orders").bind("127.0.0.1:0").unwrap();
    let named = status(&admin.start().unwrap());
    assert_eq!(named["process"]["name"], "orders");
    assert_eq!(named["process"]["pid"], std::process::id());
    assert!(named["process"]["uptime_ms"].is_u64(), "{named}");
    if cfg!(target_os = "linux") {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(named["process"]["host"], host.trim_end());
    }
    // The executable of these tests has a number after its name.
    let unnamed = status(&start(&shutdown));
    assert!(unnamed["process"]["name"].as_str().unwrap().starts_with("http"), "{unnamed}");
}

#[test]
fn s393_invalid_settings_of_the_admin_port_are_errors_that_name_the_reason() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let address = Admin::new(&shutdown).bind("nonsense").unwrap_err();
    assert!(address.to_string().contains("nonsense"), "{address}");
    let weak = Admin::new(&shutdown).token("short").unwrap_err();
    assert!(matches!(weak, AdminError::WeakToken { len: 5 }));
    let first = start(&shutdown);
    let taken = Admin::new(&shutdown).bind(first.local_addr()).unwrap().start().unwrap_err();
    assert!(matches!(taken, AdminError::Bind { addr, .. } if addr == first.local_addr()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s391_shutdown_endpoint_reports_the_work_in_flight_for_each_gate() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    shutdown.mark_started();
    let (orders, mails) =
        (shutdown.add_gate("orders").unwrap(), shutdown.add_gate("mails").unwrap());
    let inside = [orders.enter(), orders.enter(), mails.enter()];
    tokio::task::block_in_place(|| {
        let status = json(&request(addr, "GET", "/shutdown", "").1);
        assert_eq!(status["in_flight"], 3, "{status}");
        let gates = serde_json::json!([
            { "name": "orders", "in_flight": 2 },
            { "name": "mails", "in_flight": 1 },
        ]);
        assert_eq!(status["gates"], gates);
        drop(inside);
        let report = shutdown.run(Reason::Unknown).wait().unwrap();
        assert!(report.is_clean());
        let status = json(&request(addr, "GET", "/shutdown", "").1);
        assert_eq!((&status["in_flight"], &status["report"]["exit_code"]), (&0.into(), &0.into()));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s392_until_over_is_answered_when_the_shutdown_is_over_and_the_port_closes() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    shutdown.mark_started();
    let orders = shutdown.add_gate("orders").unwrap();
    let inside = orders.enter();
    tokio::task::block_in_place(|| {
        let mut waiting = TcpStream::connect(addr).unwrap();
        waiting.set_read_timeout(Some(PATIENCE)).unwrap();
        waiting.write_all(b"GET /shutdown?until=over HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        // A later request has been answered, so the port has received the earlier one.
        assert_eq!(request(addr, "GET", "/livez", "").0, 200);
        let run = shutdown.run(Reason::Unknown);
        drop(inside);
        run.wait().unwrap();
        // The port is closed at once, as at the end of a process.
        drop(admin);
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).unwrap();
        let status = json(answer.split_once("\r\n\r\n").unwrap_or_default().1);
        assert_eq!(status["report"]["exit_code"], 0, "{answer}");
        assert_eq!(status["in_flight"], 0);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s99_bad_input_delays_neither_the_admin_port_nor_the_shutdown() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.metrics(|| "x".repeat(32 << 20)).start().unwrap();
    let addr = admin.local_addr();
    tokio::task::block_in_place(|| {
        let status = |answer: String| answer.split(' ').nth(1).map(str::to_owned);
        assert_eq!(status(send(addr, "\x16\x03\x01 garbage\r\n\r\n")).as_deref(), Some("400"));
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
        assert_eq!(status(send(addr, long)).as_deref(), Some("431"));
        let length = "POST /cordon HTTP/1.1\r\nhost: localhost\r\ncontent-length: -7\r\n\r\n";
        assert_eq!(status(send(addr, length)).as_deref(), Some("400"));
        assert_eq!(request(addr, "GET", "/%00%ff/../../etc/passwd", "").0, 404);

        // A client that does not read, and a thousand that send nothing.
        let mut stalled = TcpStream::connect(addr).unwrap();
        stalled.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let idle: Vec<_> = (0..1_000).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let began = Instant::now();
        assert_eq!(request(addr, "GET", "/livez", "").0, 200);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let report = shutdown.run(Reason::Unknown).wait().unwrap();
        assert!(report.is_clean());
        assert!(report.took < Duration::from_secs(2), "{report}");
        let began = Instant::now();
        drop(admin);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        drop((stalled, idle));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s219_a_required_token_is_required_for_everything_but_probes() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.token("correct horse battery").unwrap().require_token();
    let admin = admin.metrics(|| "up 1\n".into()).start().unwrap();
    let addr = admin.local_addr();
    tokio::task::block_in_place(|| {
        let right = "authorization: Bearer correct horse battery\r\n";
        let wrong = "authorization: Bearer correct horse batterx\r\n";
        for path in ["/shutdown", "/shutdown?until=over", "/metrics"] {
            for headers in ["", wrong] {
                let (code, body) = request(addr, "GET", path, headers);
                assert_eq!(code, 401, "{path}: {body}");
                assert!(!body.contains("stage") && !body.contains("up 1"), "{body}");
            }
        }
        assert_eq!(request(addr, "GET", "/shutdown", right).0, 200);
        assert!(request(addr, "GET", "/metrics", right).1.ends_with("\nup 1\n"));
        assert_eq!(
            request(addr, "GET", "/livez", "").0,
            200,
            "the probes of a platform have no token"
        );
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s220_requests_from_a_browser_or_a_proxy_change_nothing_without_the_token() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.token("correct horse battery").unwrap().start().unwrap();
    let addr = admin.local_addr();
    shutdown.mark_started();
    tokio::task::block_in_place(|| {
        for header in [
            "sec-fetch-site: cross-site",
            "sec-fetch-site: same-site",
            "x-forwarded-for: 203.0.113.7",
            "x-real-ip: 203.0.113.7",
            "forwarded: for=203.0.113.7",
            "via: 1.1 proxy",
            "x-forwarded-host: shop.example",
            "cf-connecting-ip: 203.0.113.7",
        ] {
            for path in ["/cordon", "/shutdown"] {
                let (code, body) = request(addr, "POST", path, &format!("{header}\r\n"));
                assert_eq!(code, 403, "{header}: {body}");
            }
            assert_eq!(shutdown.readiness(), Readiness::Ready, "{header}");
            let with_token = format!("authorization: Bearer correct horse battery\r\n{header}\r\n");
            assert_eq!(request(addr, "POST", "/cordon", &with_token).0, 200);
            assert!(shutdown.uncordon());
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s221_a_cordon_begins_with_a_lame_duck() {
    let duck = Duration::from_millis(600);
    let config = Config::for_tests().lame_duck(duck).lame_duck_min(duck);
    let shutdown = Shutdown::configured(config).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let orders = shutdown.add_gate("orders").unwrap();
    shutdown.mark_started();
    tokio::task::block_in_place(|| {
        let began = Instant::now();
        let state = json(&request(addr, "POST", "/cordon", "").1);
        assert_eq!((&state["readiness"], &state["admitting"]), (&"cordoned".into(), &true.into()));
        assert!(orders.enter().is_ok(), "routers have not noticed yet");
        while orders.enter().is_ok() {
            assert!(began.elapsed() < PATIENCE, "the gate should refuse after the lame duck");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(began.elapsed() >= duck, "{:?}", began.elapsed());
        assert_eq!(json(&request(addr, "GET", "/shutdown", "").1)["admitting"], false);

        assert_eq!(json(&request(addr, "POST", "/uncordon", "").1)["admitting"], true);
        // A cordon that is reverted during its lame duck has no later effect.
        request(addr, "POST", "/cordon", "");
        assert_eq!(json(&request(addr, "POST", "/uncordon", "").1)["readiness"], "ready");
        std::thread::sleep(duck + Duration::from_millis(200));
        assert!(orders.enter().is_ok());
    });
    let report = tokio::time::timeout(PATIENCE, shutdown.run(Reason::Unknown)).await.unwrap();
    assert!(report.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s394_a_cordon_with_now_refuses_at_once() {
    let duck = Duration::from_secs(60);
    let config = Config::for_tests().lame_duck(duck).lame_duck_min(duck);
    let shutdown = Shutdown::configured(config).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let orders = shutdown.add_gate("orders").unwrap();
    shutdown.mark_started();
    tokio::task::block_in_place(|| {
        let state = json(&request(addr, "POST", "/cordon?now=true", "").1);
        assert_eq!(state["admitting"], false, "{state}");
        assert!(orders.enter().is_err());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s468_a_request_under_another_host_changes_nothing_without_the_token() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap().start().unwrap();
    let addr = admin.local_addr();
    shutdown.mark_started();
    let cordon = |host: String| {
        let mut stream = TcpStream::connect(addr).unwrap();
        let head = format!("POST /cordon?now=true HTTP/1.1\r\nhost: {host}\r\n");
        stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::block_in_place(|| {
        for host in ["backend", "203.0.113.7:8558", "shop.example"] {
            let answer = cordon(host.into());
            assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
            assert_eq!(shutdown.readiness(), Readiness::Ready, "{host}");
        }
        let answer = cordon(addr.to_string());
        assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    });
    assert_eq!(shutdown.readiness(), Readiness::Cordoned);
}

#[test]
fn a_reader_under_a_foreign_name_is_refused_with_advice() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let error_for = |host: &str| {
        let head = format!("GET /shutdown HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let answer = send(addr, head);
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
        json(answer.split_once("\r\n\r\n").unwrap().1)["error"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        error_for("shop.example:8558"),
        "the Host header shop.example is not an address of this machine; use its address"
    );
    // The name is escaped, and at most as long as a host name can be.
    assert!(error_for("\"a.b\"").contains("header \"a.b\" is"));
    let error = error_for(&format!("a.{}", "b".repeat(4000)));
    assert!(error.ends_with("bb is not an address of this machine; use its address"), "{error}");
    assert!(error.len() < 340, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s469_metrics_that_panic_do_not_hide_the_built_in_ones() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.metrics(|| panic!("no metrics")).start().unwrap();
    let addr = admin.local_addr();
    let (code, body) = tokio::task::block_in_place(|| request(addr, "GET", "/metrics", ""));
    assert_eq!(code, 200, "{body}");
    assert!(body.contains("adieu_ready 0") && body.contains("panicked"), "{body}");
}
