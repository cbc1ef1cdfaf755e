//! `adieu demo`: a fleet on this machine, under load, restarted replica by replica.

pub(crate) mod cluster;
mod drawing;
mod fleet;
mod frame;
mod link;
mod load;
mod member;
pub(crate) mod replica;
mod result;
mod shop;
mod spool;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use adieu::{Config, KillAfter, Phase, Reason, Shutdown, TaskCx};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ending::{Failure, Printout, exit_code};
use crate::fit::output_width;
use crate::screen::Screen;
use adieu_core::adapter::error_text;
use fleet::Fleet;
use frame::{Changes, View};
use load::Load;
use replica::Kind;
use result::Outcome;
use spool::Spool;

/// The time of a replica between SIGTERM and SIGKILL. `docker stop` allows the same.
const KILL_AFTER: Duration = Duration::from_secs(10);
/// How long the load runs before the first restart, and after the last.
const STEADY: Duration = Duration::from_secs(1);
/// How long the last orders may take to be shipped.
const LAST_ORDERS: Duration = Duration::from_secs(5);
/// How often the screen is drawn.
const FRAME: Duration = Duration::from_millis(100);

/// Restart a fleet under load on this machine, and count failed requests and lost orders.
///
/// Starts replicas of a small order service as processes, sends them requests over kept-alive
/// connections, and replaces every replica: the new one is ready, then the old one gets SIGTERM.
/// No request is retried, so each one that is dropped counts as failed.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_help_heading = "More demos",
    subcommand_value_name = "DEMO"
)]
#[command(after_help = "\
Examples:
  adieu demo
  adieu demo --compare
  adieu demo --replicas 5 --rate 1000 --duration 20s
  adieu demo cluster --compare
  adieu demo --json --report-dir reports | jq .failed

Exit codes: 0 nothing was lost; 1 a request failed, an order was lost, or a replica ended badly;
3 the fleet could not be started; 130 you pressed Ctrl-C. With --compare, losses of the plain
server do not count.")]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// The number of replicas.
    #[arg(long, value_name = "N", default_value_t = Args::default().replicas, value_parser = clap::value_parser!(u8).range(1..=20))]
    replicas: u8,
    /// The number of requests in a second.
    #[arg(long, value_name = "N", default_value_t = Args::default().rate, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: u32,
    /// How long the load runs; longer if the restarts take longer.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = crate::check::span_argument)]
    duration: Duration,
    /// Run a second fleet at the same time, with plain `axum::serve` and its graceful shutdown.
    #[arg(long)]
    compare: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Keep the reports and logs of the replicas in this folder.
    #[arg(long, value_name = "FOLDER")]
    report_dir: Option<PathBuf>,
}

/// The other demos.
#[derive(clap::Subcommand)]
enum Other {
    Cluster(cluster::Args),
}

/// A fleet and the load on it.
#[derive(Clone, Debug)]
struct LoadedFleet {
    fleet: Arc<Fleet>,
    load: Arc<Load>,
    spool: Arc<Spool>,
}

// === impl Args ===

impl Default for Args {
    fn default() -> Self {
        Self {
            other: None,
            replicas: 3,
            rate: 500,
            duration: Duration::from_secs(15),
            compare: false,
            json: false,
            report_dir: None,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Printout, Failure> {
    match &args.other {
        Some(Other::Cluster(args)) => crate::ending::block_on(cluster::run(args)),
        None => crate::ending::block_on(run_demo(args)),
    }
}

/// Runs a process of a demo.
pub(crate) fn run_replica(args: replica::Args) -> ExitCode {
    match args.kind {
        Kind::Adieu => replica::run(args),
        Kind::Plain => replica::run_plainly(replica::serve_plainly(args)),
        Kind::Cluster => cluster::node::run(args),
        Kind::Rehash => replica::run_plainly(cluster::rehash::serve(args)),
    }
}

async fn run_demo(args: &Args) -> Result<Printout, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::unable(error.to_string()))?;
    let began = Instant::now();
    let loaded = |kind: Kind, name: &str| {
        let reports = args.report_dir.as_deref().unwrap_or(folder.path()).join(name);
        let shared = folder.path().join(format!("{name}-shared"));
        let spool =
            std::fs::create_dir_all(&reports).and_then(|()| Spool::open(&shared.join("spool")));
        let spool = Arc::new(spool.map_err(|error| unusable(&reports, &error))?);
        let fleet = Arc::new(Fleet::new(kind, args.replicas.into(), shared, reports, began));
        let load = Arc::new(Load::new(Arc::clone(&fleet), args.rate));
        Ok::<_, Failure>(LoadedFleet { fleet, load, spool })
    };
    let mut fleets = vec![loaded(Kind::Adieu, "adieu")?];
    if args.compare {
        fleets.push(loaded(Kind::Plain, "plain")?);
    }

    let ended: Vec<_> = fleets.iter().map(|it| Arc::clone(&it.fleet)).collect();
    let shutdown = demo_shutdown(&ended).map_err(|error| Failure::unable(error_text(&*error)))?;
    let work = run_fleets(&fleets, args.duration);
    let is_interrupted =
        run_watched(&shutdown, work, args.json, || View::of(&fleets, began)).await?;
    let outcomes: Vec<Outcome> = fleets.iter().map(Outcome::of).collect();
    let text = match args.json {
        true => result::json(&outcomes),
        false => {
            let reports = args.report_dir.as_deref();
            result::table(&outcomes, is_interrupted, reports, output_width())
        }
    };
    let is_well = outcomes.first().is_some_and(Outcome::is_well);
    Ok(Printout { text, code: code_of(is_interrupted, is_well) })
}

/// Runs a demo until its work ends or Ctrl-C arrives, and then stops its processes. Shows the progress
/// meanwhile. Returns whether Ctrl-C has interrupted the work.
async fn run_watched(
    shutdown: &Shutdown,
    work: impl Future<Output = Result<(), Failure>>,
    is_json: bool,
    view: impl Fn() -> View,
) -> Result<bool, Failure> {
    let running = async {
        let ran = tokio::select! {
            biased;
            _ = shutdown.begun() => Ok(()),
            ran = work => ran,
        };
        let is_interrupted = shutdown.reason().is_some();
        // At the end and at Ctrl-C, the processes are stopped in the same way.
        let ended = shutdown.run(Reason::ProcessExit).await;
        ran?;
        ended.map_err(|error| Failure::unable(error_text(&error)))?;
        Ok::<_, Failure>(is_interrupted)
    };
    let mut progress = Progress::new(is_json);
    let is_interrupted = tokio::select! {
        ran = running => ran?,
        () = progress.go_on(&view) => false,
    };
    progress.end(&view);
    Ok(is_interrupted)
}

fn code_of(is_interrupted: bool, is_well: bool) -> u8 {
    match (is_interrupted, is_well) {
        (true, _) => exit_code::INTERRUPTED,
        (false, true) => exit_code::SUCCESS,
        (false, false) => exit_code::NO,
    }
}

fn unusable(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("failed to use the folder {}: {error}", folder.display()))
}

/// Returns the shutdown of the demo. It signals the replicas to stop and waits for them, at the end
/// and at Ctrl-C. A second Ctrl-C kills them.
fn demo_shutdown(
    fleets: &[Arc<Fleet>],
) -> Result<Shutdown, Box<dyn std::error::Error + Send + Sync>> {
    let most = KILL_AFTER + Duration::from_secs(2);
    let config = Config::new()
        .kill_after(KillAfter::Never)
        .lame_duck(Duration::ZERO)
        .phase_timeout(Phase::SERVICE_STOP, most);
    let shutdown = Shutdown::configured(config)?;
    for fleet in fleets {
        let fleet = Arc::clone(fleet);
        let name = format!("end the replicas of {:?}", fleet.kind);
        shutdown.add_task(Phase::SERVICE_STOP, name, async move |cx: TaskCx| {
            if cx.token().run_until_cancelled(fleet.end()).await.is_none() {
                fleet.kill();
                fleet.end().await;
            }
        })?;
    }
    shutdown.install_signals()?;
    Ok(shutdown)
}

async fn run_fleets(fleets: &[LoadedFleet], duration: Duration) -> Result<(), Failure> {
    match fleets {
        [one] => run_fleet(one, duration).await,
        [one, two] => {
            tokio::try_join!(run_fleet(one, duration), run_fleet(two, duration)).map(|_| ())
        }
        _ => Ok(()),
    }
}

/// Starts a fleet and the load on it, restarts every replica, and ends them.
async fn run_fleet(loaded: &LoadedFleet, duration: Duration) -> Result<(), Failure> {
    let LoadedFleet { fleet, load, spool } = loaded;
    fleet.start().await?;
    let stop = CancellationToken::new();
    let restarting = async {
        let (begins, ends) = (Instant::now() + STEADY, Instant::now() + duration);
        // The restarts are spread over the duration of the load.
        let apart = duration.saturating_sub(2 * STEADY) / u32::try_from(fleet.size()).unwrap_or(1);
        let restarted = fleet.restart(begins, apart).await;
        if restarted.is_ok() {
            tokio::time::sleep_until(ends.max(Instant::now() + STEADY)).await;
        }
        stop.cancel();
        restarted
    };
    let ((), restarted) = tokio::join!(Arc::clone(load).run(stop.clone()), restarting);
    restarted?;
    // The last orders are shipped before the replicas are stopped.
    let shipped = async {
        while spool.count().is_ok_and(|orders| orders.waiting + orders.in_progress > 0) {
            tokio::time::sleep(FRAME).await;
        }
    };
    let _ = tokio::time::timeout(LAST_ORDERS, shipped).await;
    fleet.end().await;
    Ok(())
}

/// Shows the progress: bars at a terminal, otherwise a line for each change, and nothing with
/// `--json`.
enum Progress {
    Bars(Screen),
    Lines(Changes),
    Nothing,
}

// === impl Progress ===

impl Progress {
    fn new(is_for_programs: bool) -> Self {
        match Screen::beside() {
            screen if screen.is_terminal() => Self::Bars(screen),
            _ if is_for_programs => Self::Nothing,
            _ => Self::Lines(Changes::default()),
        }
    }

    async fn go_on(&mut self, view: impl Fn() -> View) {
        let mut frames = tokio::time::interval(FRAME);
        loop {
            frames.tick().await;
            let view = view();
            match self {
                // If the terminal cannot be written to, the demo continues.
                Self::Bars(screen) => drop(screen.show(&view.frame(screen.columns()))),
                Self::Lines(changes) => changes.print(&view),
                Self::Nothing => {}
            }
        }
    }

    /// Clears the bars, so that the result takes their place.
    fn end(mut self, view: impl Fn() -> View) {
        match &mut self {
            Self::Bars(screen) => drop(screen.clear()),
            Self::Lines(changes) => changes.print(&view()),
            Self::Nothing => {}
        }
    }
}
