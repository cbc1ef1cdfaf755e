//! Locks in etcd.

use adieu_fleet::etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use adieu_fleet::{Etcd, Lock, LockSpec};
use adieu_testkit::servers::Server;

use crate::conformance::conforms;
use crate::support::{by, etcd_urls, owner, secs};

#[tokio::test]
async fn s130_etcd_conforms() {
    let server = Server::etcd();
    let connect = async || Etcd::connect(&etcd_urls(&server)).await.unwrap();
    conforms(connect, secs(1), secs(2)).await;
}

#[tokio::test]
async fn s140_the_fence_is_the_revision_and_nothing_is_left_behind() {
    let server = Server::etcd();
    let mut client = Client::connect(etcd_urls(&server), None).await.unwrap();
    let lock = Lock::new(Etcd::new(client.clone()), "job", &owner("one")).unwrap();
    let lease = lock.try_acquire().await.unwrap();
    let found = client.get(Etcd::lock_key(lock.key()), None).await.unwrap();
    assert_eq!(found.kvs()[0].create_revision(), lease.fence().as_i64());
    assert!(lock.try_acquire().await.is_err());
    assert_eq!(client.leases().await.unwrap().leases().len(), 1, "the refused attempt has none");
    lease.release(by(5)).await.unwrap();
    assert_eq!(client.leases().await.unwrap().leases().len(), 0);
    assert!(client.get(Etcd::lock_key(lock.key()), None).await.unwrap().kvs().is_empty());
}

#[tokio::test]
async fn s141_an_etcd_transaction_refuses_a_stale_fence() {
    let server = Server::etcd();
    let mut client = Client::connect(etcd_urls(&server), None).await.unwrap();
    let locks = Etcd::new(client.clone());
    let lock = |replica: &str| {
        Lock::new(locks.clone(), LockSpec::new("r7").needs_fence(), &owner(replica))
    };
    let write = |fence: i64, value: &str| {
        Txn::new()
            .when([Compare::create_revision("adieu/lock/r7", CompareOp::Equal, fence)])
            .and_then([TxnOp::put("reports/7", value, None)])
    };
    let old = lock("one").unwrap().try_acquire().await.unwrap();
    let stale = old.check().unwrap().as_i64();
    assert!(client.txn(write(stale, "1")).await.unwrap().succeeded());
    old.release(by(5)).await.unwrap();

    let new = lock("two").unwrap().try_acquire().await.unwrap();
    let fence = new.check().unwrap().as_i64();
    assert!(client.txn(write(fence, "2")).await.unwrap().succeeded());
    assert!(!client.txn(write(stale, "3")).await.unwrap().succeeded(), "refused");
    assert_eq!(client.get("reports/7", None).await.unwrap().kvs()[0].value(), b"2");
}
