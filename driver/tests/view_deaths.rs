//! What each death costs the programs in a mount: of the mounter, of the store, and of both for good.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

#[path = "support/view_mount.rs"]
mod view_mount;
#[path = "support/view_rig.rs"]
mod view_rig;
#[path = "support/view_store.rs"]
mod view_store;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use gpuvol_csi::view::journal::Journal;
use gpuvol_csi::view::watchdog::{Hang, Watchdog};
use gpuvol_protocol::view::ViewOp;
use view_mount::{Mount, eventually};
use view_rig::Rig;

/// Bytes that name their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 % 251) as u8).collect()
}

fn joined<T>(thread: JoinHandle<T>, what: &str) -> T {
    eventually(what, || thread.is_finished());
    thread.join().unwrap()
}

#[test]
fn a_successor_ends_what_a_killed_mounter_began() {
    let Some(mut rig) = Rig::new() else { return };
    fs::write(rig.path("f"), b"there").unwrap();
    rig.store.hold(|op| matches!(op, ViewOp::MakeDirectory(_)));
    let path = rig.path("d");
    let maker = spawn(move || fs::create_dir(path));
    rig.store.wait("a mkdir", |volume| volume.held == 1);
    rig.kill();
    rig.store.answer();
    rig.succeed();
    joined(maker, "the mkdir").unwrap();
    assert_eq!(rig.store.volume().count("mkdir"), 1, "sent twice, made once");
    assert!(rig.path("d").is_dir());
    assert_eq!(fs::read(rig.path("f")).unwrap(), b"there");
}

#[test]
fn open_files_are_read_and_written_by_a_successor() {
    let Some(mut rig) = Rig::with(false) else { return };
    let content = pattern(3_000_000);
    rig.store.seal("big", &content);
    let reader = File::options().read(true).custom_flags(libc::O_DIRECT).open(rig.path("big"));
    let reader = reader.unwrap_or_else(|_| File::open(rig.path("big")).unwrap());
    let mut writer = File::create(rig.path("new")).unwrap();
    writer.write_all(&content[..1_000_000]).unwrap();
    rig.kill();
    rig.succeed();
    // The successor asks what the handle is; it is killed while it waits for the answer, in the middle of the read.
    rig.store.hold(|op| matches!(op, ViewOp::Describe(_)));
    let reads = spawn(move || {
        let mut bytes = vec![0; 3_000_000];
        reader.read_exact_at(&mut bytes, 0).map(|()| bytes)
    });
    rig.store.wait("a read", |volume| volume.held > 0);
    rig.kill();
    rig.store.answer();
    rig.succeed();
    assert_eq!(joined(reads, "the read").unwrap(), content);
    writer.write_all(&content[1_000_000..]).unwrap();
    drop(writer);
    assert_eq!(fs::read(rig.path("new")).unwrap(), content);
    eventually("all releases", || rig.store.volume().open_handles() == 0);
}

#[test]
fn passthrough_outlives_mounters_and_its_ids_are_closed() {
    let Some(mut rig) = Rig::new() else { return };
    let content = pattern(1_000_000);
    rig.store.seal("big", &content);
    let reader = File::open(rig.path("big")).unwrap();
    let noted = rig.store.volume().backings();
    assert_eq!(noted.len(), 1);
    rig.kill();
    let mut bytes = vec![0; content.len()];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, content, "with no mounter alive");
    rig.succeed();
    let again = File::open(rig.path("big")).unwrap();
    again.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(rig.store.volume().backings(), noted, "one node, one id");
    drop((reader, again));
    eventually("the releases", || rig.store.volume().open_handles() == 0);
    // The store does not name the id any more; a new open gets a new one.
    std::thread::sleep(Duration::from_millis(4500));
    let fresh = File::open(rig.path("big")).unwrap();
    fresh.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, content);
}

#[test]
fn the_socket_stays_when_mounters_change() {
    use std::os::unix::net::{UnixListener, UnixStream};
    let Some(mut rig) = Rig::new() else { return };
    let listener = UnixListener::bind(rig.path(".gpuvol.sock")).unwrap();
    rig.kill();
    rig.succeed();
    let path = rig.path(".gpuvol.sock");
    let client = spawn(move || UnixStream::connect(path).map(drop));
    listener.accept().unwrap();
    joined(client, "a connection").unwrap();
}

/// What a mounter leaves that was killed between writing an append and answering it.
#[test]
fn an_append_that_was_written_and_not_answered_is_not_written_twice() {
    let Some(mut rig) = Rig::new() else { return };
    let path = rig.path("log");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    file.write_all(b"one\n").unwrap();
    rig.kill();
    let appends = spawn(move || file.write_all(b"two\n").map(|()| file));
    let (unique, node) = read_write_request(&rig.mount);
    {
        let journal = Journal::open(File::from(rig.mount.journal().try_clone().unwrap())).unwrap();
        journal.begin(unique, node, 4, 4).unwrap();
        // All bytes but the last: killed in the middle of it.
        rig.store.memory("log").write_all_at(b"two", 4).unwrap();
    }
    rig.succeed();
    let mut file = joined(appends, "the append").unwrap();
    file.write_all(b"three\n").unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(path).unwrap(), "one\ntwo\nthree\n");
}

/// Takes requests from the connection as a mounter does, and leaves them, until a write comes.
fn read_write_request(mount: &Mount) -> (u64, u64) {
    const WRITE: u32 = 16;
    let mut buffer = vec![0; 2 << 20];
    loop {
        let got = rustix::io::read(mount.fuse(), &mut buffer[..]).unwrap();
        assert!(got >= 40);
        let word = |at: usize| u64::from_ne_bytes(buffer[at..at + 8].try_into().unwrap());
        let opcode = u32::from_ne_bytes(buffer[4..8].try_into().unwrap());
        if opcode == WRITE {
            return (word(8), word(16));
        }
    }
}

#[test]
fn appends_are_whole_and_once_while_mounters_die() {
    let Some(mut rig) = Rig::new() else { return };
    let other = Mount::new(&rig.state().join("other"), true);
    let (session, fuse, journal) = other.session("p2");
    rig.store.publish(session, fuse, journal);
    // Kept open, so that the draft stays one.
    let keep = fs::OpenOptions::new().create(true).append(true).open(rig.path("log")).unwrap();
    let append = |path: PathBuf, who: &'static str| {
        spawn(move || {
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            let until = Instant::now() + Duration::from_secs(3);
            let mut count = 0;
            while Instant::now() < until {
                file.write_all(format!("{who} {count:06} {}\n", "x".repeat(count % 3000)).as_bytes()).unwrap();
                count += 1;
            }
            count
        })
    };
    let writers = [append(rig.path("log"), "a"), append(other.join("log"), "b")];
    for i in 0..12 {
        std::thread::sleep(Duration::from_millis(60 + 37 * i % 100));
        rig.kill();
        rig.succeed();
    }
    let counts = writers.map(|writer| joined(writer, "a writer's end"));
    drop(keep);
    let text = fs::read_to_string(rig.path("log")).unwrap();
    for (who, count) in ["a", "b"].iter().zip(counts) {
        let numbers: Vec<usize> =
            text.lines().filter_map(|l| l.strip_prefix(who)?.split(' ').nth(1)?.parse().ok()).collect();
        assert!(numbers.iter().copied().eq(0..count), "{who}: {count} appends, {} lines", numbers.len());
    }
    assert_eq!(text.lines().count(), counts[0] + counts[1]);
    assert!(!text.contains('\0'));
}

#[test]
fn a_store_that_is_replaced_costs_time() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), b"1").unwrap();
    let mut file = File::create(rig.path("g")).unwrap();
    file.write_all(&pattern(100_000)).unwrap();
    rig.store.stop();
    let path = rig.path("f");
    let reads = spawn(move || fs::read(path));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!reads.is_finished());
    // What is in the memory of both is written without the store.
    file.write_all(&pattern(1000)).unwrap();
    rig.store.start();
    assert_eq!(joined(reads, "the read").unwrap(), b"1");
    drop(file);
    assert_eq!(fs::metadata(rig.path("g")).unwrap().len(), 101_000);
}

#[test]
fn a_release_reaches_a_store_that_was_away_for_long() {
    let Some(mut rig) = Rig::without_mounter(true) else { return };
    rig.start("300ms");
    let mut file = File::create(rig.path("g")).unwrap();
    file.write_all(&pattern(100_000)).unwrap();
    rig.store.stop();
    drop(file);
    assert_eq!(fs::read(rig.path("g")).unwrap_err().raw_os_error(), Some(libc::EIO));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(rig.store.volume().open_handles(), 1);
    rig.store.start();
    eventually("the release", || rig.store.volume().open_handles() == 0);
    assert_eq!(fs::read(rig.path("g")).unwrap(), pattern(100_000));
}

#[test]
fn the_watchdog_lets_go_who_waits_for_nobody() {
    let Some(mut rig) = Rig::new() else { return };
    fs::write(rig.path("f"), b"1").unwrap();
    let deadline = Duration::from_millis(1500);
    let mut watchdog = Watchdog::new(rig.state().to_owned(), deadline).unwrap();
    let mounts = [rig.mount.connection];
    eventually("a heartbeat", || gpuvol_csi::view::heartbeat::read(rig.state()).is_some_and(|h| h.oldest.len() == 1));
    assert_eq!(watchdog.look(&mounts), []);
    rig.kill();
    let path = rig.path("f");
    let reads = spawn(move || fs::read(path));
    let start = Instant::now();
    let hanging = loop {
        let hanging = watchdog.look(&mounts);
        if !hanging.is_empty() {
            break hanging;
        }
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(start.elapsed() > deadline);
    assert_eq!(hanging, [(rig.mount.connection, Hang::NoMounter)]);
    assert!(joined(reads, "the reader's end").is_err());
}

#[test]
fn a_hundred_mounts_are_taken_over_at_once() {
    let Some(mut rig) = Rig::without_mounter(true) else { return };
    let mounts: Vec<Mount> = (0..100).map(|i| Mount::new(&rig.state().join(format!("m{i}")), true)).collect();
    for (i, mount) in mounts.iter().enumerate() {
        let (session, fuse, journal) = mount.session(&format!("many-{i}"));
        rig.store.publish(session, fuse, journal);
    }
    let paths: Vec<PathBuf> = mounts.iter().map(|mount| mount.join("f")).collect();
    for _ in 0..2 {
        let pid = rig.succeed();
        let paths = paths.clone();
        let writes = spawn(move || {
            for path in &paths {
                fs::write(path, pattern(200_000)).unwrap();
            }
        });
        joined(writes, "a hundred writes");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        eprintln!("{} {}", line("VmRSS"), line("Threads"));
        let resident: u64 = line("VmRSS").split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(resident < 400 * 1024, "{resident} KiB");
        rig.kill();
    }
    let waits = gpuvol_csi::view::connections::Connections::open().unwrap();
    assert_eq!(waits.waiting(mounts[0].connection).unwrap(), Some(0));
}
