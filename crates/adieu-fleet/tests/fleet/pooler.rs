//! Postgres behind PgBouncer.

use std::time::{Duration, Instant};

use adieu_fleet::{AcquireError, Lock, LossCause, Postgres, PostgresSession};
use adieu_testkit::proxy::Proxy;
use adieu_testkit::servers::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

use crate::postgres::rows_conform;
use crate::support::{by, lock, owner, postgres_client as client, postgres_config as config, secs};

#[tokio::test]
async fn s280_sessions_behind_a_pooler_are_refused_and_rows_work_there() {
    let postgres = Server::postgres();
    for mode in ["transaction", "session"] {
        let pooler = Server::pgbouncer(&postgres, mode);
        let began = Instant::now();
        let error = PostgresSession::connect(&config(pooler.port())).await.unwrap_err();
        assert!(error.is_permanent());
        let text = adieu_core::adapter::error_text(&error);
        assert!(
            text.starts_with(
                "postgres-session failed to connect: the connection goes through a pooler"
            ),
            "{text}"
        );
        assert!(text.ends_with("or use `Postgres`, which works behind poolers"), "{text}");

        // Also if it connects with the first request. The error is permanent, so the wait ends.
        let locks = PostgresSession::new(&config(pooler.port())).unwrap();
        let lock = Lock::new(locks, "job", &owner("one")).unwrap();
        let error = lock.acquire(by(60)).await.unwrap_err();
        assert!(matches!(&error, AcquireError::Backend { .. }), "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(30));

        let rows = Postgres::connect(&config(pooler.port())).await.unwrap();
        let lock = Lock::new(rows, "job", &owner("one")).unwrap();
        lock.acquire(by(10)).await.unwrap().release(by(10)).await.unwrap();
    }
}

#[tokio::test]
async fn s280_rows_behind_a_transaction_pooler_conform() {
    let postgres = Server::postgres();
    let pooler = Server::pgbouncer(&postgres, "transaction");
    rows_conform(&pooler).await;
}

#[tokio::test]
async fn s280_a_proxy_that_forwards_bytes_is_not_refused() {
    let postgres = Server::postgres();
    let proxy = Proxy::new(postgres.address()).await;
    let locks = PostgresSession::connect(&config(proxy.port())).await.unwrap();
    let lock = Lock::new(locks, "job", &owner("one")).unwrap();
    lock.acquire(by(10)).await.unwrap().release(by(10)).await.unwrap();
}

/// Reads one message of a server: its kind and its body.
async fn message(from: &mut OwnedReadHalf) -> Option<(u8, Vec<u8>)> {
    let kind = from.read_u8().await.ok()?;
    let length = usize::try_from(from.read_u32().await.ok()?).ok()?;
    let mut body = vec![0; length.checked_sub(4)?];
    from.read_exact(&mut body).await.ok()?;
    Some((kind, body))
}

/// Forwards bytes to a pooler, and announces the session `instead` to every client.
async fn announce(listener: TcpListener, pooler: std::net::SocketAddr, instead: i32) {
    let mut running = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        running.spawn(async move {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_pooler, mut to_pooler) =
                TcpStream::connect(pooler).await.unwrap().into_split();
            let requests = async { drop(tokio::io::copy(&mut from_client, &mut to_pooler).await) };
            let responses = async {
                while let Some((kind, mut body)) = message(&mut from_pooler).await {
                    if kind == b'K' {
                        body[..4].copy_from_slice(&instead.to_be_bytes());
                    }
                    let length = u32::try_from(body.len()).unwrap() + 4;
                    let bytes = [&[kind][..], &length.to_be_bytes(), &body].concat();
                    if to_client.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = requests => {}
                () = responses => {}
            }
        });
    }
}

// No known pooler does this.
#[tokio::test]
async fn s281_a_lease_whose_statements_reach_another_session_is_lost() {
    let postgres = Server::postgres();
    let pooler = Server::pgbouncer(&postgres, "transaction");
    Postgres::connect(&config(postgres.port())).await.unwrap();
    let (other, _driving) = client(&pooler).await;
    let number = "SELECT pg_backend_pid()";
    let mut running = tokio::task::JoinSet::new();
    let mut attempts = 0;
    let lease = loop {
        // Usually the session that the pooler lends next. If the pooler lends another one, the proxy
        // has announced the wrong session, and the test tries again, with a lock that no session holds.
        let session: i32 = other.query_one(number, &[]).await.unwrap().get(0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        running.spawn(announce(listener, pooler.address(), session));
        let problem = match PostgresSession::connect(&config(port)).await {
            Ok(locks) => {
                // Long enough that no attempt times out on a busy machine: the next would use a new
                // session.
                let lock = lock(locks, &format!("job-{attempts}"), secs(9), "one");
                match lock.try_acquire().await {
                    Ok(lease) => break lease,
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        attempts += 1;
        assert!(attempts < 100, "{problem}");
    };
    lease.mark("written", "here").await.unwrap();
    // Now another client has that session, and the next statement goes to a new one.
    other.batch_execute("BEGIN").await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), lease.lost().cancelled()).await.unwrap();
    assert_eq!(lease.check().unwrap_err().loss, LossCause::Refused);
}
