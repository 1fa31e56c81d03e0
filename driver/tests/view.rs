//! The file view through a real mount, served by a real mounter, with a store in this process.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

#[path = "support/view_mount.rs"]
mod view_mount;
#[path = "support/view_rig.rs"]
mod view_rig;
#[path = "support/view_store.rs"]
mod view_store;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use view_mount::{Mount, eventually};
use view_rig::Rig;

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_are_written_read_renamed_and_removed() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("a.bin");
    let content: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    fs::write(&path, &content).unwrap();
    assert_eq!(fs::read(&path).unwrap(), content);
    assert_eq!(fs::metadata(&path).unwrap().len(), content.len() as u64);
    fs::create_dir(rig.path("d")).unwrap();
    fs::rename(&path, rig.path("d/b.bin")).unwrap();
    assert_eq!(fs::read(rig.path("d/b.bin")).unwrap(), content);
    assert_eq!(names(&rig.mount.path), ["d"]);
    assert_eq!(names(&rig.path("d")), ["b.bin"]);
    assert_eq!(fs::remove_dir(rig.path("d")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_file(rig.path("d/b.bin")).unwrap();
    fs::remove_dir(rig.path("d")).unwrap();
    assert!(names(&rig.mount.path).is_empty());
    eventually("the last release", || rig.store.volume().open_handles() == 0);
}

#[test]
fn a_small_file_is_read_whole_and_replaced() {
    let Some(rig) = Rig::new() else { return };
    rig.store.seal("s", b"sealed");
    let mut reader = File::open(rig.path("s")).unwrap();
    assert_eq!(fs::read(rig.path("s")).unwrap(), b"sealed");
    fs::write(rig.path("s"), b"newer one").unwrap();
    assert_eq!(fs::read(rig.path("s")).unwrap(), b"newer one");
    let mut old = String::new();
    reader.read_to_string(&mut old).unwrap();
    assert_eq!(old, "sealed");
    let mut update = fs::OpenOptions::new().write(true).open(rig.path("s")).unwrap();
    update.seek(SeekFrom::Start(6)).unwrap();
    update.write_all(b"two").unwrap();
    drop(update);
    assert_eq!(fs::read(rig.path("s")).unwrap(), b"newer two");
}

#[test]
fn a_large_sealed_file_is_read_by_the_kernel_itself() {
    let Some(rig) = Rig::new() else { return };
    let content: Vec<u8> = (0..2_000_000u32).map(|i| (i >> 4) as u8).collect();
    rig.store.seal("big", &content);
    let (one, two) = (File::open(rig.path("big")).unwrap(), File::open(rig.path("big")).unwrap());
    let mut bytes = vec![0; content.len()];
    one.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, content);
    two.read_exact_at(&mut bytes[..100], 1_000_000).unwrap();
    assert_eq!(bytes[..100], content[1_000_000..1_000_100]);
    assert_eq!(rig.store.volume().backings().len(), 1, "two opens share one id");
    drop((one, two));
    eventually("both releases", || rig.store.volume().open_handles() == 0);
    assert_eq!(fs::read(rig.path("big")).unwrap(), content);
    assert_eq!(rig.store.volume().count("backing"), 3);
}

#[test]
fn without_passthrough_reads_go_through_the_mounter() {
    let Some(rig) = Rig::with(false) else { return };
    let content: Vec<u8> = (0..2_000_000u32).map(|i| (i >> 4) as u8).collect();
    rig.store.seal("big", &content);
    assert_eq!(fs::read(rig.path("big")).unwrap(), content);
    assert_eq!(rig.store.volume().count("backing"), 0);
}

#[test]
fn directories_of_any_size_are_listed_once() {
    let Some(rig) = Rig::new() else { return };
    let want: Vec<String> = (0..500).map(|i| format!("{i:04}-with-a-name-of-some-length")).collect();
    for name in &want {
        rig.store.seal(name, b"x");
    }
    assert_eq!(names(&rig.mount.path), want);
    let sizes: u64 = fs::read_dir(&rig.mount.path).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(sizes, 500);
    // A name that goes while the directory is read takes no other with it.
    let mut seen = 0;
    for entry in fs::read_dir(&rig.mount.path).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        seen += 1;
    }
    assert_eq!((seen, names(&rig.mount.path).len()), (500, 0));
}

#[test]
fn the_socket_is_found_everywhere_and_listed_nowhere() {
    let Some(rig) = Rig::new() else { return };
    let socket = rig.path(".gpuvol.sock");
    assert!(!socket.exists());
    let listener = UnixListener::bind(&socket).unwrap();
    fs::create_dir_all(rig.path("a/b")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| UnixStream::connect(rig.path("a/b/.gpuvol.sock")).unwrap());
        listener.accept().unwrap();
    });
    assert_eq!(names(&rig.path("a/b")), Vec::<String>::new());
    assert_eq!(names(&rig.mount.path), ["a"]);
    let error = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    assert_eq!(error(fs::remove_file(&socket)), libc::EPERM);
    assert_eq!(error(fs::rename(&socket, rig.path("x"))), libc::EPERM);
    fs::write(rig.path("f"), b"").unwrap();
    assert_eq!(error(fs::rename(rig.path("f"), &socket)), libc::EPERM);
    assert_eq!(error(fs::create_dir(&socket)), libc::EEXIST);
    assert_eq!(error(symlink("f", rig.path("a/.gpuvol.sock"))), libc::EEXIST);
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o777);
    assert!(UnixListener::bind(rig.path("other.sock")).is_err());
}

#[test]
fn a_full_volume_is_enospc_and_the_release_says_so() {
    let Some(rig) = Rig::new() else { return };
    rig.store.volume().capacity = 4 << 20;
    let mut file = File::create(rig.path("big")).unwrap();
    let error = file.write_all(&vec![1; 8 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    drop(file);
    eventually("a release that says so", || rig.store.volume().released_failed == 1);
}

#[test]
fn links_times_modes_and_attributes() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), b"12").unwrap();
    symlink("f", rig.path("l")).unwrap();
    assert_eq!(fs::read_link(rig.path("l")).unwrap().as_os_str().as_bytes(), b"f");
    assert_eq!(fs::read(rig.path("l")).unwrap(), b"12");
    assert_eq!(fs::hard_link(rig.path("f"), rig.path("h")).unwrap_err().raw_os_error(), Some(libc::EPERM));
    fs::set_permissions(rig.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(rig.path("f")).unwrap().mode() & 0o7777, 0o640);
    let long = "n".repeat(256);
    assert_eq!(fs::write(rig.path(&long), b"").unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
    let stat = rustix::fs::statvfs(&rig.mount.path).unwrap();
    assert_eq!((stat.f_bsize, stat.f_blocks, stat.f_files), (4096, (1 << 30) / 4096, 1000));
    let mut list = [0u8; 100];
    let len = rustix::fs::listxattr(rig.path("f"), &mut list[..]).unwrap();
    assert_eq!(&list[..len], b"user.gpuvol.kind\0");
    assert_eq!(rustix::fs::listxattr(rig.path("f"), &mut [0u8; 3][..]), Err(rustix::io::Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(rig.path("f"), "user.none", &mut list[..]), Err(rustix::io::Errno::NODATA));
    let flags = rustix::fs::XattrFlags::empty();
    assert_eq!(rustix::fs::setxattr(rig.path("f"), "trusted.x", b"1", flags), Err(rustix::io::Errno::OPNOTSUPP));
}

#[test]
fn two_mounts_append_to_one_file() {
    let Some(rig) = Rig::new() else { return };
    let other = Mount::new(&rig.state().join("other"), true);
    let (session, fuse, journal) = other.session("p2");
    rig.store.publish(session, fuse, journal);
    fs::write(rig.path("log"), b"").unwrap();
    let append = |path: std::path::PathBuf, line: &'static [u8]| {
        move || {
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            for _ in 0..500 {
                file.write_all(line).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        // One opened before both, so that the draft is one for both.
        let _keep = fs::OpenOptions::new().append(true).open(rig.path("log")).unwrap();
        let one = scope.spawn(append(rig.path("log"), b"first\n"));
        let two = scope.spawn(append(other.join("log"), b"second\n"));
        one.join().unwrap();
        two.join().unwrap();
    });
    let text = fs::read_to_string(rig.path("log")).unwrap();
    assert_eq!(text.lines().filter(|line| *line == "first").count(), 500);
    assert_eq!(text.lines().filter(|line| *line == "second").count(), 500);
    assert_eq!(text.len(), 500 * 13);
}

#[test]
fn holes_seeks_and_copies() {
    let Some(rig) = Rig::new() else { return };
    let file = File::options().create(true).truncate(true).read(true).write(true).open(rig.path("f")).unwrap();
    file.write_all_at(&[1; 10_000], 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 110_000);
    use rustix::fs::FallocateFlags as F;
    rustix::fs::fallocate(&file, F::PUNCH_HOLE | F::KEEP_SIZE, 102_400, 4096).unwrap();
    let mut bytes = [9; 4096];
    file.read_exact_at(&mut bytes, 102_400).unwrap();
    assert_eq!(bytes, [0; 4096]);
    rustix::fs::fallocate(&file, F::empty(), 0, 200_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 200_000);
    rustix::fs::fallocate(&file, F::ZERO_RANGE, 199_000, 2_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 201_000);
    let same = rustix::fs::fallocate(&file, F::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(same, Err(rustix::io::Errno::OPNOTSUPP));
    let copy = File::options().create(true).truncate(true).read(true).write(true).open(rig.path("c")).unwrap();
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 100_000), &copy, Some(&mut 5), 2_000).unwrap();
    assert_eq!(copied, 2_000);
    let mut bytes = [9; 2_005];
    copy.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes[..5], &bytes[5..]), (&[0; 5][..], &[1; 2_000][..]));
    assert!(rustix::fs::seek(&copy, rustix::fs::SeekFrom::Hole(0)).is_ok());
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
    file.write_all_at(b"after", 3).unwrap();
    assert_eq!(fs::read(rig.path("f")).unwrap(), b"\0\0\0after");
}

#[test]
fn mapped_files_are_written_back() {
    let Some(rig) = Rig::new() else { return };
    // A process that serves a store must not wait for a page of its mount: its other threads could wait for that.
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "map_a_file", "--ignored"])
        .env("GPUVOL_TEST_MAP", rig.path("m"))
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let bytes = fs::read(rig.path("m")).unwrap();
    assert_eq!((bytes.len(), bytes[5000]), (8192, 77));
}

#[test]
#[ignore = "a part of another test, in a process of its own"]
fn map_a_file() {
    let Some(path) = std::env::var_os("GPUVOL_TEST_MAP") else { return };
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    file.set_len(8192).unwrap();
    let flags = rustix::mm::MapFlags::SHARED;
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: a fresh mapping of a file of that size, used below and unmapped once.
    let map = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, prot, flags, &file, 0).unwrap() };
    // SAFETY: within the mapping.
    unsafe { map.cast::<u8>().add(5000).write(77) };
    // SAFETY: the mapping above; nobody uses it afterwards.
    unsafe {
        rustix::mm::msync(map, 8192, rustix::mm::MsyncFlags::SYNC).unwrap();
        rustix::mm::munmap(map, 8192).unwrap();
    }
}

#[test]
fn an_unpublished_mount_ends() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), b"1").unwrap();
    rig.store.unpublish("p1");
    // Still mounted, so it has to be ended.
    eventually("an end", || fs::metadata(rig.path("f")).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN)));
}
