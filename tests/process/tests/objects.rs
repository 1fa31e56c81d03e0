//! Objects through a real keeper and store: put, open, names, quota.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use gpuvol_client::layout::{Dtype, TensorMeta};
use gpuvol_client::{Code, Error, Kind, OpenOptions, OpenWay, PutOptions, PutWay};
use gpuvol_process_tests::node::path;
use gpuvol_process_tests::{TestNode, pattern};

const MIB: u64 = 1 << 20;

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    result.unwrap_err().code()
}

#[test]
fn bytes_of_every_size_come_back() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    for size in [0, 1, 4095, 64 * 1024, 64 * 1024 + 1, 3 * MIB + 5] {
        let bytes = pattern(size, size);
        let put = volume.put_bytes(&path("a/b"), &bytes, &PutOptions::default()).unwrap();
        let small = size <= 64 * 1024;
        assert_eq!(put.way, if small { PutWay::Inline } else { PutWay::HostCopy });
        let object = volume.open(&path("a/b"), &OpenOptions::default()).unwrap();
        assert_eq!((object.version(), object.size(), object.kind()), (put.version, size, Kind::Bytes));
        assert_eq!(object.way(), if small { OpenWay::Inline } else { OpenWay::Mapped });
        assert!(object.bytes().unwrap() == bytes);
        if size > 10 {
            assert_eq!(object.read(5..10).unwrap(), bytes[5..10]);
        }
    }
}

#[test]
fn a_table_is_opened_without_a_copy() {
    let node = TestNode::start();
    let volume = node.volume("v", 256 * MIB).connect();
    let schema =
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8, true)]));
    let rows = 1_000_000;
    let numbers: Int64Array = (0..rows).map(|n| (n % 7 != 0).then_some(n)).collect();
    let texts: StringArray = (0..rows).map(|n| (n % 5 != 0).then(|| format!("row {n}"))).collect();
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap();
    let put =
        volume.put_batches(&path("t.arrow"), &schema, std::slice::from_ref(&batch), &PutOptions::default()).unwrap();
    assert_eq!(put.way, PutWay::HostCopy);
    let object = volume.open(&path("t.arrow"), &OpenOptions::default()).unwrap();
    let table = object.table().unwrap();
    let again = table.batch(0).unwrap();
    assert_eq!(again, batch);
    let bytes = object.bytes().unwrap();
    let inside = bytes.as_ptr_range();
    let buffer = again.column(0).to_data().buffers()[0].as_ptr();
    assert!(inside.contains(&buffer), "the column was copied");
    // The memory outlives the object, its handle and its name.
    drop((object, table, bytes));
    volume.unlink(&path("t.arrow")).unwrap();
    assert_eq!(again, batch);
}

#[test]
fn a_tensor_is_a_npy_file() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    let meta = TensorMeta::new(Dtype::F32, vec![300, 400]);
    let data = pattern(300 * 400 * 4, 1);
    volume.put_tensor(&path("w.npy"), &meta, &data, &PutOptions::default()).unwrap();
    let object = volume.open(&path("w.npy"), &OpenOptions::default()).unwrap();
    let (read, bytes) = object.tensor().unwrap();
    assert_eq!((read, &bytes[..]), (meta, &data[..]));
    assert!(object.bytes().unwrap().starts_with(b"\x93NUMPY"));
    assert_eq!(code(object.table()), Code::InvalidArgument);
}

#[test]
fn names_behave_like_a_file_system() {
    let node = TestNode::start();
    let volume = node.volume("v", 8 * MIB).connect();
    let put = |at: &str| volume.put_bytes(&path(at), at.as_bytes(), &PutOptions::default());
    put("d/one").unwrap();
    put("d/two").unwrap();
    volume.mkdir(&path("e"), false).unwrap();
    assert_eq!(code(volume.mkdir(&path("e"), false)), Code::AlreadyExists);
    volume.mkdir(&path("e"), true).unwrap();
    assert_eq!(code(volume.mkdir(&path("x/y"), false)), Code::NotFound);
    assert_eq!(code(put("d")), Code::IsADirectory);
    assert_eq!(code(put("d/one/below")), Code::NotADirectory);
    assert_eq!(code(volume.unlink(&path("d"))), Code::IsADirectory);
    assert_eq!(code(volume.rmdir(&path("d"))), Code::NotEmpty);
    assert_eq!(code(volume.rename(&path("d"), &path("d/sub"), false)), Code::InvalidArgument);
    volume.rename(&path("d"), &path("e"), false).unwrap();
    volume.rename(&path("e/one"), &path("e/two"), false).unwrap();
    assert_eq!(code(volume.rename(&path("e/two"), &path("e"), true)), Code::AlreadyExists);
    let names: Vec<_> = volume.list(&path("e")).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, [b"two"]);
    assert_eq!(volume.open(&path("e/two"), &OpenOptions::default()).unwrap().bytes().unwrap(), "d/one");
    let exclusive = PutOptions { exclusive: true, ..PutOptions::default() };
    assert_eq!(code(volume.put_bytes(&path("e/two"), b"", &exclusive)), Code::AlreadyExists);
    volume.unlink(&path("e/two")).unwrap();
    assert_eq!(code(volume.unlink(&path("e/two"))), Code::NotFound);
    assert_eq!(code(volume.stat(&path("e/two"))), Code::NotFound);
    volume.rmdir(&path("e")).unwrap();
    assert_eq!(volume.usage().unwrap().entries, 0);
}

#[test]
fn long_directories_are_listed_page_by_page() {
    let node = TestNode::start();
    let volume = node.volume("v", 8 * MIB).connect();
    for n in 0..2500 {
        volume.put_bytes(&path(&format!("d/{n:05}")), b"x", &PutOptions::default()).unwrap();
    }
    let names: Vec<_> = volume.list(&path("d")).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, (0..2500).map(|n| format!("{n:05}").into_bytes()).collect::<Vec<_>>());
}

#[test]
fn the_capacity_is_kept_to_the_byte() {
    let node = TestNode::start();
    let volume = node.volume("v", 8 * MIB).connect();
    let put = |at: &str, size| volume.put_bytes(&path(at), &pattern(size, 1), &PutOptions::default());
    put("a", 8 * MIB).unwrap();
    let Err(Error::Refused(fault)) = put("b", 1) else { panic!("no room was left") };
    assert_eq!((fault.code(), fault.need, fault.free, fault.limit), (Code::QuotaExceeded, 64, 0, 8 * MIB));
    // Replacing an object needs room for both: readers keep the old one until the new one is whole.
    assert_eq!(code(put("a", 8 * MIB)), Code::QuotaExceeded);
    volume.unlink(&path("a")).unwrap();
    assert_eq!(volume.usage().unwrap().used, 0);
    put("a", 5 * MIB).unwrap();
    let held = volume.open(&path("a"), &OpenOptions::default()).unwrap();
    volume.unlink(&path("a")).unwrap();
    let usage = volume.usage().unwrap();
    assert_eq!((usage.used, usage.pinned), (5 * MIB, 5 * MIB));
    assert_eq!(code(put("b", 4 * MIB)), Code::QuotaExceeded);
    drop(held);
    assert_eq!(volume.usage().unwrap().used, 0);
    put("b", 8 * MIB).unwrap();
}

#[test]
fn memory_of_removed_objects_is_given_back() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    let before = node.status().held;
    for n in 0..200_u64 {
        volume.put_bytes(&path("a"), &pattern(MIB, n), &PutOptions::default()).unwrap();
        volume.put_bytes(&path("b"), &pattern(1000, n), &PutOptions::default()).unwrap();
    }
    volume.unlink(&path("a")).unwrap();
    volume.unlink(&path("b")).unwrap();
    node.wait_status("freeing", |s| s.held <= before + 1);
    assert_eq!(volume.usage().unwrap().used, 0);
}

#[test]
fn an_open_waits_for_its_producer() {
    let node = TestNode::start();
    let published = node.volume("v", 8 * MIB);
    let volume = published.connect();
    let wait = |ms| OpenOptions { wait: Duration::from_millis(ms), ..OpenOptions::default() };
    assert_eq!(code(volume.open(&path("late"), &OpenOptions::default())), Code::NotFound);
    let start = Instant::now();
    assert_eq!(code(volume.open(&path("late"), &wait(300))), Code::DeadlineExceeded);
    assert!((300..5000).contains(&start.elapsed().as_millis()));
    let producer = published.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(3000));
            producer.put_bytes(&path("late"), b"here", &PutOptions::default()).unwrap();
        });
        let object = volume.open(&path("late"), &wait(20_000)).unwrap();
        assert_eq!(object.bytes().unwrap(), "here");
    });
}

#[test]
fn a_read_only_publish_cannot_change_anything() {
    let node = TestNode::start();
    let writer = node.volume("v", 8 * MIB).connect();
    writer.put_bytes(&path("a"), b"1", &PutOptions::default()).unwrap();
    let reader = node.publish("v", "ro", true).connect();
    assert!(reader.read_only());
    assert_eq!(reader.open(&path("a"), &OpenOptions::default()).unwrap().bytes().unwrap(), "1");
    for size in [1, MIB] {
        assert_eq!(code(reader.put_bytes(&path("a"), &pattern(size, 0), &PutOptions::default())), Code::ReadOnly);
    }
    assert_eq!(code(reader.unlink(&path("a"))), Code::ReadOnly);
    assert_eq!(code(reader.rename(&path("a"), &path("b"), false)), Code::ReadOnly);
    assert_eq!(code(reader.mkdir(&path("d"), false)), Code::ReadOnly);
}

#[test]
fn volumes_do_not_see_each_other() {
    let node = TestNode::start();
    let one = node.volume("one", 8 * MIB).connect();
    let two = node.volume("two", 8 * MIB).connect();
    one.put_bytes(&path("a"), b"1", &PutOptions::default()).unwrap();
    assert_eq!(code(two.stat(&path("a"))), Code::NotFound);
    assert_eq!((one.id(), two.id()), ("one".to_owned(), "two".to_owned()));
}

#[test]
fn many_threads_share_a_session() {
    let node = TestNode::start();
    let volume = node.volume("v", 256 * MIB).connect();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let volume = volume.clone();
            scope.spawn(move || {
                for n in 0..40_u64 {
                    let at = path(&format!("t{thread}/{}", n % 3));
                    let size = if n % 4 == 0 { 2 * MIB + n } else { 500 + n };
                    let bytes = pattern(size, thread * 1000 + n);
                    volume.put_bytes(&at, &bytes, &PutOptions::default()).unwrap();
                    let object = volume.open(&at, &OpenOptions::default()).unwrap();
                    assert!(object.bytes().unwrap() == bytes);
                }
            });
        }
    });
    assert_eq!(node.status().leases, 1);
}

#[test]
fn paths_on_no_volume_are_ordinary_files() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("x");
    let put = gpuvol_client::put_bytes(&at, b"plain", &PutOptions::default()).unwrap();
    assert_eq!(put.way, PutWay::File);
    let object = gpuvol_client::open(&at, &OpenOptions::default()).unwrap();
    assert_eq!((object.way(), &object.bytes().unwrap()[..]), (OpenWay::File, &b"plain"[..]));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let exclusive = PutOptions { exclusive: true, ..PutOptions::default() };
    assert_eq!(code(gpuvol_client::put_bytes(&at, b"", &exclusive)), Code::AlreadyExists);
}
