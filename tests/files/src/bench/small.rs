//! Small files and names: whole lives of files, single operations, long listings.

use std::fs::File;
use std::io::{Read, Result, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Create, write, close, open, read, unlink by as many threads as there are processors: lives a minute and processor.
pub fn lives(directory: &Path, time: Duration) -> Result<f64> {
    let threads = std::thread::available_parallelism()?.get();
    let lives = std::thread::scope(|scope| -> Result<u32> {
        let run = |thread: usize| scope.spawn(move || live(directory, thread, time));
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    })?;
    let processors = u32::try_from(threads).unwrap_or(u32::MAX);
    Ok(f64::from(lives) / time.as_secs_f64() * 60.0 / f64::from(processors))
}

fn live(directory: &Path, thread: usize, time: Duration) -> Result<u32> {
    let bytes = crate::content::content(1, 4096);
    let until = Instant::now() + time;
    let mut lives = 0;
    while Instant::now() < until {
        let path = directory.join(format!("small-{}-{thread}-{lives}", std::process::id()));
        File::create(&path)?.write_all(&bytes)?;
        let mut read = Vec::with_capacity(4097);
        File::open(&path)?.read_to_end(&mut read)?;
        assert!(read == bytes, "{} has other bytes than were written", path.display());
        std::fs::remove_file(&path)?;
        lives += 1;
    }
    Ok(lives)
}

/// Median and 99th percentile of one operation, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

/// Of `count` runs each.
pub fn operations(directory: &Path, count: usize) -> Result<Vec<(&'static str, Latency)>> {
    let at = |name: &str| directory.join(format!("{name}-{}", std::process::id()));
    let (file, other, sub) = (at("operation"), at("renamed"), at("sub"));
    std::fs::write(&file, "x")?;
    let found = vec![
        ("stat", time(count, || std::fs::metadata(&file).map(drop))?),
        ("open, read, close", time(count, || std::fs::read(&file).map(drop))?),
        (
            "rename there and back",
            time(count, || std::fs::rename(&file, &other).and_then(|()| std::fs::rename(&other, &file)))?,
        ),
        ("overwrite 1 byte", time(count, || std::fs::write(&file, "y"))?),
        ("append 1 byte", time(count, || File::options().append(true).open(&file)?.write_all(b"z"))?),
        ("mkdir, rmdir", time(count, || std::fs::create_dir(&sub).and_then(|()| std::fs::remove_dir(&sub)))?),
        ("create, unlink", time(count, || File::create(&other).and_then(|_| std::fs::remove_file(&other)))?),
    ];
    std::fs::remove_file(&file)?;
    Ok(found)
}

fn time(count: usize, mut body: impl FnMut() -> Result<()>) -> Result<Latency> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        body()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(Latency { p50: times[count / 2], p99: times[count * 99 / 100] })
}

/// Seconds of creating so many files in one directory, and of the first and the second `ls -l` of it.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    pub create: f64,
    pub first: f64,
    pub second: f64,
}

pub fn listing(directory: &Path, count: usize) -> Result<Listing> {
    let many = directory.join(format!("many-{}", std::process::id()));
    std::fs::create_dir(&many)?;
    let began = Instant::now();
    for n in 0..count {
        File::create(many.join(format!("file-{n:06}")))?;
    }
    let create = began.elapsed().as_secs_f64();
    let (first, second) = (ls(&many, count)?, ls(&many, count)?);
    std::fs::remove_dir_all(&many)?;
    Ok(Listing { create, first, second })
}

fn ls(directory: &Path, count: usize) -> Result<f64> {
    let began = Instant::now();
    let output = Command::new("ls").arg("-l").arg(directory).stdin(Stdio::null()).output()?;
    let seconds = began.elapsed().as_secs_f64();
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
    assert!(output.status.success() && lines == count + 1, "ls -l: {}, {lines} lines for {count} files", output.status);
    Ok(seconds)
}
