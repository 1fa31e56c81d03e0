//! Clients that lie: a typed error, a request or connection that ends, and nothing that leaks.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use gpuvol_client::{OpenOptions, PutOptions};
use gpuvol_process_tests::node::{path, wait_for};
use gpuvol_process_tests::raw::RawClient;
use gpuvol_process_tests::{TestNode, TestVolume, pattern};
use gpuvol_protocol::Code;
use gpuvol_protocol::message::{
    Allocation, AllocationKind, Answer, Create, Kind, Mkdir, Op, Open, PutInline, Rename, Seal, Segment, Stat, Tier,
};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

struct Ground {
    node: TestNode,
    volume: TestVolume,
    fds: usize,
}

impl Ground {
    fn new() -> Self {
        let node = TestNode::start();
        let volume = node.volume("v", 256 * MIB);
        // One put and open first, so that what is made once is made.
        let client = volume.connect();
        client.put_bytes(&path("warm"), b"x", &PutOptions::default()).unwrap();
        drop(client);
        node.wait_status("the end of the lease", |s| s.leases == 0 && s.connections == 0);
        // The status call's own connection closes in its own time.
        let fds = (0..20).map(|_| store_fds(&node)).min().unwrap();
        Self { node, volume, fds }
    }

    /// Nothing is left of what the test's clients did.
    fn check(self) {
        self.node.wait_status("the end of the leases", |s| s.leases == 0 && s.connections == 0);
        wait_for("the closing of descriptors", || store_fds(&self.node) <= self.fds);
        let client = self.volume.connect();
        let usage = client.usage().unwrap();
        assert_eq!((usage.used, usage.entries), (64, 1), "{usage:?}");
        assert_eq!(client.open(&path("warm"), &OpenOptions::default()).unwrap().bytes().unwrap(), "x");
    }
}

fn store_fds(node: &TestNode) -> usize {
    std::thread::sleep(Duration::from_millis(5));
    std::fs::read_dir(format!("/proc/{}/fd", node.store_pid())).unwrap().count()
}

fn sealed_memfd(size: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::io::pwrite(&fd, &pattern(size, 1), 0).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn good_memfd(size: u64) -> OwnedFd {
    sealed_memfd(size, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
}

fn memfd(len: u64) -> Allocation {
    Allocation { id: 0, kind: AllocationKind::Memfd.into(), len, device: vec![] }
}

fn segment(allocation: u32, offset: u64, len: u64) -> Segment {
    Segment { allocation, offset, len, inline: vec![] }
}

/// Reserves, and seals with the reservation's own memory and one descriptor more.
fn seal_with(raw: &mut RawClient, fd: &OwnedFd, allocation: Allocation, segments: Vec<Segment>) -> Result<u64, Code> {
    let (created, memory) = raw.reserve("x", 4 * MIB).map_err(|f| f.code())?;
    drop(memory);
    let seal = Seal {
        reservation: created.reservation,
        kind: Kind::Bytes.into(),
        allocations: vec![allocation],
        segments,
        ..Seal::default()
    };
    match raw.call(Op::Seal(seal), &[fd.as_fd()]) {
        Ok((Answer::Sealed(sealed), _)) => Ok(sealed.version),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => {
            assert!(fault.message.starts_with("x: "), "the message names the path: {}", fault.message);
            Err(fault.code())
        }
    }
}

#[test]
fn descriptors_that_are_not_sealed_memory_are_refused() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let whole = vec![segment(1, 0, PAGE)];
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    let holey = {
        let fd = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, PAGE).unwrap();
        rustix::fs::fcntl_add_seals(&fd, all).unwrap();
        fd
    };
    let file: OwnedFd = {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&pattern(PAGE, 1)).unwrap();
        file.into()
    };
    let shm: OwnedFd = {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all(&pattern(PAGE, 1)).unwrap();
        file.into()
    };
    let (pipe, _write) = std::io::pipe().unwrap();
    let cases: Vec<(&str, OwnedFd)> = vec![
        ("an unsealed memfd", sealed_memfd(PAGE, SealFlags::empty())),
        ("a memfd that can grow", sealed_memfd(PAGE, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::WRITE)),
        ("a memfd that can be written", sealed_memfd(PAGE, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)),
        ("a memfd with a hole", holey),
        ("a memfd of another size", good_memfd(2 * PAGE)),
        ("a regular file", file),
        ("a tmpfs file", shm),
        ("a pipe", pipe.into()),
        ("a directory", std::fs::File::open("/").unwrap().into()),
        ("a device", std::fs::File::open("/dev/null").unwrap().into()),
        ("a socket", std::os::unix::net::UnixStream::pair().unwrap().0.into()),
    ];
    for (what, fd) in &cases {
        assert_eq!(seal_with(&mut raw, fd, memfd(PAGE), whole.clone()), Err(Code::BadMemory), "{what}");
    }
    if let Ok(huge) = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB) {
        rustix::fs::ftruncate(&huge, 2 * MIB).unwrap();
        rustix::fs::fcntl_add_seals(&huge, all).unwrap();
        let huge_segment = vec![segment(1, 0, 2 * MIB)];
        assert_eq!(seal_with(&mut raw, &huge, memfd(2 * MIB), huge_segment), Err(Code::BadMemory));
    }
    // What they were said to be instead.
    let good = good_memfd(PAGE);
    assert_eq!(seal_with(&mut raw, &good, memfd(PAGE + 1), whole.clone()), Err(Code::InvalidArgument));
    assert_eq!(seal_with(&mut raw, &good, memfd(0), whole.clone()), Err(Code::InvalidArgument));
    let unknown = Allocation { kind: 9, ..memfd(PAGE) };
    assert_eq!(seal_with(&mut raw, &good, unknown, whole.clone()), Err(Code::InvalidArgument));
    let device = Allocation { kind: AllocationKind::CudaVmm.into(), device: vec![7; 16], ..memfd(2 * MIB) };
    assert_eq!(seal_with(&mut raw, &good, device, whole), Err(Code::DeviceMismatch));
    drop(raw);
    ground.check();
}

#[test]
fn lying_segment_tables_are_refused() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let inline = |bytes: &[u8], len| Segment { inline: bytes.to_vec(), len, ..Segment::default() };
    let cases = vec![
        vec![],
        vec![segment(1, 0, 4 * MIB + 1)],
        vec![segment(0, 4 * MIB, 1)],
        vec![segment(0, u64::MAX, 2)],
        vec![segment(0, 1, u64::MAX)],
        vec![segment(0, 0, i64::MAX as u64 + 1)],
        vec![segment(2, 0, 1)],
        vec![segment(u32::MAX, 0, 1)],
        vec![inline(b"abc", 4)],
        vec![inline(&pattern(600 * 1024, 1), 600 * 1024)],
        vec![segment(0, 0, 0); 10_000],
        vec![segment(0, 0, 4 * MIB); 8000],
    ];
    for (at, segments) in cases.into_iter().enumerate() {
        let (created, memory) = raw.reserve("x", 4 * MIB).unwrap();
        drop(memory);
        let seal = Seal { reservation: created.reservation, segments, ..Seal::default() };
        let result = raw.call(Op::Seal(seal), &[]);
        if at == 11 {
            // Overlapping segments are odd, and harmless: they name memory that was paid for.
            assert!(result.is_ok());
            raw.call(Op::Unlink(gpuvol_protocol::message::Unlink { path: "x".into(), directory: false }), &[]).unwrap();
        } else {
            assert_eq!(result.unwrap_err().code(), Code::InvalidArgument, "case {at}");
        }
    }
    drop(raw);
    ground.check();
}

#[test]
fn memory_beyond_the_reservation_is_refused() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let large = good_memfd(PAGE);
    let result = seal_with(&mut raw, &large, memfd(PAGE), vec![segment(0, 0, 10), segment(1, 0, 10)]);
    assert_eq!(result, Err(Code::InvalidArgument));
    // A reservation is the business of the client that made it.
    let (created, _memory) = raw.reserve("x", MIB).unwrap();
    let mut other = RawClient::connect(&ground.volume.mount);
    let seal = Seal { reservation: created.reservation, segments: vec![segment(0, 0, 1)], ..Seal::default() };
    assert_eq!(other.call(Op::Seal(seal), &[]).unwrap_err().code(), Code::NotFound);
    drop((raw, other));
    ground.check();
}

#[test]
fn memory_that_is_still_written_is_not_sealed() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let (created, memory) = raw.reserve("x", MIB).unwrap();
    let allocation =
        gpuvol_memory::Memory::import(&gpuvol_memory::HostMemory, memory.try_clone().unwrap(), MIB).unwrap();
    let mapping = gpuvol_memory::Allocation::map(&allocation, gpuvol_memory::Access::ReadWrite).unwrap();
    let seal =
        || Op::Seal(Seal { reservation: created.reservation, segments: vec![segment(0, 0, 9)], ..Seal::default() });
    let fault = raw.call(seal(), &[]).unwrap_err();
    assert_eq!(fault.code(), Code::BadMemory, "{fault}");
    drop((mapping, allocation));
    // Punched out meanwhile: readers find zeros that the store has paid for.
    rustix::fs::fallocate(&memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, MIB).unwrap();
    raw.call(seal(), &[]).unwrap();
    assert!(rustix::fs::fstat(&memory).unwrap().st_blocks * 512 >= i64::try_from(MIB).unwrap());
    // Sealed means sealed, also for who still has the descriptor.
    assert!(rustix::io::pwrite(&memory, b"y", 0).is_err());
    drop(memory);
    raw.call(Op::Unlink(gpuvol_protocol::message::Unlink { path: "x".into(), directory: false }), &[]).unwrap();
    drop(raw);
    ground.check();
}

#[test]
fn paths_that_leave_the_volume_are_refused() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let long = "x/".repeat(3000);
    for bad in
        ["..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/", "./a", "a\0b", ".gpuvol.sock", "d/.gpuvol.sock", &long]
    {
        let bytes = || bad.as_bytes().to_vec();
        let ops = [
            Op::Stat(Stat { path: bytes() }),
            Op::Open(Open { path: bytes(), ..Open::default() }),
            Op::PutInline(PutInline { path: bytes(), ..PutInline::default() }),
            Op::Create(Create { path: bytes(), size: 1, ..Create::default() }),
            Op::Mkdir(Mkdir { path: bytes(), parents: true }),
            Op::Rename(Rename { from: b"warm".to_vec(), to: bytes(), no_replace: false }),
        ];
        for op in ops {
            let fault = raw.call(op, &[]).unwrap_err();
            assert_eq!(fault.code(), Code::InvalidArgument, "{bad:?}");
            assert!(fault.message.len() < 1000);
        }
    }
    drop(raw);
    ground.check();
}

#[test]
fn impossible_sizes_devices_and_kinds_are_refused() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let create = |size, tier: Tier, device: &[u8]| {
        Op::Create(Create { path: "x".into(), size, tier: tier.into(), device: device.to_vec() })
    };
    let mut code = |op| raw.call(op, &[]).unwrap_err().code();
    assert_eq!(code(create(0, Tier::Host, &[])), Code::InvalidArgument);
    assert_eq!(code(create(u64::MAX, Tier::Host, &[])), Code::InvalidArgument);
    assert_eq!(code(create(i64::MAX as u64, Tier::Host, &[])), Code::QuotaExceeded);
    assert_eq!(code(create(257 * MIB, Tier::Host, &[])), Code::QuotaExceeded);
    assert_eq!(code(create(1, Tier::Gpu, b"short")), Code::InvalidArgument);
    assert_eq!(code(create(1, Tier::Gpu, &[9; 16])), Code::OutOfMemory);
    assert_eq!(code(Op::Create(Create { path: "x".into(), size: 1, tier: 77, device: vec![] })), Code::InvalidArgument);
    let inline = |kind, content| Op::PutInline(PutInline { path: "x".into(), kind, content, ..PutInline::default() });
    assert_eq!(code(inline(77, vec![])), Code::InvalidArgument);
    assert_eq!(code(inline(0, vec![0; 65_537])), Code::InvalidArgument);
    drop(raw);
    ground.check();
}

#[test]
fn broken_frames_end_the_connection_and_nothing_else() {
    let ground = Ground::new();
    let socket = || std::os::unix::net::UnixStream::connect(ground.volume.mount.join(".gpuvol.sock")).unwrap();
    let bytes: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff, 0xff, 0xff, 0xff],
        &[4, 0, 0, 0, 1],
        &[0, 0, 0, 0],
        &[2, 0, 0, 0, 0xff, 0xff],
        &[1],
    ];
    for frame in bytes {
        let mut hello = socket();
        hello.write_all(frame).unwrap();
        let raw = RawClient::connect(&ground.volume.mount);
        raw.channel.socket().try_clone().unwrap().write_all(frame).unwrap();
        if frame != [0, 0, 0, 0] {
            hello.shutdown(std::net::Shutdown::Write).unwrap();
            raw.channel.socket().shutdown(std::net::Shutdown::Write).unwrap();
        }
    }
    // A frame that stalls is given up at its deadline, and keeps nobody else waiting.
    let mut stalled = RawClient::connect(&ground.volume.mount);
    stalled.channel.socket().try_clone().unwrap().write_all(&[100, 0, 0, 0, 1, 2, 3]).unwrap();
    assert!(RawClient::connect(&ground.volume.mount).is_connected());
    std::thread::sleep(Duration::from_secs(11));
    assert!(!stalled.is_connected());
    drop(stalled);
    // Too many descriptors, and descriptors where none belong.
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let fault = raw.call(Op::Stat(Stat::default()), &[null.as_fd()]).unwrap_err();
    assert_eq!(fault.code(), Code::Protocol);
    let (created, memory) = raw.reserve("x", MIB).unwrap();
    drop(memory);
    let seal = Seal { reservation: created.reservation, segments: vec![segment(0, 0, 1)], ..Seal::default() };
    let fault = raw.call(Op::Seal(seal), &[null.as_fd(); 64]).unwrap_err();
    assert_eq!(fault.code(), Code::InvalidArgument);
    drop(raw);
    ground.check();
}

#[test]
fn a_repeated_request_has_one_effect() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let create = || Op::Create(Create { path: "x".into(), size: MIB, ..Create::default() });
    let (Answer::Created(first), _) = raw.call_as(50, create(), &[]).unwrap() else { panic!() };
    let (Answer::Created(second), fds) = raw.call_as(50, create(), &[]).unwrap() else { panic!() };
    assert_eq!((first.reservation, fds.len()), (second.reservation, 1));
    drop(fds);
    let seal =
        || Op::Seal(Seal { reservation: first.reservation, segments: vec![segment(0, 0, 100)], ..Seal::default() });
    let (Answer::Sealed(first), _) = raw.call_as(51, seal(), &[]).unwrap() else { panic!() };
    let (Answer::Sealed(second), _) = raw.call_as(51, seal(), &[]).unwrap() else { panic!() };
    assert_eq!(first.version, second.version);
    // The same hold twice is one hold: released once, nothing pins it.
    let open = || Op::Open(Open { path: "x".into(), ..Open::default() });
    raw.call_as(52, open(), &[]).unwrap();
    raw.call_as(52, open(), &[]).unwrap();
    let unlink = || Op::Unlink(gpuvol_protocol::message::Unlink { path: "x".into(), directory: false });
    raw.call_as(53, unlink(), &[]).unwrap();
    raw.call_as(53, unlink(), &[]).unwrap();
    let client = ground.volume.connect();
    assert_eq!(client.usage().unwrap().pinned, MIB);
    let request =
        gpuvol_protocol::message::Request { id: 54, released: vec![52], op: Some(Op::Ping(Default::default())) };
    raw.channel.send(&request, &[]).unwrap();
    raw.channel.receive::<gpuvol_protocol::message::Reply>(None).unwrap();
    assert_eq!(client.usage().unwrap().pinned, 0);
    drop((raw, client));
    ground.check();
}

/// An open that was answered into a lost connection, and sent again after the path was replaced.
#[test]
fn a_repeated_open_moves_with_its_path() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let client = ground.volume.connect();
    let open = || Op::Open(Open { path: "x".into(), ..Open::default() });
    for seed in 0..3 {
        client.put_bytes(&path("x"), &pattern(MIB, seed), &PutOptions::default()).unwrap();
        raw.call_as(52, open(), &[]).unwrap();
    }
    assert_eq!(client.usage().unwrap().pinned, 0, "replaced versions are pinned");
    client.unlink(&path("x")).unwrap();
    assert_eq!(client.usage().unwrap().pinned, MIB);
    drop(client);
    drop(raw);
    ground.check();
}

#[test]
fn a_lease_without_its_pipe_is_over() {
    let ground = Ground::new();
    let mut raw = RawClient::connect(&ground.volume.mount);
    let lease = raw.welcome.lease.clone();
    raw.reserve("x", MIB).unwrap();
    raw.pipe = None;
    ground.node.wait_status("the end of the lease", |s| s.leases == 0);
    let fault = raw.reserve("x", MIB).unwrap_err();
    assert_eq!(fault.code(), Code::LeaseEnded);
    // Its id opens nothing any more: who asks gets a new one.
    let again = RawClient::join(&ground.volume.mount, &lease);
    assert!(again.welcome.lease != lease && again.pipe.is_some());
    drop((raw, again));
    ground.check();
}

#[test]
fn two_stores_never_serve_one_state_directory() {
    let ground = Ground::new();
    for (name, what) in [("gpuvol-store", "store"), ("gpuvol-keeper", "keeper")] {
        let out = std::process::Command::new(gpuvol_process_tests::binary(name, "gpuvol-store"))
            .arg("--state")
            .arg(ground.node.state())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains(&format!("{what}/lock")), "{error}");
    }
    ground.check();
}
