//! The appends of entities to a database, each under the fence of its entity, and the judge of asks
//! and appends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adieu_cluster::Command;
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Statement};

use super::load::{End, Outcome};
use crate::real::writes::connect;

const TABLES: &str = "
    CREATE TABLE heads (
        cluster text, entity text, fence bigint NOT NULL, PRIMARY KEY (cluster, entity)
    );
    CREATE TABLE appends (
        place bigserial PRIMARY KEY, at timestamptz NOT NULL, cluster text NOT NULL,
        entity text NOT NULL, node text NOT NULL, fence bigint NOT NULL, sender text NOT NULL,
        number bigint NOT NULL, accepted boolean NOT NULL
    );";

/// One statement: the row of the entity is locked before the append gets its place. An append under a
/// lower fence than another before it is recorded as rejected.
const APPEND: &str = "
    WITH head AS (INSERT INTO heads VALUES ($1, $2, $4) ON CONFLICT (cluster, entity)
                  DO UPDATE SET fence = greatest(heads.fence, excluded.fence) RETURNING fence)
    INSERT INTO appends (at, cluster, entity, node, fence, sender, number, accepted)
    SELECT clock_timestamp(), $1, $2, $3, $4, $5, $6, head.fence = $4 FROM head";

/// Appends a number to the log of an entity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Append {
    pub(crate) sender: String,
    pub(crate) number: u64,
}

impl Command for Append {
    type Reply = ();
}

/// Appends for the entities of one node.
#[derive(Clone)]
pub(crate) struct Appends(Arc<Connected>);

struct Connected {
    client: Client,
    append: Statement,
    cluster: String,
    node: String,
}

/// One attempt to append.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Appended {
    pub(crate) key: String,
    pub(crate) node: String,
    pub(crate) fence: i64,
    pub(crate) sender: String,
    pub(crate) number: u64,
    pub(crate) accepted: bool,
    /// By the clock of the machine.
    pub(crate) at: Duration,
}

/// The outcomes of all asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) ran: usize,
    pub(crate) not_run: BTreeMap<String, usize>,
    pub(crate) unknown: BTreeMap<String, usize>,
    /// Asks that were made when their own node was no longer a member.
    pub(crate) outside: usize,
    pub(crate) longest: Duration,
    /// How often an entity appended on another node than before.
    pub(crate) moves: usize,
    /// The appends that the fence rejected.
    pub(crate) rejected: Vec<Appended>,
}

pub(crate) async fn create(client: &Client) {
    client.batch_execute(TABLES).await.unwrap();
}

pub(crate) async fn read(client: &Client, cluster: &str) -> Vec<Appended> {
    let query = "SELECT entity, node, fence, sender, number, accepted,
                 (extract(epoch FROM at) * 1000000)::bigint
                 FROM appends WHERE cluster = $1 ORDER BY place";
    let rows = client.query(query, &[&cluster]).await.unwrap();
    let appended = |row: &tokio_postgres::Row| Appended {
        key: row.get(0),
        node: row.get(1),
        fence: row.get(2),
        sender: row.get(3),
        number: u64::try_from(row.get::<_, i64>(4)).unwrap(),
        accepted: row.get(5),
        at: Duration::from_micros(u64::try_from(row.get::<_, i64>(6)).unwrap()),
    };
    rows.iter().map(appended).collect()
}

// === impl Appends ===

impl Appends {
    pub(crate) async fn connect(
        database: &str,
        cluster: String,
        node: String,
    ) -> Result<Self, tokio_postgres::Error> {
        let client = connect(database).await?;
        let append = client.prepare(APPEND).await?;
        Ok(Self(Arc::new(Connected { client, append, cluster, node })))
    }

    pub(crate) async fn append(
        &self,
        key: &str,
        fence: u64,
        append: &Append,
    ) -> Result<(), tokio_postgres::Error> {
        let Connected { client, append: statement, cluster, node } = &*self.0;
        let (fence, number) =
            (i64::try_from(fence).unwrap(), i64::try_from(append.number).unwrap());
        client
            .execute(statement, &[cluster, &key, node, &fence, &append.sender, &number])
            .await
            .map(drop)
    }
}

// === impl Tally ===

/// Judges that each ask ran as often as its outcome allows, that the asks of one sender to one entity
/// ran in order, and that no entity ran at two nodes.
pub(crate) fn judge(asks: &[Outcome], appends: &[Appended]) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut runs = BTreeMap::<(&str, &str, u64), usize>::new();
    let mut last = BTreeMap::<(&str, &str), u64>::new();
    let mut heads = BTreeMap::<&str, &Appended>::new();
    for it in appends {
        if !it.accepted {
            tally.rejected.push(it.clone());
            continue;
        }
        *runs.entry((&it.sender, &it.key, it.number)).or_default() += 1;
        if let Some(before) = last.insert((&it.sender, &it.key), it.number)
            && before >= it.number
        {
            return Err(format!("{it:?} ran after number {before}"));
        }
        if let Some(before) = heads.insert(&it.key, it) {
            if before.fence > it.fence {
                return Err(format!("{it:?} ran after {before:?}"));
            }
            if before.fence == it.fence && before.node != it.node {
                return Err(format!("{before:?} and {it:?} have the same fence"));
            }
            tally.moves += usize::from(before.node != it.node);
        }
    }
    let mut known = BTreeSet::new();
    for ask in asks {
        let id = (ask.sender.as_str(), ask.key.as_str(), ask.number);
        if !known.insert(id) {
            return Err(format!("{ask:?} has two outcomes"));
        }
        let ran = runs.get(&id).copied().unwrap_or_default();
        match (&ask.end, ran) {
            (End::Ran, 1) => tally.ran += 1,
            (End::NotRun(why), 0) => *tally.not_run.entry(why.clone()).or_default() += 1,
            (End::Outside, 0) => tally.outside += 1,
            (End::Unknown(why), 0 | 1) => *tally.unknown.entry(why.clone()).or_default() += 1,
            _ => return Err(format!("{ask:?} ran {ran} times")),
        }
        tally.longest = tally.longest.max(ask.took);
    }
    match runs.keys().find(|id| !known.contains(*id)) {
        Some(stray) => Err(format!("{stray:?} ran, and has no outcome")),
        None => Ok(tally),
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ran, not_run, unknown, outside, longest, moves, rejected } = self;
        write!(
            f,
            "{ran} ran, {not_run:?} not run, {unknown:?} unknown, {outside} after their node had left, \
             {moves} moves of entities, {} rejected, the longest ask took {longest:?}",
            rejected.len()
        )
    }
}

/// The judge must be able to find each violation.
#[test]
fn the_judge_of_appends_finds_violations() {
    let ask = |number, end| Outcome {
        sender: "s".to_owned(),
        key: "k".to_owned(),
        number,
        end,
        took: Duration::ZERO,
        asked_at: Duration::ZERO,
    };
    let run = |number, node: &str, fence| Appended {
        key: "k".to_owned(),
        node: node.to_owned(),
        fence,
        sender: "s".to_owned(),
        number,
        accepted: true,
        at: Duration::ZERO,
    };
    let why = || "why".to_owned();
    let asks = [ask(0, End::Ran), ask(1, End::NotRun(why())), ask(2, End::Unknown(why()))];
    for fine in [vec![run(0, "a", 1)], vec![run(0, "a", 1), run(2, "b", 2)]] {
        assert!(judge(&asks, &fine).is_ok());
    }
    for (wrong, expected) in [
        (vec![], "ran 0 times"),
        (vec![run(0, "a", 1), run(1, "a", 1)], "ran 1 times"),
        (vec![run(0, "a", 1), run(0, "a", 1)], "ran after number 0"),
        (vec![run(2, "a", 1), run(0, "a", 1)], "ran after number 2"),
        (vec![run(0, "a", 2), run(2, "b", 1)], "ran after Appended"),
        (vec![run(0, "a", 1), run(2, "b", 1)], "have the same fence"),
        (vec![run(0, "a", 1), run(3, "a", 1)], "has no outcome"),
    ] {
        let error = judge(&asks, &wrong).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let twice = [ask(0, End::Ran), ask(0, End::Ran)];
    assert!(judge(&twice, &[run(0, "a", 1)]).unwrap_err().contains("two outcomes"));
}
