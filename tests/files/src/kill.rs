//! Runs a command at random times while something else goes on: the way to kill what serves the directory under test.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::rng::Rng;

const POLL: Duration = Duration::from_millis(10);
/// For one run of the command.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a program that has this is told.
#[derive(clap::Args, Debug, Clone)]
pub struct KillArguments {
    /// Shell command to run at random times meanwhile, such as one that kills what serves the directory.
    #[arg(long, requires = "kill_every_ms")]
    pub kill_command: Option<String>,
    /// LO..HI, milliseconds between two runs of it.
    #[arg(long, value_parser = parse_range)]
    pub kill_every_ms: Option<(u64, u64)>,
}

impl KillArguments {
    pub fn start(&self, seed: u64) -> Option<Killer> {
        let schedule = self.kill_command.clone().zip(self.kill_every_ms);
        schedule.map(|(command, every_ms)| Killer::start(Schedule { command, every_ms, seed }))
    }
}

/// A shell command and the range of milliseconds between two runs of it.
#[derive(Debug, Clone)]
pub struct Schedule {
    pub command: String,
    pub every_ms: (u64, u64),
    pub seed: u64,
}

#[derive(Debug, Default, Clone)]
struct Killed {
    runs: u64,
    /// Runs that ended in another way than 0: nothing was there to kill.
    misses: u64,
}

#[derive(Debug)]
pub struct Killer {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Killed>,
}

/// `LO..HI` in milliseconds.
pub fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (low, high) = text.split_once("..").ok_or("expected LO..HI in milliseconds")?;
    let number = |part: &str| part.trim().parse::<u64>().map_err(|error| format!("{part}: {error}"));
    let range = (number(low)?, number(high)?);
    if range.0 <= range.1 { Ok(range) } else { Err(format!("{text} is empty")) }
}

impl Killer {
    pub fn start(schedule: Schedule) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&end);
        Self { end, thread: std::thread::spawn(move || run(&schedule, &seen)) }
    }

    /// Says how often; in words where it never met anything.
    pub fn stop(self) -> Result<(), String> {
        self.end.store(true, Ordering::Relaxed);
        let killed = self.thread.join().expect("the killer");
        println!("{} kills, {} of them met nothing", killed.runs, killed.misses);
        let none = killed.runs > 0 && killed.runs == killed.misses;
        if none { Err("the kill command never met anything".to_owned()) } else { Ok(()) }
    }
}

fn run(schedule: &Schedule, end: &AtomicBool) -> Killed {
    let mut rng = Rng::part(schedule.seed, u64::MAX);
    let mut killed = Killed::default();
    loop {
        let next = Instant::now() + Duration::from_millis(rng.between(schedule.every_ms.0, schedule.every_ms.1));
        while Instant::now() < next {
            if end.load(Ordering::Relaxed) {
                return killed;
            }
            std::thread::sleep(POLL);
        }
        killed.runs += 1;
        if !succeeds(&schedule.command) {
            killed.misses += 1;
        }
    }
}

fn succeeds(command: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    let Ok(mut child) = shell.spawn() else { return false };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(POLL),
            Err(_) => return false,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}
