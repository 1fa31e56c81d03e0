//! Ratios on host memory, each against its baseline in the same run: round trips against a bare ping-pong, opens of
//! different sizes against each other, and how a volume of many small objects scales.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench fails by panicking")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use gpuvol_client::{OpenOptions, PutOptions, Volume};
use gpuvol_process_tests::node::path;
use gpuvol_process_tests::{TestNode, pattern};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn main() {
    if let Some(socket) = std::env::args().nth(2).filter(|_| std::env::args().nth(1).as_deref() == Some("echo")) {
        return echo(&socket);
    }
    let node = TestNode::with(&["--host-budget", "20GiB"], &[]);
    println!("| what | p50 | p99 | ratio |");
    println!("|---|---|---|---|");
    let pong = ping_pong(&node);
    let volume = node.volume("bench", 12 * GIB).connect();
    round_trips(&volume, pong);
    sizes(&volume);
    puts(&volume);
    small_objects(&node);
}

/// Answers 64 bytes with 64 bytes, until the other side is gone.
fn echo(socket: &str) {
    let mut stream = UnixListener::bind(socket).unwrap().accept().unwrap().0;
    let mut bytes = [0; 64];
    while stream.read_exact(&mut bytes).is_ok() {
        stream.write_all(&bytes).unwrap();
    }
}

struct Times {
    p50: f64,
    p99: f64,
}

/// Microseconds of `count` runs, after as many warm-up runs as a tenth of that.
fn time(count: usize, mut body: impl FnMut(usize)) -> Times {
    (0..count / 10).for_each(&mut body);
    let mut times: Vec<f64> = (0..count)
        .map(|n| {
            let start = Instant::now();
            body(n);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Times { p50: times[count / 2], p99: times[count * 99 / 100] }
}

fn row(what: &str, times: &Times, ratio: &str) {
    println!("| {what} | {:.1} us | {:.1} us | {ratio} |", times.p50, times.p99);
}

/// 64 bytes there and back over a Unix stream socket, between two processes that block in read.
fn ping_pong(node: &TestNode) -> f64 {
    let socket = node.state().join("echo.sock");
    let mut child =
        std::process::Command::new(std::env::current_exe().unwrap()).arg("echo").arg(&socket).spawn().unwrap();
    gpuvol_process_tests::node::wait_for("echo", || socket.exists());
    let mut stream = UnixStream::connect(&socket).unwrap();
    let mut bytes = [7; 64];
    let times = time(20_000, |_| {
        stream.write_all(&bytes).unwrap();
        stream.read_exact(&mut bytes).unwrap();
    });
    drop(stream);
    child.wait().unwrap();
    row("bare ping-pong of 64 bytes", &times, "1");
    times.p50
}

fn round_trips(volume: &Volume, pong: f64) {
    volume.put_bytes(&path("small"), &pattern(1000, 1), &PutOptions::default()).unwrap();
    volume.put_bytes(&path("large"), &pattern(MIB, 1), &PutOptions::default()).unwrap();
    let against = |times: &Times| format!("{:.2} x ping-pong", times.p50 / pong);
    let stat = time(20_000, |_| drop(volume.stat(&path("small")).unwrap()));
    row("stat", &stat, &against(&stat));
    let open = time(20_000, |_| drop(volume.open(&path("small"), &OpenOptions::default()).unwrap()));
    row("open of 1000 bytes, inline", &open, &against(&open));
    let mut kept = Vec::with_capacity(22_000);
    let open = time(10_000, |_| kept.push(volume.open(&path("large"), &OpenOptions::default()).unwrap()));
    row("open of 1 MiB, mapped", &open, &against(&open));
    let close = time(10_000, |_| drop(kept.pop()));
    row("close of it", &close, &against(&close));
}

fn sizes(volume: &Volume) {
    let mut first = None;
    for size in [MIB, 64 * MIB, 4 * GIB] {
        volume.put_bytes(&path("sized"), &pattern(size, 1), &PutOptions::default()).unwrap();
        let mut byte = 0;
        let times = time(2_000, |_| {
            let object = volume.open(&path("sized"), &OpenOptions::default()).unwrap();
            byte ^= object.bytes().unwrap()[0];
        });
        let base = *first.get_or_insert(times.p50);
        row(
            &format!("open, map, read a byte, close: {} MiB", size / MIB),
            &times,
            &format!("{:.2} x 1 MiB", times.p50 / base),
        );
    }
    volume.unlink(&path("sized")).unwrap();
}

fn puts(volume: &Volume) {
    for (size, count) in [(1000, 5000), (MIB, 500), (GIB, 3)] {
        let bytes = pattern(size, 1);
        let mut copy = vec![0_u8; bytes.len()];
        let memcpy = time(count.min(200), |_| copy.copy_from_slice(&bytes));
        let times = time(count, |_| {
            volume.put_bytes(&path("put"), &bytes, &PutOptions::default()).unwrap();
        });
        row(&format!("put of {size} bytes"), &times, &format!("{:.2} x one warm memcpy", times.p50 / memcpy.p50));
    }
}

fn small_objects(node: &TestNode) {
    let volume = node.volume("many", 2 * GIB).connect();
    let rss = || status_kib(node.store_pid(), "VmRSS:");
    let before = rss();
    let mut made = 0;
    let mut first: Option<[f64; 3]> = None;
    for count in [1_000_u32, 10_000, 100_000] {
        while made < count {
            let at = path(&format!("many/{:03}/{made:06}", made % 100));
            volume.put_bytes(&at, &pattern(200, u64::from(made)), &PutOptions::default()).unwrap();
            made += 1;
        }
        let pick = |n: usize| {
            let n = (u32::try_from(n).unwrap().wrapping_mul(7919)) % count;
            path(&format!("many/{:03}/{n:06}", n % 100))
        };
        let open = time(3_000, |n| drop(volume.open(&pick(n), &OpenOptions::default()).unwrap()));
        let stat = time(3_000, |n| drop(volume.stat(&pick(n)).unwrap()));
        let list = time(500, |n| drop(volume.list_page(&path(&format!("many/{:03}", n % 100)), b"", 10).unwrap()));
        let base = *first.get_or_insert([open.p50, stat.p50, list.p50]);
        for ((what, times), base) in
            [("open", &open), ("stat", &stat), ("list a page of 10", &list)].into_iter().zip(base)
        {
            row(&format!("{what} among {count}"), times, &format!("{:.2} x among 1000", times.p50 / base));
        }
    }
    let each = (rss() - before) as f64 * 1024.0 / f64::from(made);
    let fds = std::fs::read_dir(format!("/proc/{}/fd", node.store_pid())).unwrap().count();
    println!();
    println!(
        "{made} objects of 200 bytes: {each:.0} bytes of the store's memory each, {} bytes of catalogue log each, {fds} descriptors in the store, {} held by the keeper",
        node.status().log_bytes / u64::from(made),
        node.status().held
    );
}

fn status_kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
