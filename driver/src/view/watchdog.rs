//! Ends connections whose requests nobody answers: until then their callers cannot even be killed.
//!
//! A busy mount has unanswered requests all the time. So a connection is ended only when the kernel has counted some at
//! every look for longer than the deadline, and the mounter does not show that it works on them: it has written no
//! heartbeat for that long, does not serve this mount, or has had a request of this mount for that long. The deadline
//! must be longer than the mounter's own for a request, after which it answers with an error.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::connections::Connections;
use super::heartbeat::{self, Heartbeat};

#[derive(Debug)]
pub struct Watchdog {
    state: PathBuf,
    connections: Connections,
    deadline: Duration,
    /// Since when each connection has had unanswered requests, as far as was looked.
    waiting: HashMap<u32, Instant>,
}

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// No mounter gives a sign of life.
    NoMounter,
    /// The mounter does not serve this mount.
    NotServed,
    /// A request has been worked on for that long.
    Stuck(Duration),
}

/// What to think of a connection that has had unanswered requests for `waiting`.
pub fn judge(connection: u32, waiting: Duration, mounter: Option<&Heartbeat>, deadline: Duration) -> Option<Hang> {
    if waiting <= deadline {
        return None;
    }
    let Some(mounter) = mounter.filter(|mounter| mounter.age <= deadline) else { return Some(Hang::NoMounter) };
    match mounter.oldest.get(&connection) {
        None => Some(Hang::NotServed),
        Some(oldest) if *oldest > deadline => Some(Hang::Stuck(*oldest)),
        Some(_) => None,
    }
}

impl Watchdog {
    /// `state`: the node's state directory. Fails where connections cannot be seen: see [`Connections::open`].
    pub fn new(state: PathBuf, deadline: Duration) -> io::Result<Self> {
        Ok(Self { state, connections: Connections::open()?, deadline, waiting: HashMap::new() })
    }

    /// Looks at the mounts' connections (minor device numbers) once; to be called every second or so. Ends those that
    /// hang, and answers which and why.
    pub fn look(&mut self, mounts: &[u32]) -> Vec<(u32, Hang)> {
        let now = Instant::now();
        self.waiting.retain(|connection, _| mounts.contains(connection));
        for connection in mounts {
            match self.connections.waiting(*connection) {
                Ok(Some(1..)) => {
                    self.waiting.entry(*connection).or_insert(now);
                }
                Ok(_) => {
                    self.waiting.remove(connection);
                }
                Err(error) => tracing::warn!(connection, %error, "cannot see how many requests wait"),
            }
        }
        let mounter = heartbeat::read(&self.state);
        let judged = |(connection, since): (&u32, &Instant)| {
            judge(*connection, now.duration_since(*since), mounter.as_ref(), self.deadline)
                .map(|hang| (*connection, hang))
        };
        let hanging: Vec<_> = self.waiting.iter().filter_map(judged).collect();
        for (connection, hang) in &hanging {
            self.waiting.remove(connection);
            match self.connections.abort(*connection) {
                Ok(_) => tracing::error!(connection, ?hang, "a mount answers nothing and was ended"),
                Err(error) => tracing::error!(connection, ?hang, %error, "a mount answers nothing and cannot be ended"),
            }
        }
        hanging
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    fn beat(age: u64, oldest: &[(u32, u64)]) -> Heartbeat {
        let seconds = |(connection, age): &(u32, u64)| (*connection, Duration::from_secs(*age));
        Heartbeat { age: Duration::from_secs(age), oldest: oldest.iter().map(seconds).collect() }
    }

    fn judged(waiting: u64, mounter: Option<&Heartbeat>) -> Option<Hang> {
        judge(7, Duration::from_secs(waiting), mounter, DEADLINE)
    }

    #[test]
    fn a_busy_mount_is_left_alone() {
        assert_eq!(judged(3600, Some(&beat(1, &[(7, 2)]))), None);
        assert_eq!(judged(3600, Some(&beat(60, &[(7, 60)]))), None);
    }

    #[test]
    fn nothing_is_ended_before_its_time() {
        assert_eq!(judged(60, None), None);
        assert_eq!(judged(1, Some(&beat(3600, &[]))), None);
    }

    #[test]
    fn who_does_not_work_on_it_is_named() {
        assert_eq!(judged(61, None), Some(Hang::NoMounter));
        assert_eq!(judged(61, Some(&beat(61, &[(7, 0)]))), Some(Hang::NoMounter));
        assert_eq!(judged(61, Some(&beat(1, &[(8, 0)]))), Some(Hang::NotServed));
        assert_eq!(judged(61, Some(&beat(1, &[(7, 61)]))), Some(Hang::Stuck(Duration::from_secs(61))));
    }
}
