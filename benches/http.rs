//! What serving with a drain costs, against bare `axum::serve`: the server's processor time for
//! each request of a hello handler, in nanoseconds, and requests per second. The load comes from
//! `wrk`, over kept-alive connections.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use adieu_benches::{Claim, main as bench};
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("server") {
        return match args.next().as_deref() {
            Some("adieu") => adieu::main(adieu_server),
            _ => axum_server(),
        };
    }
    bench(
        "http",
        9,
        &[
            ("processor time: adieu", || processor_time("adieu")),
            ("processor time: axum", || processor_time("axum")),
            ("requests per second: adieu", || per_second("adieu")),
            ("requests per second: axum", || per_second("axum")),
        ],
        &[
            Claim {
                what: "processor time for a request, against bare axum::serve",
                ours: "processor time: adieu",
                against: Some("processor time: axum"),
                per: (1.0, 1.0),
                at_most: 1.05,
            },
            Claim {
                what: "requests per second of bare axum::serve, against ours",
                ours: "requests per second: axum",
                against: Some("requests per second: adieu"),
                per: (1.0, 1.0),
                at_most: 1.0 / 0.97,
            },
        ],
    );
    std::process::ExitCode::SUCCESS
}

fn app() -> Router {
    Router::new().route("/", get(async || "hello"))
}

async fn listen() -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(listener)
}

async fn adieu_server(shutdown: adieu::Shutdown) -> Result<(), adieu::http::BoxError> {
    let probes = adieu::http::Probes::new(&shutdown);
    adieu::http::serve(listen().await?, app(), &shutdown).probes(probes).await?;
    Ok(())
}

#[tokio::main]
async fn axum_server() -> std::process::ExitCode {
    let served = async { axum::serve(listen().await?, app()).await };
    served.await.map_or(std::process::ExitCode::FAILURE, |()| std::process::ExitCode::SUCCESS)
}

/// A server in a process of its own, so that only what it does is counted.
struct Server {
    child: Child,
    addr: String,
}

impl Server {
    fn start(kind: &str) -> Self {
        let me = std::env::current_exe().expect("this program");
        let mut child = Command::new(me)
            .args(["server", kind])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server");
        let mut addr = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut addr).expect("an address");
        let server = Self { child, addr: addr.trim().to_owned() };
        server.load("1s"); // Warm.
        server
    }

    /// Asks without a pause for a while; how many were answered, and how many in a second.
    fn load(&self, duration: &str) -> (f64, f64) {
        let output = Command::new("wrk")
            .args(["--threads", "1", "--connections", "32", "--duration", duration])
            .arg(format!("http://{}/", self.addr))
            .output()
            .expect("wrk, from the package of that name");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("errors") && !said.contains("Non-2xx"), "{said}");
        let number = |text: &str| text.trim().parse::<f64>().expect("a number");
        let requests = said.lines().find(|line| line.contains(" requests in ")).expect("a count");
        let requests = requests.split_whitespace().next().map(number).expect("a count");
        let second = said.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        (requests, second.map(number).expect("a rate"))
    }

    /// How much processor time it has taken so far, in nanoseconds.
    fn processor_time(&self) -> f64 {
        // Finer than the ticks in `stat`: the scheduler's own count, thread by thread.
        let tasks = format!("/proc/{}/task", self.child.id());
        let of = |task: std::io::Result<std::fs::DirEntry>| -> Option<f64> {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        std::fs::read_dir(tasks).expect("its threads").filter_map(of).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn processor_time(kind: &str) -> f64 {
    let server = Server::start(kind);
    let before = server.processor_time();
    let (requests, _) = server.load("2s");
    (server.processor_time() - before) / requests
}

fn per_second(kind: &str) -> f64 {
    Server::start(kind).load("2s").1
}
