//! The death table: what is lost when a process is killed. One test a row, with the real processes and SIGKILL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::time::Duration;

use gpuvol_client::{Code, Error, OpenOptions, PutOptions};
use gpuvol_process_tests::child::TestClient;
use gpuvol_process_tests::node::{path, wait_for};
use gpuvol_process_tests::{TestNode, pattern};
use gpuvol_protocol::admin::{
    AdminAnswer, AdminOp, DeleteVolume, GetVolume, ListPublishes, OnLoss, Publish, VolumeSpec,
};

const MIB: u64 = 1 << 20;

fn opened(volume: &gpuvol_client::Volume, at: &str) -> bytes::Bytes {
    volume.open(&path(at), &OpenOptions::default()).unwrap().bytes().unwrap()
}

#[test]
fn producer_before_its_seal_loses_its_unsealed_object_only() {
    let node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let volume = published.connect();
    volume.put_bytes(&path("old"), &pattern(MIB, 1), &PutOptions::default()).unwrap();
    let held = node.status().held;
    let mut producer = TestClient::start(&published.mount, &["reserve", "new", "8388608"]);
    assert_eq!(producer.said()["reserved"], 8 * MIB);
    assert_eq!(volume.usage().unwrap().reserved, 8 * MIB);
    producer.kill();
    node.wait_status("the end of the producer's lease", |s| s.leases == 1 && s.held == held);
    let usage = volume.usage().unwrap();
    assert_eq!((usage.used, usage.reserved), (MIB, 0));
    assert_eq!(opened(&volume, "old"), pattern(MIB, 1));
    assert!(matches!(volume.stat(&path("new")), Err(e) if e.code() == Code::NotFound));
}

#[test]
fn producer_after_its_seal_loses_nothing() {
    let node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let mut producer = TestClient::start(&published.mount, &["put", "a", "8388608", "7"]);
    producer.said();
    producer.kill();
    node.wait_status("the end of the producer's lease", |s| s.leases == 0);
    assert_eq!(opened(&published.connect(), "a"), pattern(8 * MIB, 7));
}

#[test]
fn consumer_loses_nothing_and_its_lease_ends() {
    let node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let volume = published.connect();
    volume.put_bytes(&path("a"), &pattern(8 * MIB, 3), &PutOptions::default()).unwrap();
    let mut consumer = TestClient::start(&published.mount, &["open", "a"]);
    assert_eq!(consumer.said()["size"], 8 * MIB);
    volume.unlink(&path("a")).unwrap();
    assert_eq!(volume.usage().unwrap().pinned, 8 * MIB);
    consumer.kill();
    node.wait_status("the end of the consumer's lease", |s| s.leases == 1);
    assert_eq!(volume.usage().unwrap().used, 0);
}

#[test]
fn store_loses_nothing_sealed_and_no_lease() {
    let mut node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let volume = published.connect();
    volume.put_bytes(&path("d/large"), &pattern(4 * MIB, 1), &PutOptions::default()).unwrap();
    volume.put_bytes(&path("d/small"), &pattern(100, 2), &PutOptions::default()).unwrap();
    volume.put_bytes(&path("d/pinned"), &pattern(2 * MIB, 3), &PutOptions::default()).unwrap();
    let pinned = volume.open(&path("d/pinned"), &OpenOptions::default()).unwrap();
    volume.unlink(&path("d/pinned")).unwrap();
    let before = volume.usage().unwrap();
    for _ in 0..4 {
        node.kill_store();
        node.start_store();
        // The same client goes on by itself, and everything is as it was.
        assert_eq!(volume.usage().unwrap(), before);
        assert_eq!(opened(&volume, "d/large"), pattern(4 * MIB, 1));
        assert_eq!(opened(&volume, "d/small"), pattern(100, 2));
        assert_eq!(pinned.bytes().unwrap(), pattern(2 * MIB, 3));
        assert_eq!(node.status().leases, 1);
    }
    // A new client too, and the lease still ends with its client.
    assert_eq!(opened(&published.connect(), "d/large"), pattern(4 * MIB, 1));
    drop(pinned);
    assert_eq!(volume.usage().unwrap().pinned, 0);
    drop(volume);
    node.wait_status("the end of the lease", |s| s.leases == 0);
}

#[test]
fn a_lease_that_ends_while_the_store_is_dead_ends_when_it_is_back() {
    let mut node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let mut producer = TestClient::start(&published.mount, &["reserve", "new", "8388608"]);
    producer.said();
    let mut consumer = TestClient::start(&published.mount, &["put", "a", "4194304", "1"]);
    consumer.said();
    node.kill_store();
    producer.kill();
    consumer.kill();
    node.start_store();
    node.wait_status("the end of both leases", |s| s.leases == 0);
    assert_eq!(published.connect().usage().unwrap().used, 4 * MIB);
}

#[test]
fn a_request_that_waits_for_a_dead_store_is_answered_by_its_successor() {
    let mut node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let volume = published.connect();
    node.kill_store();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| volume.put_bytes(&path("a"), &pattern(MIB, 1), &PutOptions::default()));
        std::thread::sleep(Duration::from_millis(300));
        node.start_store();
        put.join().unwrap().unwrap();
    });
    assert_eq!(opened(&volume, "a"), pattern(MIB, 1));
}

#[test]
fn a_dead_store_is_a_clear_error_at_the_deadline() {
    let mut node = TestNode::start();
    let published = node.volume("v", MIB);
    let volume = gpuvol_client::Volume::with_deadline(&published.mount, Duration::from_millis(300)).unwrap();
    node.kill_store();
    let error = volume.stat(&path("a")).unwrap_err();
    assert!(matches!(&error, Error::Unavailable { volume, .. } if volume == "v"), "{error}");
    assert_eq!(error.code(), Code::Unavailable);
}

/// Puts at full speed while the store is killed over and over: every put that was answered is there, once and whole.
#[test]
fn a_stream_of_puts_survives_a_store_killed_again_and_again() {
    let mut node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let mut producer = TestClient::start(&published.mount, &["stream", "s"]);
    for _ in 0..6 {
        for _ in 0..50 {
            producer.said();
        }
        node.kill_store();
        node.start_store();
    }
    let last = producer.said()["n"].as_u64().unwrap();
    producer.kill();
    let volume = published.connect();
    for n in 0..=last {
        assert_eq!(opened(&volume, &format!("s/n{n}")), pattern(100 + n, n), "object {n} of {last}");
    }
    let entries = volume.usage().unwrap().entries;
    assert!((last + 2..=last + 400).contains(&entries), "{entries} entries for {last} puts");
}

#[test]
fn keeper_loses_nothing_while_the_store_lives() {
    let mut node = TestNode::start();
    let published = node.volume("v", 64 * MIB);
    let volume = published.connect();
    volume.put_bytes(&path("before"), &pattern(2 * MIB, 1), &PutOptions::default()).unwrap();
    let held = node.status().held;
    node.kill_keeper();
    // Reads need no keeper.
    assert_eq!(opened(&volume, "before"), pattern(2 * MIB, 1));
    node.start_keeper();
    node.wait_status("the handing over", |s| s.keeper_connected && s.held == held);
    volume.put_bytes(&path("after"), &pattern(2 * MIB, 2), &PutOptions::default()).unwrap();
    // What the new keeper got is enough for a new store.
    node.kill_store();
    node.start_store();
    assert_eq!(opened(&volume, "before"), pattern(2 * MIB, 1));
    assert_eq!(opened(&volume, "after"), pattern(2 * MIB, 2));
    assert_eq!(node.status().leases, 1);
}

#[test]
fn a_put_while_the_keeper_is_away_waits_for_it() {
    let mut node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    node.kill_keeper();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| volume.put_bytes(&path("a"), &pattern(MIB, 1), &PutOptions::default()));
        std::thread::sleep(Duration::from_millis(300));
        node.start_keeper();
        put.join().unwrap().unwrap();
    });
    node.kill_store();
    node.start_store();
    assert_eq!(opened(&volume, "a"), pattern(MIB, 1));
}

#[test]
fn keeper_and_store_together_lose_the_content_and_say_so() {
    let mut node = TestNode::start();
    let published = node.volume("written", 8 * MIB);
    published.connect().put_bytes(&path("a"), &pattern(MIB, 1), &PutOptions::default()).unwrap();
    node.volume("untouched", 8 * MIB);
    let spec = VolumeSpec {
        id: "forgiving".into(),
        name: "forgiving".into(),
        capacity: 8 * MIB,
        on_loss: OnLoss::Empty.into(),
        ..VolumeSpec::default()
    };
    node.create_volume(spec).unwrap();
    node.publish("forgiving", "rw", false).connect().put_bytes(&path("a"), b"x", &PutOptions::default()).unwrap();
    node.kill_store();
    node.kill_keeper();
    node.start_keeper();
    node.start_store();
    let volume = |id: &str| match node.admin(AdminOp::GetVolume(GetVolume { id: id.into() }), &[]) {
        Ok(AdminAnswer::Volume(volume)) => volume,
        other => panic!("{other:?}"),
    };
    assert!(volume("written").lost_ms > 0 && volume("written").condition.contains("lost"));
    assert_eq!(volume("untouched").lost_ms, 0);
    assert!(volume("forgiving").lost_ms > 0);
    let listener = std::os::unix::net::UnixListener::bind(node.state().join("l")).unwrap();
    let publish = |id: &str| {
        let publish = Publish { publish: id.into(), volume: id.into(), target: "/x".into(), ..Publish::default() };
        node.admin(AdminOp::Publish(publish), &[std::os::fd::AsFd::as_fd(&listener)])
    };
    let refused = publish("written").unwrap_err();
    assert_eq!(refused.code(), Code::ContentLost);
    publish("untouched").unwrap();
    publish("forgiving").unwrap();
    // It can still be deleted.
    node.admin(AdminOp::DeleteVolume(DeleteVolume { id: "written".into() }), &[]).unwrap();
    assert!(!node.state().join("volumes/written.json").exists());
}

#[test]
fn the_catalogue_is_compacted_and_still_tells_everything() {
    let mut node = TestNode::start();
    let published = node.volume("v", 256 * MIB);
    let volume = published.connect();
    volume.put_bytes(&path("keep/large"), &pattern(2 * MIB, 9), &PutOptions::default()).unwrap();
    let held = volume.open(&path("keep/large"), &OpenOptions::default()).unwrap();
    let attributes = vec![("note".to_owned(), "x".repeat(8000))];
    let noisy = PutOptions { attributes, ..PutOptions::default() };
    for n in 0..4000_u64 {
        volume.put_bytes(&path(&format!("noise/{}", n % 10)), &n.to_le_bytes(), &noisy).unwrap();
    }
    volume.unlink(&path("noise/3")).unwrap();
    wait_for("compaction", || node.status().log_bytes < 16 * MIB);
    let before = volume.usage().unwrap();
    node.kill_store();
    node.start_store();
    assert_eq!(volume.usage().unwrap(), before);
    assert_eq!(opened(&volume, "keep/large"), pattern(2 * MIB, 9));
    assert_eq!(opened(&volume, "noise/9").as_ref(), 3999_u64.to_le_bytes());
    drop(held);
    let publishes = node.admin(AdminOp::ListPublishes(ListPublishes::default()), &[]);
    assert!(matches!(publishes, Ok(AdminAnswer::Publishes(p)) if p.publishes.len() == 1));
}
