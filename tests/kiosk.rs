//! A service that follows the documents: axum accepts orders, kameo actors process them, a Postgres
//! pool stores them, and a consumer takes further orders from a queue.
//!
//! `kiosk DATABASE QUEUE_FOLDER`

#[path = "kiosk/pool.rs"]
mod pool;
#[path = "kiosk/queue.rs"]
mod queue;
#[path = "kiosk/staff.rs"]
mod staff;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use adieu::actors::ActorSystem;
use adieu::actors::kameo::{Ref, actor};
use adieu::http::{BoxError, Probes, serve};
use adieu::{Consumer, JobCx, Lifecycle, Shutdown, StartCx, Step};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;

use pool::Pool;
use queue::Queue;
use staff::{Clerk, Intake, Order};

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    let (database, folder) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    adieu::main(async move |shutdown| kiosk(&shutdown, database, folder.into()).await)
}

#[expect(clippy::print_stdout, reason = "the tests wait for it")]
async fn kiosk(shutdown: &Shutdown, database: String, folder: PathBuf) -> Result<(), BoxError> {
    let pool = Arc::new(OnceLock::new());
    let lifecycle = Lifecycle::builder().step(postgres(database, &pool)).build()?;
    lifecycle.start(shutdown).await?;
    let pool: &Arc<Pool> = pool.get().ok_or("the pool has started")?;

    let system = ActorSystem::on(shutdown, "kiosk")?;
    let mut clerks = Vec::new();
    for number in 0..4 {
        let clerk = actor::<Clerk>(Clerk::new(Arc::clone(pool)));
        clerks.push(system.spawn(&format!("clerk-{number}"), clerk).await?);
    }
    let intake = system.spawn("intake", actor::<Intake>(Intake::new(clerks))).await?;

    let connect = move || {
        let queue = Queue::open(&folder);
        async { queue }
    };
    let jobs = intake.clone();
    let handle = move |job: Arc<String>, _: JobCx| {
        let intake = jobs.clone();
        async move { intake.tell(Order(job.to_string())).await }
    };
    shutdown.add_consumer(Consumer::new("queue").concurrency(4), connect, handle)?;

    let app = Router::new().route("/orders/{id}", post(place)).with_state(intake);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, app, shutdown).probes(Probes::new(shutdown)).await?;
    Ok(())
}

/// A resource that actors use is a step, because steps are stopped after the actors.
fn postgres(database: String, pool: &Arc<OnceLock<Arc<Pool>>>) -> Step {
    let shared = Arc::clone(pool);
    let connect = async move |_: StartCx| {
        let pool = Arc::new(Pool::connect(&database).await?);
        let _ = shared.set(Arc::clone(&pool));
        Ok::<_, BoxError>(pool)
    };
    Step::new("postgres").run(connect, async |pool: Arc<Pool>, _| pool.close())
}

/// An order that is answered with 202 will be in the store.
async fn place(State(intake): State<Ref<Intake>>, Path(id): Path<String>) -> StatusCode {
    match intake.tell(Order(id)).await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
