//! Many processes reading and writing on several mounts of one volume: no error, no lost or mixed byte. Ends with 1 where
//! one was found, with 2 where a mount did not answer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use gpuvol_files_tests::kill::{KillArguments, Killer};
use gpuvol_files_tests::load::worker::{Done, Task};
use gpuvol_files_tests::load::{check, stale, worker};
use gpuvol_files_tests::progress::Progress;
use gpuvol_files_tests::watch::{Limits, Verdict, Watched};

const POLL: Duration = Duration::from_millis(100);

#[derive(Parser, Debug, Clone)]
struct Arguments {
    /// Mounts of one volume, or one directory several times.
    #[arg(long, required = true, num_args = 1..)]
    mounts: Vec<PathBuf>,
    #[arg(long, default_value_t = 64)]
    processes: u64,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long, default_value_t = 1, env = "FILES_SEED")]
    seed: u64,
    /// All mounts append to one log. By default each has its own: appends are ordered within one mount.
    #[arg(long)]
    one_log: bool,
    /// Count opens that are answered ESTALE and try them again, to look behind them.
    #[arg(long)]
    retry_stale: bool,
    /// Seconds that one operation may take.
    #[arg(long, default_value_t = 60)]
    patience: u64,
    #[command(flatten)]
    kill: KillArguments,
    #[arg(long, hide = true)]
    part: Option<Part>,
    #[arg(long, hide = true, default_value_t = 0)]
    number: u64,
    #[arg(long, hide = true, default_value = "")]
    name: String,
    /// PROCESS=RECORDS,..
    #[arg(long, hide = true, default_value = "")]
    written: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Prepare,
    Work,
    Verify,
    TakeAway,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.part {
        None => watch(&arguments),
        Some(part) => work(&arguments, part).map(|words| {
            println!("{words}");
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Parts {
    limits: Limits,
    name: String,
}

impl Parts {
    fn start(&self, part: &str, more: &[String]) -> Watched {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(std::env::args_os().skip(1)).args(["--part", part, "--name", &self.name]).args(more);
        command.stdout(Stdio::piped());
        Watched::start(command, &format!("load-{part}-{}", more.last().map_or("", |_| more[1].as_str())), self.limits)
    }

    /// All of them at once; what each said, or what is wrong with any.
    fn finish(mut running: Vec<Watched>) -> Result<Vec<String>, String> {
        let mut said: Vec<Option<String>> = vec![None; running.len()];
        let mut wrong = Vec::new();
        let mut open = running.len();
        while open > 0 {
            for (slot, child) in said.iter_mut().zip(&mut running).filter(|(slot, _)| slot.is_none()) {
                match child.look() {
                    Verdict::Running => continue,
                    Verdict::Ended(status) => {
                        let mut words = String::new();
                        child.stdout().expect("piped").read_to_string(&mut words).expect("a pipe");
                        if !status.success() {
                            wrong.push(format!("{} ended with {status}: {}", child.name(), words.trim()));
                        }
                        *slot = Some(words);
                    }
                    Verdict::Stuck(why) => {
                        wrong.push(why);
                        *slot = Some(String::new());
                    }
                }
                open -= 1;
            }
            std::thread::sleep(POLL);
        }
        if wrong.is_empty() { Ok(said.into_iter().flatten().collect()) } else { Err(wrong.join("\n")) }
    }
}

fn watch(arguments: &Arguments) -> Result<(), String> {
    if let Some(other) = arguments.mounts.iter().find(|mount| !mount.is_absolute()) {
        return Err(format!("{} is not an absolute path", other.display()));
    }
    let whole = Duration::from_secs(arguments.seconds + 2 * arguments.patience);
    let limits = Limits { step: Duration::from_secs(arguments.patience), whole };
    let parts = Parts { limits, name: format!("load-{}", std::process::id()) };
    let number = |n: u64| vec!["--number".to_owned(), n.to_string()];
    Parts::finish(vec![parts.start("prepare", &number(0))])?;
    let began = Instant::now();
    let killer = arguments.kill.start(arguments.seed);
    let workers = (0..arguments.processes).map(|n| parts.start("work", &number(n))).collect();
    let worked = Parts::finish(workers);
    let killed = killer.map_or(Ok(()), Killer::stop);
    let words = worked?;
    killed?;
    let done: Vec<Done> = words
        .iter()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("a worker said {line}: {error}")))
        .collect::<Result<_, _>>()?;
    let written: Vec<String> = done.iter().map(|done| format!("{}={}", done.process, done.records)).collect();
    let mut verified = Vec::new();
    for mount in 0..arguments.mounts.len() as u64 {
        let more = [number(mount), vec!["--written".to_owned(), written.join(",")]].concat();
        verified.extend(Parts::finish(vec![parts.start("verify", &more)])?);
    }
    Parts::finish(vec![parts.start("take-away", &number(0))])?;
    let sum = |what: fn(&Done) -> u64| done.iter().map(what).sum::<u64>();
    println!(
        "load: seed {}: {} processes on {} mounts, {:.0} s: {} objects ({} MiB) written, {} read and right, {} records, \
         {} logs read, {} opens stale, slowest operation {} ms; in the end {}",
        arguments.seed,
        arguments.processes,
        arguments.mounts.len(),
        began.elapsed().as_secs_f64(),
        sum(|done| done.written),
        sum(|done| done.written_bytes) >> 20,
        sum(|done| done.verified),
        sum(|done| done.records),
        sum(|done| done.logs_read),
        sum(|done| done.stale),
        done.iter().map(|done| done.slowest_ms).max().unwrap_or(0),
        verified.first().map_or("", |words| words.trim()),
    );
    Ok(())
}

fn work(arguments: &Arguments, part: Part) -> Result<String, String> {
    let mounts = arguments.mounts.len() as u64;
    let mount = usize::try_from(arguments.number % mounts).expect("a number of mounts");
    let within = arguments.mounts[mount].join(&arguments.name);
    let mut progress = Progress::of_environment();
    if arguments.retry_stale {
        stale::retry();
    }
    match part {
        Part::Prepare => check::prepare(&within).map(|()| String::new()),
        Part::TakeAway => check::take_away(&within).map(|()| String::new()),
        Part::Verify => check::verify(&within, &written(&arguments.written), &mut progress),
        Part::Work => {
            let log = if arguments.one_log { "log".to_owned() } else { format!("log-{mount}") };
            let time = Duration::from_secs(arguments.seconds);
            let task = Task { within, process: arguments.number, log, seed: arguments.seed, time };
            let done = worker::run(&task, &mut progress).map_err(|why| format!("process {}: {why}", task.process))?;
            Ok(serde_json::to_string(&done).expect("numbers"))
        }
    }
}

fn written(text: &str) -> BTreeMap<u64, u64> {
    let pair = |text: &str| {
        let (process, records) = text.split_once('=')?;
        Some((process.parse().ok()?, records.parse().ok()?))
    };
    text.split(',').filter_map(pair).collect()
}
