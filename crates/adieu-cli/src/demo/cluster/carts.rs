//! The carts of the demo: each has a log in a folder that all nodes share. The log shows what
//! really ran, regardless of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a cart takes to handle an ask.
pub(super) const WORK: Duration = Duration::from_millis(20);

/// Adds an item to a cart.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Add {
    /// The number of the ask, unique in the demo.
    pub(super) number: u64,
}

impl adieu::cluster::Command for Add {
    type Reply = u64;
}

/// One instance of a cart. As actors do, it reads its state when it starts, and then keeps it.
#[derive(Debug)]
pub(super) struct Cart {
    log: PathBuf,
    instance: String,
    items: u64,
}

/// A line of a log: the state that an instance has saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    /// The ask that was handled.
    number: u64,
    /// How many items the cart has then, as the instance has counted.
    items: u64,
    fence: u64,
    instance: String,
}

/// The contents of the logs.
#[derive(Clone, Debug, Default)]
pub(super) struct Logs {
    carts: BTreeMap<String, Vec<Saved>>,
    opened: Opened,
}

/// The nodes that have opened each shard, in order.
pub(super) type Opened = BTreeMap<u32, Vec<String>>;

/// A fault in the logs, or in the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Items that were answered and that the cart does not have: another instance has overwritten
    /// them, or they are not in the log.
    pub(super) lost: u64,
    /// Items that an instance saved although a younger instance of the same cart had saved, and asks
    /// that ran twice.
    pub(super) doubled: u64,
    /// Asks that ran although they were answered with "not run".
    pub(super) untrue: u64,
    /// Asks with an unknown outcome that ran.
    pub(super) unknown_ran: u64,
}

/// The answers to the asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    pub(super) ran: BTreeSet<u64>,
    pub(super) not_run: BTreeSet<u64>,
    pub(super) unknown: BTreeSet<u64>,
}

/// Creates the folders of the logs.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join("carts"))
}

/// Notes that a node has opened a shard.
pub(super) fn note_opened(folder: &Path, shard: u32, node: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join("opened"))?;
    // A short line is written in one piece.
    file.write_all(format!("{shard} {node}\n").as_bytes())
}

// === impl Cart ===

impl Cart {
    /// Starts an instance of a cart: reads its items.
    pub(super) fn load(folder: &Path, key: &str, instance: String) -> io::Result<Self> {
        let log = folder.join("carts").join(key);
        let mut file = open(&log)?;
        file.lock()?;
        let items = last(&mut file)?.map_or(0, |saved| saved.items);
        Ok(Self { log, instance, items })
    }

    /// Adds an item, and returns how many the cart has. Fails if an instance with a higher fence has
    /// saved the cart.
    pub(super) async fn add(&mut self, add: Add, fence: u64) -> io::Result<u64> {
        tokio::time::sleep(WORK).await;
        self.items += 1;
        let mut file = open(&self.log)?;
        file.lock()?;
        let highest = last(&mut file)?.map_or(0, |saved| saved.fence);
        if highest > fence {
            return Err(io::Error::other(format!("fence {fence} is lower than {highest}")));
        }
        let (number, items, instance) = (add.number, self.items, &self.instance);
        file.write_all(format!("{number} {items} {fence} {instance}\n").as_bytes())?;
        Ok(self.items)
    }
}

fn open(log: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).read(true).open(log)
}

/// Returns the last line of a log.
fn last(file: &mut File) -> io::Result<Option<Saved>> {
    let from = file.metadata()?.len().saturating_sub(512);
    file.seek(SeekFrom::Start(from))?;
    let mut end = String::new();
    file.read_to_string(&mut end)?;
    Ok(end.lines().last().and_then(Saved::read))
}

// === impl Saved ===

impl Saved {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (number, items, fence) = (number()?, number()?, number()?);
        Some(Self { number, items, fence, instance: words.next()?.to_owned() })
    }
}

// === impl Logs ===

impl Logs {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut logs = Self { opened: opened(folder)?, ..Self::default() };
        for entry in fs::read_dir(folder.join("carts"))? {
            let entry = entry?;
            let text = fs::read_to_string(entry.path())?;
            let saved = text.lines().filter_map(Saved::read).collect();
            logs.carts.insert(entry.file_name().to_string_lossy().into_owned(), saved);
        }
        Ok(logs)
    }

    /// Returns how often each shard was opened since an earlier reading.
    pub(super) fn opened_since(&self, before: &Opened) -> BTreeMap<u32, u64> {
        let since = |(shard, nodes): (&u32, &Vec<String>)| {
            let before = before.get(shard).map_or(0, Vec::len);
            (*shard, nodes.len().saturating_sub(before) as u64)
        };
        self.opened.iter().map(since).collect()
    }

    /// Compares the answers with the logs.
    pub(super) fn judge(&self, answers: &Answers) -> Faults {
        let mut faults = Faults::default();
        let mut ran = BTreeMap::<u64, u64>::new();
        for log in self.carts.values() {
            let mut instances: Vec<&str> = Vec::new();
            for saved in log {
                *ran.entry(saved.number).or_default() += 1;
                match instances.iter().position(|it| *it == saved.instance) {
                    None => instances.push(&saved.instance),
                    Some(at) => faults.doubled += u64::from(at + 1 < instances.len()),
                }
            }
            let has = log.last().map_or(0, |saved| saved.items);
            faults.lost += (log.len() as u64).saturating_sub(has);
        }
        faults.doubled += ran.values().map(|count| count - 1).sum::<u64>();
        let count = |asks: &BTreeSet<u64>, has_run: bool| {
            asks.iter().filter(|number| ran.contains_key(number) == has_run).count() as u64
        };
        faults.lost += count(&answers.ran, false);
        faults.untrue = count(&answers.not_run, true);
        faults.unknown_ran = count(&answers.unknown, true);
        faults
    }
}

/// Returns the nodes that have opened each shard so far.
pub(super) fn opened(folder: &Path) -> io::Result<Opened> {
    let text = match fs::read_to_string(folder.join("opened")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let mut opened = Opened::new();
    for (shard, node) in text.lines().filter_map(|line| line.split_once(' ')) {
        if let Ok(shard) = shard.parse() {
            opened.entry(shard).or_default().push(node.to_owned());
        }
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[&str], ran: &[u64], not_run: &[u64], unknown: &[u64]) -> Faults {
        let log = lines.iter().map(|line| Saved::read(line).unwrap()).collect();
        let logs = Logs { carts: [("c".to_owned(), log)].into(), ..Logs::default() };
        let set = |numbers: &[u64]| numbers.iter().copied().collect();
        logs.judge(&Answers { ran: set(ran), not_run: set(not_run), unknown: set(unknown) })
    }

    /// The judge must be able to find each fault.
    #[test]
    fn the_judge_of_the_demo_finds_faults() {
        let sound = ["1 1 7 a", "2 2 7 a", "3 3 9 b"];
        assert_eq!(judged(&sound, &[1, 2, 3], &[4], &[5]), Faults::default());
        assert_eq!(judged(&sound, &[1, 2], &[], &[3, 4]).unknown_ran, 1);
        assert_eq!(judged(&sound, &[1, 2, 3, 4], &[], &[]).lost, 1, "never saved");
        assert_eq!(judged(&sound, &[1, 2], &[3], &[]).untrue, 1);
        let stale = ["1 1 0 a", "2 2 0 b", "3 2 0 a"];
        let faults = judged(&stale, &[1, 2, 3], &[], &[]);
        assert_eq!((faults.lost, faults.doubled), (1, 1), "the first instance overwrote an item");
        let twice = ["1 1 7 a", "1 2 9 b"];
        assert_eq!(judged(&twice, &[1], &[], &[]).doubled, 1);
    }

    #[test]
    fn a_cart_is_saved_under_its_fence_only() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let cart =
                |instance: &str| Cart::load(folder.path(), "c", instance.to_owned()).unwrap();
            let (mut old, mut new) = (cart("old"), cart("new"));
            assert_eq!(old.add(Add { number: 1 }, 7).await.unwrap(), 1);
            assert_eq!(new.add(Add { number: 2 }, 9).await.unwrap(), 1, "it was loaded before");
            assert!(old.add(Add { number: 3 }, 7).await.is_err());
            assert_eq!(cart("third").add(Add { number: 4 }, 11).await.unwrap(), 2);
        });
        let logs = Logs::read(folder.path()).unwrap();
        assert_eq!(logs.judge(&Answers::default()).lost, 1);
    }
}
