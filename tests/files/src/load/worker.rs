//! One process of the load, on one mount.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::log::{self, Appender};
use super::objects::{self, Objects};
use crate::progress::Progress;
use crate::rng::Rng;

/// Objects of its own that a process leaves there at a time.
const KEPT: usize = 12;

#[derive(Debug, Clone)]
pub struct Task {
    /// Directory of the load in this process's mount.
    pub within: PathBuf,
    pub process: u64,
    /// Name of the log that it appends to.
    pub log: String,
    pub seed: u64,
    pub time: Duration,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Done {
    pub process: u64,
    pub records: u64,
    pub written: u64,
    pub written_bytes: u64,
    pub verified: u64,
    pub logs_read: u64,
    pub slowest_ms: u64,
    /// Opens that were answered ESTALE and tried again.
    pub stale: u64,
}

pub fn run(task: &Task, progress: &mut Progress) -> Result<Done, String> {
    let mut rng = Rng::part(task.seed, task.process);
    let objects = Objects::new(&task.within);
    let mut appender = Appender::new(&task.within, &task.log, task.process);
    let mut own: VecDeque<PathBuf> = VecDeque::new();
    let mut done = Done { process: task.process, ..Done::default() };
    let keep_open = task.process.is_multiple_of(2);
    let until = Instant::now() + task.time;
    let mut number = 0;
    while Instant::now() < until {
        number += 1;
        let began = Instant::now();
        match rng.below(20) {
            0..6 => {
                progress.at(format_args!("{number}: putting an object"));
                let (path, length) = objects.put(&mut rng, &format!("{}-{number}", task.process))?;
                done.written += 1;
                done.written_bytes += length;
                own.push_back(path);
            }
            6..12 => {
                progress.at(format_args!("{number}: reading an object"));
                done.verified += u64::from(objects.get(&mut rng)?);
            }
            12..18 => {
                progress.at(format_args!("{number}: appending"));
                appender.append(&mut rng, keep_open)?;
            }
            18 => {
                progress.at(format_args!("{number}: reading a log"));
                done.logs_read += u64::from(read_a_log(&task.within, &mut rng)?);
            }
            _ => {
                progress.at(format_args!("{number}: removing"));
                if own.len() > KEPT {
                    own.pop_front().map_or(Ok(()), |path| objects::remove(&path))?;
                }
            }
        }
        while own.len() > 2 * KEPT {
            own.pop_front().map_or(Ok(()), |path| objects::remove(&path))?;
        }
        done.slowest_ms = done.slowest_ms.max(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    }
    done.records = appender.records();
    done.stale = super::stale::seen();
    Ok(done)
}

fn read_a_log(within: &Path, rng: &mut Rng) -> Result<bool, String> {
    let logs = log::all(within)?;
    if logs.is_empty() {
        return Ok(false);
    }
    log::read(rng.pick(&logs[..]).as_path(), true).map(|numbers| !numbers.is_empty())
}
