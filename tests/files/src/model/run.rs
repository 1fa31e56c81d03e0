//! Many cases from one seed; the first that diverges is made as short as it can be.

use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::case::{self, Directories, Divergence, Done};
use super::generate::sequence;
use crate::progress::Progress;
use crate::rng::Rng;

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Numbers of the cases to run.
    pub cases: std::ops::Range<u64>,
    /// Longest sequence.
    pub longest: usize,
    /// For the shortening of a sequence that diverged; zero where it would not diverge again.
    pub shorten_for: Duration,
    /// No new case is begun after this.
    pub until: Option<Instant>,
}

#[derive(Debug, Default)]
pub struct Summary {
    pub cases: u64,
    pub done: Done,
}

#[derive(Debug)]
pub struct Finding {
    pub seed: u64,
    pub case: u64,
    /// Operations as they were found, and as they are left.
    pub lengths: (usize, usize),
    pub divergence: Divergence,
}

pub fn run(plan: &Plan, within: &Directories, progress: &mut Progress) -> Result<Summary, Box<Finding>> {
    let mut summary = Summary::default();
    for number in plan.cases.clone() {
        if plan.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        let done = one(plan, number, within, progress)?;
        summary.cases += 1;
        summary.done.steps += done.steps;
        summary.done.partings += done.partings;
    }
    Ok(summary)
}

fn one(plan: &Plan, number: u64, within: &Directories, progress: &mut Progress) -> Result<Done, Box<Finding>> {
    let seed = Rng::part(plan.seed, number).seed_bytes();
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let mut tree = sequence(plan.longest).new_tree(&mut runner).expect("nothing is filtered");
    let name = |attempt: usize| format!("case-{}-{number}-{attempt}", std::process::id());
    let first = match case::run(&tree.current(), within, &name(0), progress) {
        Ok(done) => return Ok(done),
        Err(divergence) => divergence,
    };
    let found = tree.current().len();
    let mut shortest = (found, first);
    let until = Instant::now() + plan.shorten_for;
    let mut attempt = 0;
    let mut simpler = plan.shorten_for > Duration::ZERO && tree.simplify();
    while simpler && Instant::now() < until {
        attempt += 1;
        let ops = tree.current();
        simpler = match case::run(&ops, within, &name(attempt), progress) {
            Err(divergence) => {
                shortest = (ops.len(), divergence);
                tree.simplify()
            }
            Ok(_) => tree.complicate(),
        };
    }
    Err(Box::new(Finding { seed: plan.seed, case: number, lengths: (found, shortest.0), divergence: shortest.1 }))
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (found, left) = self.lengths;
        writeln!(f, "DIVERGENCE, seed {} case {} ({found} operations, shortened to {left}):", self.seed, self.case)?;
        for (number, step) in self.divergence.steps.iter().enumerate() {
            writeln!(f, "  {number:3} {step}")?;
        }
        writeln!(f, "  {}", self.divergence.what)
    }
}
