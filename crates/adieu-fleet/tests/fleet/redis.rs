//! Locks in Redis.

use std::time::Duration;

use adieu_fleet::{LockBackend, Redis};
use adieu_testkit::servers::Server;

use crate::conformance::conforms;
use crate::support::{granted, key, owner, redis_url, secs};

async fn suite(server: &Server) {
    let connect = async || Redis::connect(&redis_url(server)).await.unwrap();
    conforms(connect, Duration::from_millis(300), Duration::from_millis(100)).await;
}

#[tokio::test]
async fn s130_redis_conforms() {
    suite(&Server::redis()).await;
}

// A cluster refuses a script whose keys are in several slots.
#[tokio::test]
async fn s137_all_keys_of_a_lock_are_in_one_slot_of_a_cluster() {
    suite(&Server::redis_cluster()).await;
}

#[tokio::test]
async fn s137_fences_rise_after_a_server_has_lost_its_data_and_scripts() {
    let server = Server::redis();
    let redis = Redis::connect(&redis_url(&server)).await.unwrap();
    let (key, owner, ttl) = (key("job"), owner("me"), secs(60));
    let mut last = 0;
    for _ in 0..3 {
        let claim = granted(redis.try_acquire(&key, &owner, ttl).await.unwrap());
        assert!(claim.fence.get() > last);
        last = claim.fence.get();
        let client = ::redis::Client::open(redis_url(&server)).unwrap();
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
