//! A client process that tests start, watch and kill. Says what it did, one JSON line each, and then stays until it is
//! killed or its standard input ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own process fails by panicking")]

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use gpuvol_client::{OpenOptions, PutOptions, Volume};
use gpuvol_process_tests::node::path;
use gpuvol_process_tests::raw::RawClient;
use sha2::{Digest, Sha256};

#[derive(Parser)]
struct Flags {
    /// Where the volume is published.
    mount: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Puts bytes made from a seed.
    Put { path: String, size: u64, seed: u64 },
    /// Reserves and fills memory, and never seals it.
    Reserve { path: String, size: u64 },
    /// Opens an object, says its checksum, and keeps it open.
    Open { path: String },
    /// Puts small objects under a directory as fast as it can, `n0`, `n1`, …, saying each number.
    Stream { directory: String },
}

fn main() {
    let flags = Flags::parse();
    let volume = Volume::at_mount(&flags.mount).expect("the volume answers");
    match flags.what {
        What::Put { path: at, size, seed } => {
            let bytes = pattern(size, seed);
            let start = Instant::now();
            let put = volume.put_bytes(&path(&at), &bytes, &PutOptions::default()).expect("put");
            say(
                &serde_json::json!({"version": put.version, "way": put.way.name(), "seconds": start.elapsed().as_secs_f64()}),
            );
            stay();
        }
        What::Reserve { path: at, size } => {
            let mut raw = RawClient::connect(&flags.mount);
            let (created, memory) = raw.reserve(&at, size).expect("reserve");
            std::fs::File::from(memory).write_all_at(&pattern(size, 1), 0).expect("fill");
            say(&serde_json::json!({"reserved": created.reserved}));
            stay();
        }
        What::Open { path: at } => {
            let start = Instant::now();
            let options = OpenOptions { wait: Duration::from_secs(10), ..OpenOptions::default() };
            let object = volume.open(&path(&at), &options).expect("open");
            let seconds = start.elapsed().as_secs_f64();
            let bytes = object.bytes().expect("bytes");
            say(
                &serde_json::json!({"size": object.size(), "way": object.way().name(), "sha256": checksum(&bytes), "seconds": seconds}),
            );
            stay();
        }
        What::Stream { directory } => {
            for n in 0.. {
                let at = path(&format!("{directory}/n{n}"));
                volume.put_bytes(&at, &pattern(100 + n, n), &PutOptions::default()).expect("put");
                say(&serde_json::json!({"n": n}));
            }
        }
    }
}

fn say(line: &serde_json::Value) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Until the parent closes our input, or kills us.
fn stay() {
    let _ = std::io::stdin().read(&mut [0]);
}

fn pattern(size: u64, seed: u64) -> Vec<u8> {
    gpuvol_process_tests::pattern(size, seed)
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
