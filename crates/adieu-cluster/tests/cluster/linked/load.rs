//! Asks without end, and what became of each.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_cluster::{AskError, NotRun, Region};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::appends::Append;

/// How many asks to one entity are sent together.
pub(crate) const ASKED_AT_ONCE: usize = 3;

/// How to ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) keys: u64,
    /// The pause between the asks to one entity.
    pub(crate) pause: Duration,
    pub(crate) within: Duration,
    /// It ends when this file exists, or with its node.
    pub(crate) until: PathBuf,
    /// The folder for the outcomes.
    pub(crate) outcomes: PathBuf,
}

/// The outcome of one ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) sender: String,
    pub(crate) key: String,
    pub(crate) number: u64,
    pub(crate) end: End,
    pub(crate) took: Duration,
    /// By the clock of the machine.
    pub(crate) asked_at: Duration,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum End {
    Ran,
    NotRun(String),
    Unknown(String),
    /// Its own node is no longer a member.
    Outside,
}

/// Asks all entities at the same time, several asks to each, until the end.
pub(crate) async fn run(region: Region<Append>, load: &Load, node: &str) {
    // A node that is started again is another sender.
    let sender = format!("{node}@{}", std::process::id());
    let outcomes: Arc<Mutex<Vec<Outcome>>> = Arc::default();
    let mut askers = JoinSet::new();
    for key in 0..load.keys {
        let (region, load, sender) = (region.clone(), load.clone(), sender.clone());
        let outcomes = Arc::clone(&outcomes);
        let key = format!("k-{key}");
        askers.spawn(async move { ask(&region, &load, &sender, &key, &outcomes).await });
    }
    while let Some(ended) = askers.join_next().await {
        ended.unwrap();
    }
    let file = std::fs::File::create(load.outcomes.join(sender)).unwrap();
    let mut file = std::io::BufWriter::new(file);
    serde_json::to_writer(&mut file, &*outcomes.lock().unwrap()).unwrap();
    file.flush().unwrap();
}

async fn ask(
    region: &Region<Append>,
    load: &Load,
    sender: &str,
    key: &str,
    outcomes: &Mutex<Vec<Outcome>>,
) {
    let mut number = 0;
    let one = async |number| {
        let asked_at = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let begun = Instant::now();
        let append = Append { sender: sender.to_owned(), number };
        let end = match region.at(key).ask(append).within(load.within).await {
            Ok(()) => End::Ran,
            Err(AskError::NotRun(NotRun::Outside)) => End::Outside,
            Err(AskError::NotRun(why)) => End::NotRun(why.to_string()),
            Err(AskError::Unknown(why)) => End::Unknown(why.to_string()),
        };
        let (sender, key) = (sender.to_owned(), key.to_owned());
        Outcome { sender, key, number, end, took: begun.elapsed(), asked_at }
    };
    loop {
        // They are sent in this order, without waiting for each other.
        let asked: [Outcome; ASKED_AT_ONCE] =
            tokio::join!(biased; one(number), one(number + 1), one(number + 2)).into();
        number += ASKED_AT_ONCE as u64;
        asked.iter().for_each(announce);
        let is_over = asked.iter().any(|it| it.end == End::Outside);
        outcomes.lock().unwrap().extend(asked);
        if is_over || load.until.exists() {
            return;
        }
        tokio::time::sleep(load.pause).await;
    }
}

/// Lets the test see that an ask has failed.
#[expect(clippy::print_stdout, reason = "the test that started this process reads it")]
fn announce(outcome: &Outcome) {
    match &outcome.end {
        End::NotRun(why) => println!("@not run {}: {why}", outcome.key),
        End::Unknown(why) => println!("@unknown {}: {why}", outcome.key),
        End::Ran | End::Outside => {}
    }
}
