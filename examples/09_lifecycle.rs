//! A lifecycle: steps start in waves and stop in reverse. If a start fails, started steps are stopped.

use std::sync::{Arc, OnceLock};

use adieu::{DeploymentProfile, Lifecycle, Reason, Shutdown, StartCx, Step, StopCx};

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Pool;

impl Pool {
    async fn connect() -> Result<Arc<Self>, std::io::Error> {
        println!("connected");
        Ok(Arc::new(Pool))
    }

    async fn close(&self) {
        println!("closed");
    }
}

fn postgres(pool: &Arc<OnceLock<Arc<Pool>>>) -> Step {
    let shared = Arc::clone(pool);
    let connect = async move |_: StartCx| {
        let pool = Pool::connect().await?;
        let _ = shared.set(Arc::clone(&pool)); // For the steps that require it.
        Ok::<_, std::io::Error>(pool)
    };
    Step::new("postgres").provides("db").run(connect, async |pool: Arc<Pool>, _| pool.close().await)
}

fn cache(pool: &Arc<OnceLock<Arc<Pool>>>) -> Step {
    let pool = Arc::clone(pool);
    Step::new("cache")
        .requires("db")
        .start(async move |_| println!("warmed from the pool: {}", pool.get().is_some()))
        .stop(async |cx: StopCx| println!("{} emptied", cx.step()))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // A step that all replicas would run at the same time is refused before anything runs.
    let indexes = Step::new("indexes").requires("db").mutates_shared_state();
    let pool = Arc::default();
    let fleet = Lifecycle::builder().profile(DeploymentProfile::Fleet);
    if let Err(error) = fleet.step(postgres(&pool)).step(indexes).build() {
        println!("{error}");
    }

    // A start that fails: the started steps are stopped.
    let broker =
        Step::new("broker").requires("db").start(async |_| Err::<(), _>("connection refused"));
    let lifecycle = Lifecycle::builder().step(broker).step(postgres(&pool)).build()?;
    if let Err(error) = lifecycle.start(&Shutdown::new()).await {
        println!("{error}");
    }

    // Without a failure: ready when the last step has started, stopped in reverse.
    let (pool, shutdown) = (Arc::default(), Shutdown::new());
    let lifecycle = Lifecycle::builder().step(cache(&pool)).step(postgres(&pool)).build()?;
    println!("waves: {:?}", lifecycle.waves().collect::<Vec<_>>());
    lifecycle.start(&shutdown).await?;
    println!("readiness: {}", shutdown.readiness());
    let report = shutdown.run(Reason::Unknown).await?;
    println!("outcome: {}", report.outcome);
    Ok(())
}
