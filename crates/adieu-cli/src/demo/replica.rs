//! One replica of the order service, as a process: built with adieu, or, for comparison, with the
//! graceful shutdown of axum.
//!
//! The replica prints its addresses as a line of JSON, and ends when its standard input is closed,
//! because then the demo has ended.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use adieu::actors::{ActorSystem, kameo as on_kameo};
use adieu::fleet::{Files, Lock, LockSpec, OtherReplicas, Owner};
use adieu::http::{Admin, BoxError, Probes, serve};
use adieu::{
    Config, Consumer, CustomReason, DeploymentProfile, JobCx, KillAfter, Lifecycle, Outcome, Phase,
    Reason, Runner, Shutdown, Source, Step,
};
use clap::ValueEnum;
use kameo::actor::Spawn;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::KILL_AFTER;
use super::shop::{Desk, SHIPPING, pages};
use super::spool::Spool;

/// The longest time that closing takes.
const BRIEF: Duration = Duration::from_millis(500);

/// One replica of the demo.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The library that it is built with.
    #[arg(long, value_enum)]
    pub(super) kind: Kind,
    /// The name of the replica.
    #[arg(long)]
    pub(super) name: String,
    /// The folder that the fleet shares.
    #[arg(long)]
    pub(super) folder: PathBuf,
    /// The file for the report.
    #[arg(long)]
    pub(super) report: PathBuf,
}

/// The library that a replica is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// adieu.
    Adieu,
    /// `axum::serve` with its own graceful shutdown.
    Plain,
    /// A node of a cluster, with adieu.
    Cluster,
    /// Entities on the node that a hash over the live nodes names, without a hand-off.
    Rehash,
}

/// The addresses of a replica: its first line of output.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Listens {
    pub(super) http: SocketAddr,
    pub(super) admin: Option<SocketAddr>,
}

/// Runs a replica that is built with adieu.
pub(super) fn run(args: Args) -> ExitCode {
    Runner::new()
        .config(config(&args))
        .worker_threads(1)
        .run(async move |shutdown| with_adieu(&shutdown, args).await)
}

// === impl Kind ===

impl Kind {
    /// Returns the name for the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Adieu => "adieu",
            Self::Plain => "plain",
            Self::Cluster => "cluster",
            Self::Rehash => "rehash",
        }
    }

    /// Returns the prefix of the names of the replicas.
    pub(super) fn service(self) -> &'static str {
        match self {
            Self::Adieu | Self::Plain => "orders",
            Self::Cluster | Self::Rehash => "carts",
        }
    }

    /// Returns the title of a fleet.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Adieu | Self::Cluster => "adieu",
            Self::Plain => "plain axum::serve",
            Self::Rehash => "naive re-hashing",
        }
    }
}

/// Divides the grace period among the phases. `strict` makes it an error if they do not fit.
fn config(args: &Args) -> Config {
    Config::new()
        .kill_after(KillAfter::After(KILL_AFTER))
        .reserve(Duration::from_secs(1))
        .strict(true)
        .lame_duck(Duration::from_millis(1_500))
        .default_phase_timeout(BRIEF)
        .phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_secs(2))
        .phase_timeout(Phase::ACTOR_SYSTEM_TERMINATE, BRIEF)
        .report_file(&args.report)
}

async fn with_adieu(shutdown: &Shutdown, args: Args) -> Result<(), BoxError> {
    let Args { kind: _, name, folder, report: _ } = args;
    let spool = Arc::new(Spool::open(&folder.join("spool"))?);

    // The first replica of the fleet writes the file, and the others wait until it is written.
    let locks = Arc::new(Files::open(folder.join("locks"))?);
    let lock = Lock::new(locks, LockSpec::new("sign"), &Owner::new(&name)?)?;
    let sign = folder.join("sign");
    let open = Step::new("sign")
        .mutates_shared_state()
        .stop_timeout(BRIEF)
        .start(async move |_| if sign.exists() { Ok(()) } else { std::fs::write(sign, "open\n") });
    let lifecycle = Lifecycle::builder()
        .profile(DeploymentProfile::Fleet)
        .step(lock.singleton_step(open, OtherReplicas::Wait, Duration::from_secs(5)))
        .build()?;

    let system = ActorSystem::on(shutdown, "shop")?;
    let admin = Admin::new(shutdown).name(&name).bind("127.0.0.1:0")?.start()?;
    let desk = Desk { replica: name, spool: Arc::clone(&spool), taken: 0 };
    let desk = system.spawn("desk", on_kameo::actor::<Desk>(desk)).await?;
    let parcels = move || {
        let spool = Arc::clone(&spool);
        async move { Ok::<_, std::io::Error>(Parcels { spool }) }
    };
    shutdown.add_consumer(Consumer::new("shipping").concurrency(4), parcels, ship)?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let listens = Listens { http: listener.local_addr()?, admin: Some(admin.local_addr()) };
    shutdown.keep_until_exit(admin);
    print(&listens)?;
    lifecycle.start(shutdown).await?;
    let app = pages(desk.actor_ref().clone());
    let served = serve(listener, app, shutdown).probes(Probes::new(shutdown)).into_future();
    tokio::select! {
        served = served => Ok(served?),
        never = stop_when_abandoned(shutdown) => match never? {},
    }
}

/// Begins the shutdown when the demo that started this replica has gone.
pub(super) async fn stop_when_abandoned(shutdown: &Shutdown) -> std::io::Result<Infallible> {
    abandoned().await?;
    drop(shutdown.run(Reason::from(Abandoned)));
    Ok(std::future::pending().await)
}

/// The demo that started the replica has gone.
#[derive(Debug, PartialEq)]
struct Abandoned;

impl CustomReason for Abandoned {
    fn name(&self) -> &str {
        "abandoned"
    }
}

/// The orders to ship, as a broker would deliver them.
struct Parcels {
    spool: Arc<Spool>,
}

impl Source for Parcels {
    type Job = String;
    type Error = std::io::Error;

    async fn take(&mut self) -> Result<Option<Vec<String>>, Self::Error> {
        loop {
            let taken = self.spool.take(8)?;
            if !taken.is_empty() {
                return Ok(Some(taken));
            }
            tokio::time::sleep(SHIPPING).await;
        }
    }

    async fn done(&mut self, number: &String, outcome: &Outcome) -> Result<(), Self::Error> {
        if *outcome == Outcome::Finished {
            self.spool.ship(number)
        } else {
            self.spool.put_back(number)
        }
    }

    async fn on_interrupted(&mut self, number: &String) -> Result<(), Self::Error> {
        self.spool.put_back(number)
    }

    async fn release(&mut self, numbers: Vec<String>) -> Result<(), Self::Error> {
        numbers.iter().try_for_each(|number| self.spool.put_back(number))
    }
}

async fn ship(_: Arc<String>, _: JobCx) {
    tokio::time::sleep(SHIPPING).await;
}

/// Runs a replica that is not built with adieu.
pub(super) fn run_plainly(serving: impl Future<Output = std::io::Result<()>>) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let served = runtime.and_then(|runtime| runtime.block_on(serving));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "failed to serve: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the same shop as axum's documentation shows it.
pub(super) async fn serve_plainly(args: Args) -> std::io::Result<()> {
    let Args { kind: _, name, folder, report: _ } = args;
    let spool = Arc::new(Spool::open(&folder.join("spool"))?);
    let desk = Desk { replica: name, spool: Arc::clone(&spool), taken: 0 };
    let app = pages(Desk::spawn(desk)).route("/readyz", axum::routing::get(async || "ready"));
    let mut shipping = JoinSet::new();
    for _ in 0..4 {
        shipping.spawn(ship_plainly(Arc::clone(&spool)));
    }
    serve_with_axum(app).await
}

/// Serves with the graceful shutdown of axum.
pub(super) async fn serve_with_axum(app: axum::Router) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let signalled = async move {
        terminate.recv().await;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    print(&Listens { http: listener.local_addr()?, admin: None })?;
    tokio::select! {
        served = axum::serve(listener, app).with_graceful_shutdown(signalled).into_future() => served,
        abandoned = abandoned() => abandoned,
    }
}

async fn ship_plainly(spool: Arc<Spool>) -> std::io::Result<()> {
    loop {
        for number in spool.take(1)? {
            tokio::time::sleep(SHIPPING).await;
            spool.ship(&number)?;
        }
        tokio::time::sleep(SHIPPING).await;
    }
}

pub(super) fn print(listens: &Listens) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, listens)?;
    writeln!(out)?;
    out.flush()
}

/// Waits until the other end of the input is closed.
async fn abandoned() -> std::io::Result<()> {
    let input = pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    loop {
        input.readable().await?;
        match input.try_read(&mut [0; 64]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
