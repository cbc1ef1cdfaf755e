//! Measures the cost of serving with a drain, as ratios to bare `axum::serve`: the server's processor
//! time for each request of a hello handler, and requests per second. The load comes from `wrk`, over
//! kept-alive connections. `wrk` has one core, the server the other.

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
            ("processor time for a request", || against_axum(Server::processor_time_of)),
            ("time between two answers", || against_axum(Server::between_answers)),
        ],
        &[
            Claim {
                what: "processor time for a request, against bare axum::serve",
                ours: "processor time for a request",
                against: None,
                per: (1.0, 1.0),
                at_most: 1.05,
            },
            Claim {
                what: "time between two answers under full load, against bare axum::serve",
                ours: "time between two answers",
                against: None,
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

/// Runs a program on one core: migrations between cores would disturb the measurement.
fn on_core(core: &str, program: &std::path::Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", core]).arg(program);
    command
}

/// A server in a process of its own, so that only its processor time is counted.
struct Server {
    child: Child,
    addr: String,
}

impl Server {
    fn start(kind: &str) -> Self {
        let me = std::env::current_exe().expect("this program");
        let mut child = on_core("0", &me)
            .args(["server", kind])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server");
        let mut addr = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut addr).expect("an address");
        let server = Self { child, addr: addr.trim().to_owned() };
        server.load("1s"); // Warms up.
        server
    }

    /// Loads the server for a while. Returns the number of answers, and of answers per second.
    fn load(&self, duration: &str) -> (f64, f64) {
        let output = on_core("1", "wrk".as_ref())
            .args(["--threads", "1", "--connections", "32", "--duration", duration])
            .arg(format!("http://{}/", self.addr))
            .output()
            .expect("wrk, from the package of that name");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("errors") && !text.contains("Non-2xx"), "{text}");
        let number = |figure: &str| figure.trim().parse::<f64>().expect("a number");
        let requests = text.lines().find(|line| line.contains(" requests in ")).expect("a count");
        let requests = requests.split_whitespace().next().map(number).expect("a count");
        let second = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        (requests, second.map(number).expect("a rate"))
    }

    /// Returns the inverse of requests per second.
    fn between_answers(&self) -> f64 {
        self.load("1s").1.recip()
    }

    /// Returns the processor time of one request, in nanoseconds.
    fn processor_time_of(&self) -> f64 {
        let before = self.processor_time();
        let (requests, _) = self.load("1s");
        (self.processor_time() - before) / requests
    }

    /// Returns the processor time that the process has used so far, in nanoseconds.
    fn processor_time(&self) -> f64 {
        // The scheduler's own count for each thread is finer than the ticks in `stat`.
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

/// Measures both servers in turn, each for a second, and returns the mean of the ratios. The order
/// alternates, so that other load on the machine affects both alike.
fn against_axum(measure: fn(&Server) -> f64) -> f64 {
    let (ours, theirs) = (Server::start("adieu"), Server::start("axum"));
    let mut ratios: Vec<f64> = (0..8)
        .map(|turn| {
            if turn % 2 == 0 {
                let ours = measure(&ours);
                ours / measure(&theirs)
            } else {
                let theirs = measure(&theirs);
                measure(&ours) / theirs
            }
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    // Without the least and the greatest, which are outliers of the machine.
    let kept = &ratios[1..7];
    (kept.iter().map(|ratio| ratio.ln()).sum::<f64>() / kept.len() as f64).exp()
}
