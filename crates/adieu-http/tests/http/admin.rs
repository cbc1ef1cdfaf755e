//! The admin port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use adieu_core::{Config, Phase, Readiness, Reason, Shutdown, Signal, TaskCx};
use adieu_http::{Admin, AdminError, AdminHandle, AdminStop};

use super::client::PATIENCE;

fn start(shutdown: &Shutdown) -> AdminHandle {
    Admin::new(shutdown).bind("127.0.0.1:0").unwrap().start().unwrap()
}

/// Says `bytes`, and returns whatever comes back until the other side closes.
fn say(addr: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes.as_ref());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(addr: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    let answer = say(addr, request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn json(body: &str) -> serde_json::Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn s97_it_answers_while_the_runtime_is_stuck_and_until_the_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stuck, is_stuck) = std::sync::mpsc::channel();
    let (free, freed) = std::sync::mpsc::channel::<()>();
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let freed = std::sync::Mutex::new(freed);
    shutdown
        .add_task(Phase::SERVICE_UNBIND, "stuck", async move |_: TaskCx| {
            stuck.send(()).unwrap();
            freed.lock().unwrap().recv().unwrap(); // Blocks the only thread.
        })
        .unwrap();
    let run = {
        let shutdown = shutdown.clone();
        std::thread::spawn(move || runtime.block_on(shutdown.run(Reason::Unknown)).unwrap())
    };
    is_stuck.recv().unwrap();

    assert_eq!(ask(addr, "GET", "/livez", ""), (200, "alive".into()));
    assert_eq!(ask(addr, "GET", "/readyz", ""), (503, "draining".into()));
    let (code, body) = ask(addr, "GET", "/shutdown", "");
    let status = json(&body);
    assert_eq!(code, 200);
    assert_eq!(status["stage"], "shutting-down");
    assert_eq!(status["readiness"], "draining");
    assert_eq!(status["waiting_for"][0]["task"], "stuck");
    assert!(status["report"].is_null());
    free.send(()).unwrap();
    assert!(run.join().unwrap().is_clean());
    let (_, body) = ask(addr, "GET", "/shutdown", "");
    assert_eq!(json(&body)["report"]["exit_code"], 0, "{body}");
    drop(admin);
    assert!(TcpStream::connect(addr).is_err(), "it is closed with its handle");
}

#[test]
fn s97_a_task_that_does_not_say_what_it_waits_for_holds_up_no_probe() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shutdown = runtime.block_on(async { Shutdown::configured(Config::for_tests()).unwrap() });
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let (asked, is_asked) = std::sync::mpsc::sync_channel(9);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let task = adieu_core::TaskSpec::new("mute").describe(move || {
        let _ = asked.send(());
        std::thread::sleep(PATIENCE);
        "never said".into()
    });
    shutdown
        .add_task(Phase::SERVICE_UNBIND, task, async move |cx: TaskCx| {
            begun.send(()).unwrap();
            cx.cancelled().await
        })
        .unwrap();
    let run = shutdown.run(Reason::Unknown);
    has_begun.recv().unwrap();
    let asking = std::thread::spawn(move || ask(addr, "GET", "/shutdown", ""));
    is_asked.recv().unwrap();
    assert_eq!(ask(addr, "GET", "/livez", "").0, 200);
    assert_eq!(asking.join().unwrap().0, 504);
    // Nor does it hold up the shutdown, which asks it, too.
    let report = run.wait().unwrap();
    assert!(report.took < Duration::from_secs(9), "{report}");
    drop(admin);
    runtime.shutdown_background();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s98_who_may_can_cordon_and_stop() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.token("correct horse battery").unwrap().metrics(|| "up 1\n".into());
    let admin = admin.start().unwrap();
    let addr = admin.local_addr();
    shutdown.started();
    tokio::task::block_in_place(|| {
        assert!(ask(addr, "GET", "/metrics", "").1.ends_with("\nup 1\n"));
        assert_eq!(ask(addr, "GET", "/nothing", "").0, 404);
        assert_eq!(ask(addr, "DELETE", "/shutdown", "").0, 405);
        assert_eq!(ask(addr, "GET", "/cordon", "").0, 405);
        let wrong = "authorization: Bearer correct horse batterx\r\n";
        assert_eq!(ask(addr, "POST", "/cordon", wrong).0, 401);
        assert_eq!(ask(addr, "POST", "/cordon", "origin: http://evil.example\r\n").0, 403);
        assert_eq!(shutdown.readiness(), Readiness::Ready, "nothing has changed");

        let right = "authorization: Bearer correct horse battery\r\n";
        assert_eq!(json(&ask(addr, "POST", "/cordon", right).1)["readiness"], "cordoned");
        assert_eq!(json(&ask(addr, "POST", "/uncordon", "").1)["readiness"], "ready");
        let (code, body) = ask(addr, "POST", "/shutdown", "");
        assert_eq!((code, &json(&body)["reason"]), (202, &"admin-port".into()), "{body}");
        assert_eq!(ask(addr, "POST", "/uncordon", "").0, 409);
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
        assert_eq!(ask(addr, "POST", "/shutdown", "").0, 202);
        let reason = shutdown.reason().unwrap();
        assert!(reason.downcast_ref::<AdminStop>().is_some(), "{reason}");
        // The lame duck and the deadline depend on it.
        assert_eq!(reason.signal(), Some(Signal::TERM));
        // The same signal within this time is one signal.
        std::thread::sleep(2 * Signal::ECHO);
        assert_eq!(json(&ask(addr, "GET", "/shutdown", "").1)["stage"], "shutting-down");
        assert_eq!(ask(addr, "POST", "/shutdown", "").0, 202);
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
        tokio::task::block_in_place(|| json(&ask(addr, "GET", "/shutdown", "").1))
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
fn s98_a_port_that_cannot_be_is_refused_with_the_reason() {
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
async fn s97_it_says_how_many_are_in_flight_and_how_it_ended_to_who_waits_for_that() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    shutdown.started();
    let (orders, mails) = (shutdown.gate("orders").unwrap(), shutdown.gate("mails").unwrap());
    let inside = [orders.enter(), orders.enter(), mails.enter()];
    tokio::task::block_in_place(|| {
        let status = json(&ask(addr, "GET", "/shutdown", "").1);
        assert_eq!(status["in_flight"], 3, "{status}");
        let gates = serde_json::json!([
            { "name": "orders", "in_flight": 2 },
            { "name": "mails", "in_flight": 1 },
        ]);
        assert_eq!(status["gates"], gates);
        let mut waiting = TcpStream::connect(addr).unwrap();
        waiting.set_read_timeout(Some(PATIENCE)).unwrap();
        waiting.write_all(b"GET /shutdown?until=over HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        // Who came later has been answered, so who came first is being.
        assert_eq!(ask(addr, "GET", "/livez", "").0, 200);
        let run = shutdown.run(Reason::Unknown);
        drop(inside);
        run.wait().unwrap();
        // The port is closed at once, as it is at the end of a process.
        drop(admin);
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).unwrap();
        let status = json(answer.split_once("\r\n\r\n").unwrap_or_default().1);
        assert_eq!(status["report"]["exit_code"], 0, "{answer}");
        assert_eq!(status["in_flight"], 0);
    });
}

/// None of what comes in can hold it up: neither the port itself, nor the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s99_bad_input_holds_up_nothing() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.metrics(|| "x".repeat(32 << 20)).start().unwrap();
    let addr = admin.local_addr();
    tokio::task::block_in_place(|| {
        let status = |answer: String| answer.split(' ').nth(1).map(str::to_owned);
        assert_eq!(status(say(addr, "\x16\x03\x01 what is this\r\n\r\n")).as_deref(), Some("400"));
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
        assert_eq!(status(say(addr, long)).as_deref(), Some("431"));
        let length = "POST /cordon HTTP/1.1\r\nhost: x\r\ncontent-length: -7\r\n\r\n";
        assert_eq!(status(say(addr, length)).as_deref(), Some("400"));
        assert_eq!(ask(addr, "GET", "/%00%ff/../../etc/passwd", "").0, 404);

        // One that does not read, and a thousand that do not speak.
        let mut deaf = TcpStream::connect(addr).unwrap();
        deaf.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let idle: Vec<_> = (0..1_000).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let began = Instant::now();
        assert_eq!(ask(addr, "GET", "/livez", "").0, 200);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let report = shutdown.run(Reason::Unknown).wait().unwrap();
        assert!(report.is_clean());
        assert!(report.took < Duration::from_secs(2), "{report}");
        let began = Instant::now();
        drop(admin);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        drop((deaf, idle));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s219_where_a_token_is_required_nothing_but_probes_is_told_without_it() {
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
                let (code, body) = ask(addr, "GET", path, headers);
                assert_eq!(code, 401, "{path}: {body}");
                assert!(!body.contains("stage") && !body.contains("up 1"), "{body}");
            }
        }
        assert_eq!(ask(addr, "GET", "/shutdown", right).0, 200);
        assert!(ask(addr, "GET", "/metrics", right).1.ends_with("\nup 1\n"));
        assert_eq!(ask(addr, "GET", "/livez", "").0, 200, "platforms have no token");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s220_what_a_browser_or_a_proxy_sends_changes_nothing_without_a_token() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.token("correct horse battery").unwrap().start().unwrap();
    let addr = admin.local_addr();
    shutdown.started();
    tokio::task::block_in_place(|| {
        for header in [
            "sec-fetch-site: cross-site",
            "sec-fetch-site: same-site",
            "x-forwarded-for: 203.0.113.7",
            "x-real-ip: 203.0.113.7",
            "forwarded: for=203.0.113.7",
            "via: 1.1 proxy",
        ] {
            for path in ["/cordon", "/shutdown"] {
                let (code, body) = ask(addr, "POST", path, &format!("{header}\r\n"));
                assert_eq!(code, 403, "{header}: {body}");
            }
            assert_eq!(shutdown.readiness(), Readiness::Ready, "{header}");
            let with_token = format!("authorization: Bearer correct horse battery\r\n{header}\r\n");
            assert_eq!(ask(addr, "POST", "/cordon", &with_token).0, 200);
            assert!(shutdown.uncordon());
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s221_a_cordon_begins_with_a_lame_duck_unless_it_is_to_be_now() {
    let duck = Duration::from_millis(600);
    let config = Config::for_tests().lame_duck(duck).lame_duck_min(duck);
    let shutdown = Shutdown::configured(config).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let orders = shutdown.gate("orders").unwrap();
    shutdown.started();
    tokio::task::block_in_place(|| {
        let began = Instant::now();
        let stands = json(&ask(addr, "POST", "/cordon", "").1);
        assert_eq!(
            (&stands["readiness"], &stands["admitting"]),
            (&"cordoned".into(), &true.into())
        );
        assert!(orders.enter().is_ok(), "routers do not know yet");
        while orders.enter().is_ok() {
            assert!(began.elapsed() < PATIENCE, "it should refuse in the end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(began.elapsed() >= duck, "{:?}", began.elapsed());
        assert_eq!(json(&ask(addr, "GET", "/shutdown", "").1)["admitting"], false);

        assert_eq!(json(&ask(addr, "POST", "/uncordon", "").1)["admitting"], true);
        let stands = json(&ask(addr, "POST", "/cordon?now=true", "").1);
        assert_eq!(stands["admitting"], false, "{stands}");
        assert!(orders.enter().is_err());
        // One that is taken back in its lame duck stays taken back.
        assert!(shutdown.uncordon());
        ask(addr, "POST", "/cordon", "");
        assert_eq!(json(&ask(addr, "POST", "/uncordon", "").1)["readiness"], "ready");
        std::thread::sleep(duck + Duration::from_millis(200));
        assert!(orders.enter().is_ok());
    });
    let report = tokio::time::timeout(PATIENCE, shutdown.run(Reason::Unknown)).await.unwrap();
    assert!(report.unwrap().is_clean());
}
