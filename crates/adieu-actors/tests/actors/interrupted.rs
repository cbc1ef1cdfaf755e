//! The body of `main` sends a message that the drain refuses, late in start-up. In child processes, because
//! a process has one body.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_actors::{ActorSystem, Worker, WorkerThreads};
use adieu_core::{Config, Format, Phase, Reason, Runner, Shutdown};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Kameo, Log, Ractor, Script, Tasks};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The variable that tells the child what refuses the message.
const REFUSES: &str = "ADIEU_TEST_REFUSES";
/// The variable that makes a task of the body send the message, instead of the body itself.
const IN_TASK: &str = "ADIEU_TEST_IN_TASK";

const UNCLEAN: u8 = 70;

fn in_child(refuses: &str, is_in_task: bool) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "interrupted::starting", "--ignored", "--nocapture"]);
    child.env(REFUSES, refuses);
    if is_in_task {
        child.env(IN_TASK, "yes");
    }
    let ended = child.output().unwrap();
    assert!(ended.status.success(), "{refuses}: {ended:#?}");
}

#[test]
fn s1801_a_refused_message_of_the_body_makes_neither_the_body_fail_nor_the_outcome_unclean() {
    for refuses in ["kameo", "ractor", "task", "worker"] {
        in_child(refuses, false);
    }
}

#[test]
fn s1801_a_refused_message_of_a_task_that_the_body_has_spawned_makes_the_outcome_unclean() {
    for refuses in ["kameo", "ractor", "task", "worker"] {
        in_child(refuses, true);
    }
}

/// Sends messages until one is refused. Returns the error and the number of accepted messages.
async fn until_refused<Refusal: std::fmt::Display>(
    mut send: impl FnMut() -> BoxFuture<'static, Result<(), Refusal>>,
) -> (String, usize) {
    let mut accepted = 0;
    loop {
        match send().await {
            Ok(()) => accepted += 1,
            Err(refusal) => return (refusal.to_string(), accepted),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn send_late(
    refuses: String,
    shutdown: Shutdown,
    system: ActorSystem,
    threads: WorkerThreads<()>,
    handled: Arc<AtomicUsize>,
) -> Result<(String, usize), Error> {
    let script = || Script::new(&Log::default());
    let begin = || drop(shutdown.run(Reason::Unknown));
    let job = || {
        let handled = Arc::clone(&handled);
        Job::new(move || async move {
            handled.fetch_add(1, Ordering::SeqCst);
        })
    };
    Ok(match refuses.as_str() {
        "kameo" => {
            let to = Kameo::spawn(&system, None, "late", script()).await?;
            begin();
            let send = || {
                let (to, job) = (to.clone(), job());
                async move { to.tell(job).await }.boxed()
            };
            until_refused(send).await
        }
        "ractor" => {
            let to = Ractor::spawn(&system, None, "late", script()).await?;
            begin();
            let send = || {
                let (to, job) = (to.clone(), job());
                async move { to.post(job) }.boxed()
            };
            until_refused(send).await
        }
        "task" => {
            let to = Tasks::spawn(&system, None, "late", script()).await?;
            begin();
            let send = || {
                let (to, job) = (to.clone(), job());
                async move { to.send(job).await }.boxed()
            };
            until_refused(send).await
        }
        _ => {
            begin();
            let send = || {
                let threads = threads.clone();
                async move { threads.send(0, ()).await }.boxed()
            };
            until_refused(send).await
        }
    })
}

/// The child process: its shutdown begins during start-up.
#[test]
#[ignore = "the tests above start it in a child process"]
fn starting() {
    let refuses = std::env::var(REFUSES).unwrap();
    let is_in_task = std::env::var_os(IN_TASK).is_some();
    let handled = Arc::new(AtomicUsize::new(0));
    let accepted = Arc::new(AtomicUsize::new(0));
    let text = "kill-after = \"none\"\nlame-duck = \"0s\"\n";
    let config = Config::parse(text, Format::Toml).unwrap();
    let count = Arc::clone(&handled);
    let total = Arc::clone(&accepted);
    let code = Runner::new().config(config).run(async move |shutdown: Shutdown| {
        let system = ActorSystem::on(&shutdown, "shop")?;
        let counted = Arc::clone(&count);
        let work = async move |mut worker: Worker<()>| {
            while let Some(delivery) = worker.recv().await {
                counted.fetch_add(1, Ordering::SeqCst);
                delivery.done();
            }
        };
        let threads = WorkerThreads::builder("late").count(1).start(work)?;
        threads.on(&shutdown)?;
        // Holds the drain until the message was refused.
        let busy = Tasks::spawn(&system, None, "busy", Script::new(&Log::default())).await?;
        let release = Arc::new(Notify::new());
        let waits = Arc::clone(&release);
        busy.send(Job::new(move || async move { waits.notified().await }))
            .await
            .map_err(|error| error.to_string())?;
        shutdown.add_task(Phase::CLOSE_RESOURCES, "pool", async |_| ())?;
        let sending = send_late(refuses, shutdown.clone(), system, threads, count);
        let (refusal, sent) =
            if is_in_task { tokio::spawn(sending).await?? } else { sending.await? };
        total.store(sent, Ordering::SeqCst);
        release.notify_one();
        Err::<(), Error>(format!("failed to start: {refusal}").into())
    });
    let expected = if is_in_task { ExitCode::from(UNCLEAN) } else { ExitCode::SUCCESS };
    assert_eq!(code, expected);
    let all = accepted.load(Ordering::SeqCst);
    assert_eq!(handled.load(Ordering::SeqCst), all, "handled what was accepted");
}
