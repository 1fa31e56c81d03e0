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
    /// Puts bytes piece by piece, never having more than one piece in memory of its own.
    PutPieces { path: String, size: u64, seed: u64 },
    /// Opens an object and reads it where it is.
    ReadPieces { path: String },
    /// Opens an object, says its checksum, and keeps it open.
    Open {
        path: String,
        /// Only the object's own memory will do.
        #[arg(long)]
        in_place: bool,
    },
    /// Puts device memory of the first GPU, and times it against a copy within the GPU.
    GpuPut { path: String, size: u64, seed: u64 },
    /// Opens an object in GPU memory, says how long that took with CUDA up, and its checksum.
    GpuOpen { path: String },
    /// Puts small objects under a directory as fast as it can, `n0`, `n1`, …, saying each number.
    Stream { directory: String },
}

fn main() {
    let flags = Flags::parse();
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let clock = tracing_subscriber::fmt::time::uptime();
    tracing_subscriber::fmt().with_env_filter(filter).with_timer(clock).with_writer(std::io::stderr).init();
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
        What::Open { path: at, in_place } => {
            let start = Instant::now();
            let options = OpenOptions { wait: Duration::from_secs(10), in_place, ..OpenOptions::default() };
            let object = or_end(volume.open(&path(&at), &options));
            let seconds = start.elapsed().as_secs_f64();
            let bytes = or_end(object.bytes());
            say(
                &serde_json::json!({"size": object.size(), "way": object.way().name(), "sha256": checksum(&bytes), "seconds": seconds}),
            );
            stay();
        }
        What::PutPieces { path: at, size, seed } => {
            let mut raw = RawClient::connect(&flags.mount);
            let (created, memory) = raw.reserve(&at, size).expect("reserve");
            let memory = std::fs::File::from(memory);
            let piece = pattern(8 << 20, seed);
            let mut crc = crc32fast::Hasher::new();
            for offset in (0..size).step_by(piece.len()) {
                memory.write_all_at(&piece, offset).expect("fill");
                crc.update(&piece);
            }
            drop(memory);
            raw.seal(created.reservation, size).expect("seal");
            say(&serde_json::json!({"crc": crc.finalize()}));
            stay();
        }
        What::ReadPieces { path: at } => {
            let object = or_end(volume.open(&path(&at), &OpenOptions::default()));
            let bytes = or_end(object.bytes());
            say(&serde_json::json!({"size": object.size(), "crc": crc32fast::hash(&bytes)}));
            stay();
        }
        What::GpuPut { path: at, size, seed } => gpu::put(&volume, &at, size, seed),
        What::GpuOpen { path: at } => gpu::open(&volume, &at),
        What::Stream { directory } => {
            for n in 0.. {
                let at = path(&format!("{directory}/n{n}"));
                volume.put_bytes(&at, &pattern(100 + n, n), &PutOptions::default()).expect("put");
                say(&serde_json::json!({"n": n}));
            }
        }
    }
}

mod gpu {
    use gpuvol_client::layout::{DeviceBuffer, Dtype, TensorMeta};
    use gpuvol_client::{OpenOptions, PutOptions, Volume};
    use gpuvol_memory::cuda::DeviceCopy;
    use gpuvol_memory::{Access, Allocation, CudaMemory, Mapping, Memory};

    use super::{Duration, Instant, end, or_end, path, say, stay};

    const CHUNK: usize = 256 << 20;

    fn ms(start: Instant) -> f64 {
        start.elapsed().as_secs_f64() * 1e3
    }

    fn median(mut times: Vec<f64>) -> f64 {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    /// Device memory with a pattern, and the CRC of it.
    fn filled(memory: &CudaMemory, size: u64, seed: u64) -> (gpuvol_memory::CudaMapping, u32) {
        let mut mapping = memory.create(size).unwrap().map(Access::ReadWrite).unwrap();
        let mut chunk = gpuvol_process_tests::pattern(CHUNK as u64, seed);
        let mut crc = crc32fast::Hasher::new();
        let mut at = 0;
        while at < size {
            chunk[..8].copy_from_slice(&at.to_le_bytes());
            let len = CHUNK.min(usize::try_from(size - at).unwrap());
            mapping.copy_in(at, &chunk[..len]).unwrap();
            crc.update(&chunk[..len]);
            at += len as u64;
        }
        (mapping, crc.finalize())
    }

    pub fn put(volume: &Volume, at: &str, size: u64, seed: u64) {
        let start = Instant::now();
        let memory = CudaMemory::open_ordinal(0).unwrap();
        let context = ms(start);
        let (source, crc) = filled(&memory, size, seed);
        let data = DeviceBuffer { address: source.address(), len: size };
        let meta = TensorMeta::new(Dtype::U8, vec![size]);
        // The copy that a put cannot do without, into memory that is there already.
        let mut target = memory.create(size).unwrap().map(Access::ReadWrite).unwrap();
        let copy = [DeviceCopy { source: source.address(), offset: 0, len: size }];
        let copies = (0..9).map(|_| {
            let start = Instant::now();
            target.copy_device_batch(&copy, None).unwrap();
            ms(start)
        });
        let copy_ms = median(copies.collect());
        drop(target);
        // The same copy into memory that was made just before, as a put's is.
        let fresh: Vec<_> = (0..4).map(|_| memory.create(size).unwrap().map(Access::ReadWrite).unwrap()).collect();
        let copies = fresh.into_iter().map(|mut target| {
            let start = Instant::now();
            target.copy_device_batch(&copy, None).unwrap();
            (ms(start), target)
        });
        let copies: Vec<_> = copies.collect();
        let fresh_copy_ms = median(copies.iter().map(|(took, _)| *took).collect());
        drop(copies);
        std::thread::sleep(Duration::from_millis(200));
        let mut way = "";
        // Under names of their own: memory that was freed just now takes the driver longer to make anew.
        let puts = (0..7).map(|n| {
            let at = &if n == 6 { at.to_owned() } else { format!("{at}-{n}") };
            let start = Instant::now();
            way = or_end(volume.put_device_tensor(&path(at), &meta, data, memory.uuid(), &PutOptions::default()))
                .way
                .name();

            ms(start)
        });
        let put_ms = median(puts.collect());
        for n in 0..6 {
            volume.unlink(&path(&format!("{at}-{n}"))).unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        let replaces = (0..5).map(|_| {
            let start = Instant::now();
            or_end(volume.put_device_tensor(&path(at), &meta, data, memory.uuid(), &PutOptions::default()));
            let took = ms(start);
            std::thread::sleep(Duration::from_millis(50));
            took
        });
        let replace_ms = median(replaces.collect());
        say(
            &serde_json::json!({"way": way, "crc": crc, "context_ms": context, "copy_ms": copy_ms, "fresh_copy_ms": fresh_copy_ms, "of_fresh_copy_rate": fresh_copy_ms / put_ms, "put_ms": put_ms, "replace_ms": replace_ms, "of_copy_rate": copy_ms / put_ms}),
        );
        stay();
    }

    pub fn open(volume: &Volume, at: &str) {
        let start = Instant::now();
        let memory = CudaMemory::open_ordinal(0).unwrap();
        memory.memory_info().unwrap();
        let context = ms(start);
        let times = (0..9).map(|_| {
            let start = Instant::now();
            let object = or_end(volume.open(&path(at), &OpenOptions::default()));
            let tensor = or_end(object.device_tensor());
            assert!(tensor.1.address != 0);
            ms(start)
        });
        let times: Vec<f64> = times.collect();
        let first = times[0];
        let object = or_end(volume.open(&path(at), &OpenOptions::default()));
        let tensor = or_end(object.device_tensor());
        let size = tensor.1.len;
        let offset = tensor.1.address - tensor.mapping().address();
        let mut crc = crc32fast::Hasher::new();
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while at < size {
            let len = CHUNK.min(usize::try_from(size - at).unwrap());
            if let Err(error) = tensor.mapping().copy_out(offset + at, &mut chunk[..len]) {
                end(&error);
            }
            crc.update(&chunk[..len]);
            at += len as u64;
        }
        let uid = rustix::process::getuid().as_raw();
        say(
            &serde_json::json!({"way": object.way().name(), "crc": crc.finalize(), "size": size, "uid": uid, "pid": std::process::id(), "context_ms": context, "first_open_ms": first, "open_ms": median(times)}),
        );
        stay();
    }
}

fn say(line: &serde_json::Value) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// The message that a user would see, and an end.
fn or_end<T>(result: gpuvol_client::Result<T>) -> T {
    result.unwrap_or_else(|error| end(&error))
}

fn end(error: &dyn std::error::Error) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
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
