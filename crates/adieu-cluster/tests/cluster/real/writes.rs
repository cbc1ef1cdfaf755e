//! The writes of singletons to a database, each under its fence, and the judge of them.

use std::fmt::Write as _;
use std::time::Duration;

use tokio_postgres::{Client, NoTls, Statement};

/// Every attempt is recorded, in the order in which the database decided on them. One that came
/// under a lower fence than another before it was rejected.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS fences (cluster text PRIMARY KEY, fence bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS writes (
        number bigserial PRIMARY KEY, at timestamptz NOT NULL, cluster text NOT NULL,
        node text NOT NULL, fence bigint NOT NULL, accepted boolean NOT NULL
    );";

/// One statement: the row of the cluster is locked before the attempt gets its number.
const ATTEMPT: &str = "
    WITH before AS (SELECT fence FROM fences WHERE cluster = $1 FOR UPDATE),
         rises AS (UPDATE fences SET fence = greatest(fences.fence, $3) FROM before
                   WHERE cluster = $1)
    INSERT INTO writes (at, cluster, node, fence, accepted)
    SELECT clock_timestamp(), $1, $2, $3, before.fence <= $3 FROM before";

/// Writes for one instance of a singleton.
pub(crate) struct Writer {
    client: Client,
    attempt: Statement,
    cluster: String,
    node: String,
    fence: i64,
}

/// One attempt to write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    /// By the clock of the database.
    pub(crate) at: Duration,
    pub(crate) node: String,
    pub(crate) fence: i64,
    pub(crate) accepted: bool,
}

/// The result of all attempts in one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Writes {
    pub(crate) all: Vec<Written>,
}

/// Connects to a database. The connection ends with the client.
pub(crate) async fn connect(database: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "the task ends with the client")]
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Creates the tables.
pub(crate) async fn create(database: &str) {
    connect(database).await.unwrap().batch_execute(TABLES).await.unwrap();
}

// === impl Writer ===

impl Writer {
    pub(crate) async fn connect(
        database: &str,
        cluster: String,
        node: String,
        fence: u64,
    ) -> Result<Self, tokio_postgres::Error> {
        let client = connect(database).await?;
        let first = "INSERT INTO fences VALUES ($1, 0) ON CONFLICT DO NOTHING";
        client.execute(first, &[&cluster]).await?;
        let attempt = client.prepare(ATTEMPT).await?;
        Ok(Self { client, attempt, cluster, node, fence: i64::try_from(fence).unwrap() })
    }

    pub(crate) async fn write(&self) -> Result<(), tokio_postgres::Error> {
        let Self { client, attempt, cluster, node, fence } = self;
        client.execute(attempt, &[cluster, node, fence]).await.map(drop)
    }
}

// === impl Writes ===

impl Writes {
    pub(crate) async fn read(client: &Client, cluster: &str) -> Self {
        let query = "SELECT (extract(epoch FROM at) * 1000000)::bigint, node, fence, accepted
                     FROM writes WHERE cluster = $1 ORDER BY number";
        let rows = client.query(query, &[&cluster]).await.unwrap();
        let written = |row: &tokio_postgres::Row| Written {
            at: Duration::from_micros(u64::try_from(row.get::<_, i64>(0)).unwrap()),
            node: row.get(1),
            fence: row.get(2),
            accepted: row.get(3),
        };
        Self { all: rows.iter().map(written).collect() }
    }

    /// Returns the nodes that wrote, in order.
    pub(crate) fn owners(&self) -> Vec<&str> {
        let mut owners: Vec<&str> = self.all.iter().map(|it| it.node.as_str()).collect();
        owners.dedup();
        owners
    }

    pub(crate) fn last(&self) -> Option<&Written> {
        self.all.last()
    }

    /// Returns the attempts that came after one of a later instance.
    pub(crate) fn rejected(&self) -> Vec<&Written> {
        self.all.iter().filter(|it| !it.accepted).collect()
    }

    /// The same without them.
    pub(crate) fn accepted(&self) -> Self {
        Self { all: self.all.iter().filter(|it| it.accepted).cloned().collect() }
    }

    /// Returns how long nothing was written, at each change of the owner.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let accepted = self.accepted().all;
        let changes = accepted.windows(2).filter(|pair| pair[0].fence != pair[1].fence);
        changes.map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect()
    }

    /// Judges that no two instances overlapped: nothing was attempted under a fence after something
    /// was written under a higher one, and each fence has one node.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let mut highest: Option<&Written> = None;
        for it in &self.all {
            if let Some(before) = highest {
                if !it.accepted || it.fence < before.fence {
                    return Err(format!("{it:?} was written after {before:?}"));
                }
                if it.fence == before.fence && it.node != before.node {
                    return Err(format!("{before:?} and {it:?} have the same fence"));
                }
            }
            highest = Some(it);
        }
        Ok(())
    }

    /// Returns the owners and the gaps between them, in one line.
    pub(crate) fn story(&self) -> String {
        let mut story = String::new();
        let mut before: Option<&Written> = None;
        for it in self.all.iter().filter(|it| it.accepted) {
            match before {
                Some(before) if before.fence == it.fence => {}
                Some(before) => {
                    let gap = it.at.saturating_sub(before.at).as_millis();
                    let _ = write!(story, " -({gap} ms)-> {} under {}", it.node, it.fence);
                }
                None => {
                    let _ = write!(story, "{} under {}", it.node, it.fence);
                }
            }
            before = Some(it);
        }
        story
    }
}

/// The judge must be able to find an overlap.
#[test]
fn the_judge_of_writes_finds_overlaps() {
    let at = |node: &str, fence, accepted| Written {
        at: Duration::ZERO,
        node: node.to_owned(),
        fence,
        accepted,
    };
    let judge = |all: &[Written]| Writes { all: all.to_vec() }.judge();
    let (one, two) = (at("one", 1, true), at("two", 2, true));
    assert_eq!(judge(&[one.clone(), one.clone(), two.clone(), two.clone()]), Ok(()));
    let late = judge(&[one.clone(), two.clone(), at("one", 1, false)]).unwrap_err();
    assert!(late.contains("after"), "{late}");
    assert!(judge(&[two.clone(), one.clone()]).is_err(), "a fence that fell");
    assert!(judge(&[one, at("two", 1, true)]).is_err(), "one fence, two nodes");
}

/// The database decides on the attempts, and the judge finds the one that came too late.
#[tokio::test]
async fn the_database_rejects_a_write_under_a_lower_fence() {
    let server = adieu_testkit::servers::Server::postgres();
    let database = crate::served::config(server.port());
    create(&database).await;
    let writer = |node: &str, fence| {
        let (cluster, node) = ("shop".to_owned(), node.to_owned());
        Writer::connect(&database, cluster, node, fence)
    };
    let (one, two) = (writer("one", 1).await.unwrap(), writer("two", 2).await.unwrap());
    one.write().await.unwrap();
    two.write().await.unwrap();
    let client = connect(&database).await.unwrap();
    assert_eq!(Writes::read(&client, "shop").await.judge(), Ok(()));
    one.write().await.unwrap();
    let written = Writes::read(&client, "shop").await;
    let accepted: Vec<bool> = written.all.iter().map(|it| it.accepted).collect();
    assert_eq!(accepted, [true, true, false]);
    assert!(written.judge().is_err());
    assert_eq!(written.owners(), ["one", "two", "one"]);
}
