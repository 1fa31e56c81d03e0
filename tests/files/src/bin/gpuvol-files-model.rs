//! Random sequences of file operations on a directory under test and on a reference, compared after each.
//!
//! Ends with 1 at the first divergence, which it prints as a list of steps, and with 2 where the directory under test did
//! not answer. With `--kill-command` what serves that directory is killed meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use gpuvol_files_tests::kill::{KillArguments, Killer};
use gpuvol_files_tests::model::case::Directories;
use gpuvol_files_tests::model::run::{Plan, run};
use gpuvol_files_tests::progress::Progress;
use gpuvol_files_tests::watch::{Limits, Watched};

#[derive(Parser, Debug)]
struct Arguments {
    /// Directory under test.
    #[arg(long)]
    subject: PathBuf,
    /// Directory of a file system that is trusted (tmpfs).
    #[arg(long)]
    reference: PathBuf,
    #[arg(long, default_value_t = 1000, env = "FILES_CASES")]
    cases: u64,
    /// The first case; with --cases 1, that one again.
    #[arg(long, default_value_t = 0)]
    first: u64,
    #[arg(long, default_value_t = 1, env = "FILES_SEED")]
    seed: u64,
    /// Operations in a sequence, at most.
    #[arg(long, default_value_t = 100)]
    longest: usize,
    /// Stop after so many seconds, whatever is left.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seconds that one operation may take.
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Seconds for making a divergence shorter.
    #[arg(long, default_value_t = 60)]
    shorten: u64,
    /// User and group that the operations are done as; the directories must be writable for it.
    #[arg(long)]
    uid: Option<u32>,
    #[command(flatten)]
    kill: KillArguments,
    /// Leave out steps whose words have one of these in them, to look behind a known divergence: MakeFile,SYNC.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Print every step of every case.
    #[arg(long)]
    print_steps: bool,
    /// The directory under test is an ordinary one: imitate a volume's versions, to test the test.
    #[arg(long)]
    imitate_versions: bool,
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.worker { work(&arguments) } else { watch(&arguments) }
}

fn watch(arguments: &Arguments) -> ExitCode {
    let limits = Limits {
        step: Duration::from_secs(arguments.patience),
        whole: Duration::from_secs(arguments.seconds.unwrap_or(24 * 3600) + arguments.shorten + arguments.patience),
    };
    let mut command = std::process::Command::new(std::env::current_exe().expect("own path"));
    command.args(std::env::args_os().skip(1)).arg("--worker");
    if let Some(uid) = arguments.uid {
        use std::os::unix::process::CommandExt;
        command.uid(uid).gid(uid);
    }
    let killer = arguments.kill.start(arguments.seed);
    let end = Watched::start(command, "model", limits).wait();
    let killed = killer.map_or(Ok(()), Killer::stop);
    match end {
        Ok(status) if status.code() == Some(1) => ExitCode::FAILURE,
        Ok(status) if status.success() => failed_unless(killed),
        Ok(status) => {
            failed_unless(Err(format!("the worker ended with {status} (SIGBUS: a mapping lost its file's bytes)")))
        }
        Err(why) => failed_unless(Err(why)),
    }
}

fn failed_unless(result: Result<(), String>) -> ExitCode {
    let Err(why) = result else { return ExitCode::SUCCESS };
    println!("FAILED: {why}");
    ExitCode::from(2)
}

fn work(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let shorten = if arguments.kill.kill_command.is_some() { 0 } else { arguments.shorten };
    let plan = Plan {
        seed: arguments.seed,
        cases: arguments.first..arguments.first + arguments.cases,
        longest: arguments.longest,
        shorten_for: Duration::from_secs(shorten),
        until: arguments.seconds.map(|seconds| began + Duration::from_secs(seconds)),
    };
    let within = Directories {
        subject: arguments.subject.clone(),
        reference: arguments.reference.clone(),
        imitate_versions: arguments.imitate_versions,
        print_steps: arguments.print_steps,
        without: arguments.without.clone(),
    };
    match run(&plan, &within, &mut Progress::of_environment()) {
        Ok(summary) => {
            println!(
                "model: seed {}: {} cases, {} steps, {} readers kept an old version, no divergence, {:.1} s",
                arguments.seed,
                summary.cases,
                summary.done.steps,
                summary.done.partings,
                began.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(finding) => {
            println!("{finding}");
            ExitCode::FAILURE
        }
    }
}
