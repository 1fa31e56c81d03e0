//! Random operations on one file, checked against memory, by several processes on a file each. Ends with 1 where a byte or
//! a size was wrong, with 2 where the directory under test did not answer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gpuvol_files_tests::exerciser::{file, plan::Plan};
use gpuvol_files_tests::kill::{KillArguments, Killer};
use gpuvol_files_tests::progress::Progress;
use gpuvol_files_tests::watch::{Limits, Watched, status_of};

#[derive(Parser, Debug)]
struct Arguments {
    /// Directory under test.
    #[arg(long)]
    directory: PathBuf,
    /// On each file.
    #[arg(long, default_value_t = 2000)]
    operations: u64,
    #[arg(long, default_value_t = 1, env = "FILES_SEED")]
    seed: u64,
    /// Files, each with a process and a seed of its own.
    #[arg(long, default_value_t = 2)]
    files: u64,
    /// Largest size of a file in bytes.
    #[arg(long, default_value_t = 1 << 20)]
    largest: u64,
    #[arg(long)]
    no_mappings: bool,
    /// O_DIRECT, in blocks of 4096 bytes, without mappings.
    #[arg(long)]
    direct: bool,
    /// Seconds that one operation may take.
    #[arg(long, default_value_t = 60)]
    patience: u64,
    #[command(flatten)]
    kill: KillArguments,
    #[arg(long, hide = true)]
    worker: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.worker {
        Some(number) => work(&arguments, number),
        None => watch(&arguments),
    }
}

fn watch(arguments: &Arguments) -> ExitCode {
    let limits = Limits { step: Duration::from_secs(arguments.patience), whole: Duration::from_secs(24 * 3600) };
    let killer = arguments.kill.start(arguments.seed);
    let own: Vec<String> = std::env::args().skip(1).collect();
    let start = |number: u64| {
        let arguments = [own.clone(), vec!["--worker".to_owned(), number.to_string()]].concat();
        Watched::myself(&arguments, &format!("exerciser-{number}"), limits)
    };
    let workers: Vec<Watched> = (0..arguments.files).map(start).collect();
    let mut code = 0;
    for worker in workers {
        let name = worker.name().to_owned();
        let end = worker.wait();
        let stuck = end.is_err();
        if let Err(why) = end.and_then(|status| status_of(status, &name)) {
            println!("FAILED: {why}");
            code = code.max(if stuck { 2 } else { 1 });
        }
    }
    if let Err(why) = killer.map_or(Ok(()), Killer::stop) {
        println!("FAILED: {why}");
        code = 2;
    }
    if code == 0 {
        println!(
            "exerciser: seed {}: {} files, {} operations each, no wrong byte",
            arguments.seed, arguments.files, arguments.operations
        );
    }
    ExitCode::from(code)
}

fn work(arguments: &Arguments, number: u64) -> ExitCode {
    let plan = Plan {
        seed: arguments.seed.wrapping_add(number * 1000),
        operations: arguments.operations,
        largest: arguments.largest / 4096 * 4096,
        mappings: !arguments.no_mappings && !arguments.direct,
        direct: arguments.direct.then_some(4096),
    };
    let path = arguments.directory.join(format!("exerciser-{}-{number}", std::process::id()));
    match file::run(path, plan, &mut Progress::of_environment()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("WRONG: {why}");
            ExitCode::FAILURE
        }
    }
}
