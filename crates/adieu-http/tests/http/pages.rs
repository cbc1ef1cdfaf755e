//! The pages that adapters publish on the admin port.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use adieu_core::adapter::{Command, CommandError, Metrics, Page, publish};
use adieu_core::{Config, Shutdown};
use adieu_http::Admin;
use serde_json::{Value, json};

use super::admin::{json, request, start};

/// A counter that operators can set.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Page for Counter {
    fn status(&self) -> Value {
        json!({ "count": self.0.load(Ordering::Relaxed) })
    }

    fn commands(&self) -> &'static [(&'static str, &'static str)] {
        &[("set", "sets the counter; ?to=NUMBER")]
    }

    fn run(&self, command: &Command) -> Result<Value, CommandError> {
        let to = command.required("to")?;
        let to: u64 =
            to.parse().map_err(|_| CommandError::invalid(format!("{to} is no number")))?;
        match to {
            0..10 => self.0.store(to, Ordering::Relaxed),
            10..100 => return Err(CommandError::refused("too high")),
            _ => return Err(CommandError::failed("far too high")),
        }
        Ok(self.status())
    }

    fn metrics(&self, metrics: &mut Metrics) {
        let count = self.0.load(Ordering::Relaxed);
        metrics.gauge("count", "The count.").sample(&[], count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s850_a_published_page_has_a_status_commands_and_metrics() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    tokio::task::block_in_place(|| {
        assert_eq!(request(addr, "GET", "/counter", "").0, 404);
        publish(&shutdown, "counter", Counter::default()).unwrap();
        assert_eq!(json(&request(addr, "GET", "/counter", "").1), json!({ "count": 0 }));
        let (code, body) = request(addr, "POST", "/counter/set?to=%37", "");
        assert_eq!((code, json(&body)), (200, json!({ "count": 7 })));
        assert_eq!(json(&request(addr, "GET", "/counter", "").1), json!({ "count": 7 }));
        let metrics = request(addr, "GET", "/metrics", "").1;
        let family = "# HELP count The count.\n# TYPE count gauge\ncount 7\n";
        assert!(metrics.contains(family) && metrics.contains("adieu_ready 0\n"), "{metrics}");

        let set = |query: &str| {
            let (code, body) = request(addr, "POST", &format!("/counter/set{query}"), "");
            (code, json(&body)["error"].as_str().unwrap().to_owned())
        };
        assert_eq!(set(""), (400, "set needs ?to=…".into()));
        assert_eq!(set("?to=x"), (400, "x is no number".into()));
        assert_eq!(set("?to=50"), (409, "too high".into()));
        assert_eq!(set("?to=500"), (503, "far too high".into()));
        assert_eq!(request(addr, "POST", "/counter/other", "").0, 404);
        assert_eq!(request(addr, "POST", "/counter", "").0, 405);
        assert_eq!(request(addr, "GET", "/counter/set?to=1", "").0, 405);
        let index = request(addr, "GET", "/", "").1;
        assert!(index.contains("GET  /counter "), "{index}");
        assert!(index.contains("POST /counter/set ") && index.contains("?to=NUMBER"), "{index}");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s851_a_published_page_has_the_access_rules_of_the_shutdown() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    publish(&shutdown, "counter", Counter::default()).unwrap();
    let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap();
    let admin = admin.token("correct horse battery").unwrap().require_token().start().unwrap();
    let local = start(&shutdown);
    tokio::task::block_in_place(|| {
        let right = "authorization: Bearer correct horse battery\r\n";
        let addr = admin.local_addr();
        assert_eq!(request(addr, "GET", "/counter", "").0, 401);
        assert_eq!(request(addr, "GET", "/counter", right).0, 200);
        assert_eq!(request(addr, "POST", "/counter/set?to=1", "").0, 401);
        assert_eq!(request(addr, "POST", "/counter/set?to=2", right).0, 200);

        let addr = local.local_addr();
        let page = "origin: http://evil.example\r\n";
        assert_eq!(request(addr, "POST", "/counter/set?to=3", page).0, 403);
        let proxy = "x-forwarded-for: 10.0.0.7\r\n";
        assert_eq!(request(addr, "POST", "/counter/set?to=4", proxy).0, 403);
        assert_eq!(json(&request(addr, "GET", "/counter", "").1), json!({ "count": 2 }));
    });
}

/// A page whose methods panic, or block until they are released.
struct Bad {
    called: Mutex<Sender<()>>,
    release: Option<Mutex<Receiver<()>>>,
}

impl Bad {
    fn fail(&self) {
        let _ = self.called.lock().unwrap().send(());
        match &self.release {
            Some(release) => drop(release.lock().unwrap().recv()),
            None => panic!("on request"),
        }
    }
}

impl Page for Bad {
    fn status(&self) -> Value {
        self.fail();
        Value::Null
    }

    fn commands(&self) -> &'static [(&'static str, &'static str)] {
        &[("go", "fails")]
    }

    fn run(&self, _: &Command) -> Result<Value, CommandError> {
        self.fail();
        Ok(Value::Null)
    }

    fn metrics(&self, _: &mut Metrics) {
        self.fail();
    }
}

#[test]
fn s852_a_page_that_panics_or_blocks_fails_only_its_own_requests() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let admin = start(&shutdown);
    let addr = admin.local_addr();
    let (called, is_called) = channel();
    let (release, released) = channel();
    let panics = Bad { called: Mutex::new(channel().0), release: None };
    let blocks = Bad { called: Mutex::new(called), release: Some(Mutex::new(released)) };
    publish(&shutdown, "panics", panics).unwrap();
    publish(&shutdown, "blocks", blocks).unwrap();
    publish(&shutdown, "counter", Counter::default()).unwrap();

    assert_eq!(request(addr, "GET", "/panics", "").0, 500);
    let (code, body) = request(addr, "POST", "/panics/go", "");
    assert_eq!(code, 500, "{body}");

    // More requests than threads that a page may use.
    let request_it = || std::thread::spawn(move || request(addr, "GET", "/blocks", ""));
    let blocked: Vec<_> = (0..9).map(|_| request_it()).collect();
    is_called.recv().unwrap();
    assert_eq!(request(addr, "GET", "/livez", "").0, 200);
    assert_eq!(request(addr, "GET", "/counter", "").0, 200);
    assert_eq!(request(addr, "POST", "/counter/set?to=1", "").0, 200);
    let metrics = request(addr, "GET", "/metrics", "").1;
    assert!(metrics.contains("# metrics of panics: panicked\n"), "{metrics}");
    assert!(metrics.contains("# metrics of blocks: no answer within 2 s\n"), "{metrics}");
    assert!(metrics.contains("\ncount 1\n"), "{metrics}");
    for blocked in blocked {
        assert_eq!(blocked.join().unwrap().0, 504);
    }
    // Four of the calls have started. The others were given up before they could.
    assert_eq!(is_called.try_iter().count() + 1, 4);
    drop(release);
    assert_eq!(request(addr, "GET", "/blocks", "").0, 200, "the page has recovered");
}
