//! Locks in Redis.

use std::sync::Arc;
use std::time::Duration;

use adieu_fleet::{Attempt, Key, Locks, Owner, Redis};
use adieu_testkit::servers::Server;

use crate::conformance::{Backend, conforms};

fn url(server: &Server) -> String {
    format!("redis://{}/", server.address())
}

async fn suite(server: &Server) {
    let url = url(server);
    conforms(Backend {
        connect: &|| {
            let url = url.clone();
            Box::pin(async move { Arc::new(Redis::connect(&url).await.unwrap()) as Arc<dyn Locks> })
        },
        ttl: Duration::from_millis(300),
        late: Duration::from_millis(100),
    })
    .await;
}

#[tokio::test]
async fn s130_redis_conforms() {
    suite(&Server::redis()).await;
}

// In a cluster a script is refused whose keys are not all in one slot.
#[tokio::test]
async fn s137_all_keys_of_a_lock_are_in_one_slot_of_a_cluster() {
    suite(&Server::redis_cluster()).await;
}

#[tokio::test]
async fn s137_fences_go_on_when_a_server_has_forgotten_everything_even_its_scripts() {
    let server = Server::redis();
    let redis = Redis::connect(&url(&server)).await.unwrap();
    let (key, owner) = (Key::new("job").unwrap(), Owner::new("me").unwrap());
    let mut last = 0;
    for _ in 0..3 {
        let ttl = Duration::from_secs(60);
        let Attempt::Acquired(claim) = redis.try_acquire(&key, &owner, ttl).await.unwrap() else {
            panic!()
        };
        assert!(claim.fence.get() > last);
        last = claim.fence.get();
        let client = ::redis::Client::open(url(&server)).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        for command in ["FLUSHALL", "SCRIPT FLUSH"] {
            let mut words = command.split(' ');
            let mut command = ::redis::cmd(words.next().unwrap());
            let () =
                command.arg(words.collect::<Vec<_>>()).exec_async(&mut connection).await.unwrap();
        }
        assert!(!redis.renew(&claim, ttl).await.unwrap().is_held());
    }
}
