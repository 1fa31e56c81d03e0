//! Ratios between a directory under test and a reference (tmpfs), measured in turn in one run. Ends with 1 where `--demand`
//! is given and a demand is missed, with 2 where the directory under test did not answer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gpuvol_files_tests::bench::small::{self, Latency};
use gpuvol_files_tests::bench::stream::{self, Rates};
use gpuvol_files_tests::bench::table::{Demand, Row, print};
use gpuvol_files_tests::progress::Progress;
use gpuvol_files_tests::watch::{Limits, Watched};

#[derive(Parser, Debug)]
struct Arguments {
    /// Directory under test.
    #[arg(long)]
    subject: PathBuf,
    /// Directory on tmpfs.
    #[arg(long)]
    reference: PathBuf,
    /// Size of the big file.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Passes over the big file, the best of which counts.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Files in the listing.
    #[arg(long, default_value_t = 10_000)]
    names: usize,
    /// Seconds of small files, on each side.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Runs of each single operation.
    #[arg(long, default_value_t = 1000)]
    operations: usize,
    /// Where the figures go as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Fail where a figure is below what issue 3 demands.
    #[arg(long)]
    demand: bool,
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.worker {
        return measure(&arguments);
    }
    let limits = Limits { step: Duration::from_secs(120), whole: Duration::from_secs(1200) };
    let own: Vec<String> = std::env::args().skip(1).chain(["--worker".to_owned()]).collect();
    match Watched::myself(&own, "bench", limits).wait() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)),
        Err(why) => {
            println!("FAILED: {why}");
            ExitCode::from(2)
        }
    }
}

fn measure(arguments: &Arguments) -> ExitCode {
    let mut progress = Progress::of_environment();
    let mut rows = streams(arguments, &mut progress);
    rows.extend(small_files(arguments, &mut progress));
    print(&rows);
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows).expect("figures")).expect("the JSON file");
    }
    let missed = rows.iter().filter(|row| !row.met).count();
    if arguments.demand && missed > 0 {
        println!("FAILED: {missed} demands missed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn streams(arguments: &Arguments, progress: &mut Progress) -> Vec<Row> {
    let mut best: [Option<Rates>; 2] = [None; 2];
    for round in 0..arguments.rounds {
        for (best, directory) in best.iter_mut().zip([&arguments.reference, &arguments.subject]) {
            let mut note = |what: &str| progress.at(format_args!("round {round}, {}: {what}", directory.display()));
            let rates = stream::pass(directory, arguments.mib, &mut note).expect("a pass over the big file");
            *best = Some(best.map_or(rates, |best| best.best(rates)));
        }
    }
    let [Some(reference), Some(subject)] = best else { return Vec::new() };
    let read = Some(Demand::Ratio(0.65));
    let row =
        |what: &str, of: fn(&Rates) -> f64, demand| Row::rate(what, "MiB/s", of(&subject), of(&reference), demand);
    vec![
        row("write, 1 MiB pieces", |rates| rates.write, Some(Demand::Ratio(0.4))),
        row("read, cold", |rates| rates.cold_read, read),
        row("read, warm", |rates| rates.warm_read, read),
        row("mapped read, cold", |rates| rates.cold_map, read),
        row("mapped read, warm", |rates| rates.warm_map, read),
    ]
}

fn small_files(arguments: &Arguments, progress: &mut Progress) -> Vec<Row> {
    let time = Duration::from_secs(arguments.seconds);
    let [reference, subject] = [&arguments.reference, &arguments.subject].map(|directory| {
        let mut note = |what: &str| progress.at(format_args!("{}: {what}", directory.display()));
        side(arguments, directory, time, &mut note)
    });
    let least = Some(Demand::AtLeast(20_000.0));
    let mut rows = vec![
        Row::rate("lives of small files", "a minute and core", subject.lives, reference.lives, least),
        Row::time("creating the names", "s", subject.listing.create, reference.listing.create, None),
        Row::time("ls -l, first", "s", subject.listing.first, reference.listing.first, Some(Demand::AtMost(1.0))),
        Row::time("ls -l, again", "s", subject.listing.second, reference.listing.second, Some(Demand::AtMost(1.0))),
    ];
    for ((what, subject), (_, reference)) in subject.operations.iter().zip(&reference.operations) {
        rows.push(Row::time(&format!("{what}, p50"), "us", subject.p50, reference.p50, None));
        rows.push(Row::time(&format!("{what}, p99"), "us", subject.p99, reference.p99, None));
    }
    rows
}

struct Side {
    lives: f64,
    listing: small::Listing,
    operations: Vec<(&'static str, Latency)>,
}

fn side(arguments: &Arguments, directory: &Path, time: Duration, note: &mut dyn FnMut(&str)) -> Side {
    note("small files");
    let lives = small::lives(directory, time).expect("small files");
    note("listing");
    let listing = small::listing(directory, arguments.names).expect("listing");
    note("single operations");
    let operations = small::operations(directory, arguments.operations).expect("single operations");
    Side { lives, listing, operations }
}
