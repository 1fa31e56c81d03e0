//! Files by node: drafts, who sees them when, and what a store that is killed forgets (nothing).

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use gpuvol_client::{Code, Kind, OpenOptions, PutOptions};
use gpuvol_process_tests::node::{path, wait_for};
use gpuvol_process_tests::view::TestMount;
use gpuvol_process_tests::{TestNode, pattern};
use gpuvol_protocol::view::{
    CreateFile, MakeDirectory, NodeKind, OpenFile, ROOT, ReadDirectory, Remove, RenameNode, Sessions, SetAttributes,
    ViewAnswer, ViewOp,
};

const MIB: u64 = 1 << 20;

fn written(mount: &TestMount, name: &str, bytes: &[u8]) {
    let (node, handle) = mount.create(name).unwrap();
    mount.write(node.id, 0, bytes).unwrap();
    mount.flush(handle);
    mount.release(handle, false);
}

#[test]
fn what_a_program_writes_a_client_opens_and_the_other_way_round() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    let mount = node.mount("v", "pod", false);
    for (name, size) in [("empty", 0), ("small", 1000), ("large", 3 * MIB + 17)] {
        let bytes = pattern(size, 7);
        let (file, handle) = mount.create(name).unwrap();
        if size > 0 {
            mount.write(file.id, 0, &bytes).unwrap();
        }
        assert!(volume.stat(&path(name)).is_err_and(|e| e.code() == Code::NotFound), "before it is closed");
        mount.flush(handle);
        mount.release(handle, false);
        let object = volume.open(&path(name), &OpenOptions::default()).unwrap();
        assert_eq!((object.bytes().unwrap().to_vec(), object.version()), (bytes, file.id));
        assert_eq!(mount.lookup(name).unwrap().size, size);
    }
    let put = pattern(2 * MIB + 5, 9);
    volume.put_bytes(&path("put"), &put, &PutOptions::default()).unwrap();
    assert_eq!(mount.read("put").unwrap(), put);
    let opened = mount.lookup("put").unwrap();
    let open = OpenFile { node: opened.id, passthrough: true, ..OpenFile::default() };
    assert!(mount.opened(mount.unique(), ViewOp::OpenFile(open)).unwrap().0.passthrough);
    assert_eq!(volume.usage().unwrap().reserved, 0);
}

#[test]
fn an_arrow_file_that_a_program_wrote_is_a_table() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    let mount = node.mount("v", "pod", false);
    let mut bytes = b"ARROW1\0\0".to_vec();
    bytes.extend_from_slice(b"ARROW1");
    written(&mount, "t.arrow", &bytes);
    assert_eq!(volume.open(&path("t.arrow"), &OpenOptions::default()).unwrap().kind(), Kind::Arrow);
    // What a client put as bytes stays bytes.
    volume.put_bytes(&path("b"), &bytes, &PutOptions::default()).unwrap();
    assert_eq!(volume.open(&path("b"), &OpenOptions::default()).unwrap().kind(), Kind::Bytes);
}

#[test]
fn others_see_a_new_version_from_its_first_flush_on() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    let (one, other) = (node.mount("v", "one", false), node.mount("v", "other", false));
    written(&one, "f", b"old");
    let old = other.lookup("f").unwrap();
    let (draft, handle) = one.open_to_write("f", true).unwrap();
    assert_ne!(draft.id, old.id);
    one.flush(handle);
    assert_eq!(one.read("f").unwrap(), b"");
    assert_eq!(other.read("f").unwrap(), b"old", "an empty file that was only flushed");
    one.write(draft.id, 0, b"new").unwrap();
    assert_eq!((one.read("f").unwrap(), other.read("f").unwrap()), (b"new".to_vec(), b"old".to_vec()));
    one.flush(handle);
    assert_eq!(other.read("f").unwrap(), b"new");
    // A client has the old version or the whole new one.
    assert!(volume.stat(&path("f")).is_err());
    one.write(draft.id, 3, b"er").unwrap();
    one.release(handle, false);
    assert_eq!((other.read("f").unwrap(), other.lookup("f").unwrap().id), (b"newer".to_vec(), draft.id));
    assert_eq!(volume.open(&path("f"), &OpenOptions::default()).unwrap().bytes().unwrap(), &b"newer"[..]);
}

#[test]
fn writers_in_two_pods_write_one_draft() {
    let node = TestNode::start();
    node.volume("v", 64 * MIB);
    let (one, other) = (node.mount("v", "one", false), node.mount("v", "other", false));
    written(&one, "log", b"0");
    let (draft, first) = one.open_to_write("log", false).unwrap();
    one.write(draft.id, 1, b"1").unwrap();
    let (same, second) = other.open_to_write("log", false).unwrap();
    assert_eq!(same.id, draft.id);
    one.release(first, false);
    other.write(draft.id, 2, b"2").unwrap();
    other.release(second, false);
    assert_eq!(one.read("log").unwrap(), b"012");
    let exclusive =
        CreateFile { parent: ROOT, name: b"new".to_vec(), write: true, exclusive: true, ..CreateFile::default() };
    one.opened(one.unique(), ViewOp::CreateFile(exclusive.clone())).unwrap();
    let fault = other.opened(other.unique(), ViewOp::CreateFile(exclusive)).unwrap_err();
    assert_eq!(fault.code(), Code::AlreadyExists, "although it does not see it yet");
}

#[test]
fn a_file_opened_for_writing_and_not_written_stays_what_it_was() {
    let node = TestNode::start();
    node.volume("v", 64 * MIB);
    let mount = node.mount("v", "pod", false);
    written(&mount, "f", b"content");
    let before = mount.lookup("f").unwrap();
    let (draft, handle) = mount.open_to_write("f", false).unwrap();
    let mode = SetAttributes { node: draft.id, mode: Some(0o600), ..SetAttributes::default() };
    mount.node(ViewOp::SetAttributes(mode)).unwrap();
    assert_eq!(mount.read("f").unwrap(), b"content");
    mount.release(handle, false);
    // The draft waits a moment for opens that were sent to it.
    wait_for("the old version to be back", || mount.lookup("f").unwrap().id == before.id);
    let after = mount.lookup("f").unwrap();
    assert_eq!((after.mode, after.mtime_ns), (0o600, before.mtime_ns));
}

#[test]
fn without_room_the_old_version_stays_whole() {
    let node = TestNode::start();
    let volume = node.volume("v", 4 * MIB).connect();
    let mount = node.mount("v", "pod", false);
    written(&mount, "f", &pattern(MIB, 1));
    let (draft, handle) = mount.open_to_write("f", true).unwrap();
    mount.write(draft.id, 0, &pattern(2 * MIB, 2)).unwrap();
    let fault = mount.write(draft.id, 2 * MIB, &pattern(2 * MIB, 2)).unwrap_err();
    assert_eq!(fault.code(), Code::QuotaExceeded);
    assert!(fault.message.contains(" f:") && fault.message.contains("volume v"), "{}", fault.message);
    mount.release(handle, true);
    assert_eq!(mount.read("f").unwrap(), pattern(MIB, 1));
    assert_eq!(volume.usage().unwrap().used, MIB);
}

#[test]
fn names_change_places_and_go_while_files_are_open() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    let mount = node.mount("v", "pod", false);
    written(&mount, "a", b"a");
    written(&mount, "b", b"b");
    let rename = |from: &str, to: &str, exchange| {
        ViewOp::RenameNode(RenameNode {
            parent: ROOT,
            name: from.into(),
            new_parent: ROOT,
            new_name: to.into(),
            exchange,
            ..RenameNode::default()
        })
    };
    mount.done(rename("a", "b", true));
    assert_eq!((mount.read("a").unwrap(), mount.read("b").unwrap()), (b"b".to_vec(), b"a".to_vec()));
    let (draft, handle) = mount.open_to_write("a", false).unwrap();
    mount.write(draft.id, 0, b"x").unwrap();
    mount.done(rename("a", "c", false));
    mount.release(handle, false);
    assert_eq!(mount.read("c").unwrap(), b"x");
    let (draft, handle) = mount.open_to_write("c", false).unwrap();
    mount.write(draft.id, 1, b"y").unwrap();
    mount.done(ViewOp::Remove(Remove { parent: ROOT, name: b"c".to_vec(), directory: false }));
    assert_eq!(mount.node(ViewOp::GetNode(gpuvol_protocol::view::GetNode { node: draft.id })).unwrap().links, 0);
    mount.write(draft.id, 2, b"z").unwrap();
    mount.release(handle, false);
    assert_eq!(mount.lookup("c").unwrap_err().code(), Code::NotFound);
    node.wait_status("the memory to go", |_| volume.usage().unwrap().used == 64);
}

#[test]
fn a_request_sent_again_has_the_effect_of_one() {
    let mut node = TestNode::start();
    node.volume("v", 64 * MIB);
    let mount = node.mount("v", "pod", false);
    let make = ViewOp::MakeDirectory(MakeDirectory { parent: ROOT, name: b"d".to_vec(), ..MakeDirectory::default() });
    let unique = mount.unique();
    let (first, _) = mount.ask(unique, make.clone()).unwrap();
    node.kill_store();
    node.start_store();
    assert_eq!(mount.ask(unique, make.clone()).unwrap().0, first);
    assert_eq!(mount.ask(mount.unique(), make).unwrap_err().code(), Code::AlreadyExists);
    let create = ViewOp::CreateFile(CreateFile {
        parent: ROOT,
        name: b"f".to_vec(),
        write: true,
        exclusive: true,
        ..CreateFile::default()
    });
    let unique = mount.unique();
    let first = mount.opened(unique, create.clone()).unwrap().0;
    let again = mount.opened(unique, create).unwrap().0;
    assert_eq!((again.node, again.handle), (first.node, unique));
    let remove = ViewOp::Remove(Remove { parent: ROOT, name: b"f".to_vec(), directory: false });
    let unique = mount.unique();
    mount.ask(unique, remove.clone()).unwrap();
    mount.ask(unique, remove).unwrap();
}

#[test]
fn a_store_that_is_killed_forgets_no_draft() {
    let mut node = TestNode::start();
    node.volume("v", 64 * MIB);
    let mount = node.mount("v", "pod", false);
    written(&mount, "f", &pattern(MIB, 1));
    let (draft, handle) = mount.open_to_write("f", false).unwrap();
    mount.write(draft.id, MIB, &pattern(MIB, 2)).unwrap();
    node.kill_store();
    node.start_store();
    mount.write(draft.id, 2 * MIB, b"end").unwrap();
    mount.release(handle, false);
    let content = mount.read("f").unwrap();
    let whole = [&pattern(MIB, 1)[..], &pattern(MIB, 2)[..], b"end"].concat();
    assert!(content == whole, "{} bytes", content.len());
}

#[test]
fn what_a_mount_had_open_is_sealed_when_it_is_gone() {
    let node = TestNode::start();
    let volume = node.volume("v", 64 * MIB).connect();
    let mount = node.mount("v", "pod", false);
    let (draft, _) = mount.create("f").unwrap();
    mount.write(draft.id, 0, b"content").unwrap();
    node.unmount(&mount);
    assert_eq!(volume.open(&path("f"), &OpenOptions::default()).unwrap().bytes().unwrap(), &b"content"[..]);
    assert_eq!(mount.lookup("f").unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    let node = TestNode::start();
    node.volume("v", 64 * MIB);
    let mount = node.mount("v", "pod", false);
    for n in 0..5 {
        written(&mount, &format!("f{n}"), b"x");
    }
    let list = |after, limit| match mount.ask(0, ViewOp::ReadDirectory(ReadDirectory { node: ROOT, after, limit })) {
        Ok((ViewAnswer::Names(names), _)) => names,
        other => panic!("{other:?}"),
    };
    let first = list(0, 2);
    assert!(first.more && first.parent == ROOT);
    mount.done(ViewOp::Remove(Remove { parent: ROOT, name: b"f1".to_vec(), directory: false }));
    mount.done(ViewOp::Remove(Remove { parent: ROOT, name: b"f3".to_vec(), directory: false }));
    let rest = list(first.names[1].cookie, 0);
    let names: Vec<String> = rest.names.iter().map(|n| String::from_utf8(n.name.clone()).unwrap()).collect();
    assert_eq!(names, ["f2", "f4"]);
    assert!(!rest.more && rest.names.iter().all(|n| n.node.as_ref().unwrap().kind == i32::from(NodeKind::File)));
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let node = TestNode::start();
    node.volume("v", 64 * MIB);
    written(&node.mount("v", "writer", false), "f", b"x");
    let mount = node.mount("v", "ro", true);
    assert_eq!(mount.read("f").unwrap(), b"x");
    assert_eq!(mount.create("g").unwrap_err().code(), Code::ReadOnly);
    assert_eq!(mount.open_to_write("f", false).unwrap_err().code(), Code::ReadOnly);
}

#[test]
fn a_new_mounter_is_told_of_all_mounts_a_message_at_a_time() {
    let node = TestNode::start();
    node.volume("v", 64 * MIB);
    let mounts: Vec<TestMount> = (0..70).map(|n| node.mount("v", &format!("pod{n}"), false)).collect();
    let mut known: Vec<String> = Vec::new();
    for _ in 0..10 {
        let op = ViewOp::Sessions(Sessions { known: known.clone(), wait_ms: 100 });
        let Ok((ViewAnswer::Sessions(list), fds)) = mounts[0].ask(0, op) else { panic!("no list of mounts") };
        assert!(fds.len().is_multiple_of(2));
        // Descriptors come for those that were not known, in the order of the list.
        let new = list.sessions.into_iter().map(|s| s.publish).filter(|publish| !known.contains(publish));
        let new: Vec<String> = new.take(fds.len() / 2).collect();
        known.extend(new);
    }
    assert_eq!(known.len(), mounts.len());
}
