//! Ends connections whose requests nobody answers: until then their callers cannot even be killed.
//!
//! A busy mount has unanswered requests all the time. So a connection is ended only when the kernel has counted some at
//! every look for longer than the deadline, and for that long the mounter has not shown that it works on them. What shows
//! it is a heartbeat that names the mount: until then it had answered everything but its oldest request. A mounter that
//! was just started names no mount yet; that says nothing. The deadline must be longer than the mounter's own for a
//! request, after which it answers with an error.

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
    watched: HashMap<u32, Watch>,
}

/// What was seen of a connection so far.
#[derive(Debug, Clone, Copy)]
struct Watch {
    /// Since when it has had unanswered requests, as far as was looked.
    waiting: Option<Instant>,
    /// Until when it was served, as far as was shown.
    served: Instant,
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

/// What to think of a connection that has had unanswered requests for `waiting`, and was served last `served` ago.
pub fn judge(
    connection: u32,
    waiting: Duration,
    served: Duration,
    mounter: Option<&Heartbeat>,
    deadline: Duration,
) -> Option<Hang> {
    if waiting <= deadline || served <= deadline {
        return None;
    }
    let Some(mounter) = mounter.filter(|mounter| mounter.age <= deadline) else { return Some(Hang::NoMounter) };
    Some(mounter.oldest.get(&connection).map_or(Hang::NotServed, |oldest| Hang::Stuck(*oldest)))
}

/// How long ago a heartbeat shows a connection to have been served.
fn shown(connection: u32, mounter: &Heartbeat) -> Option<Duration> {
    mounter.oldest.get(&connection).map(|oldest| mounter.age.saturating_add(*oldest))
}

impl Watchdog {
    /// `state`: the node's state directory. Fails where connections cannot be seen: see [`Connections::open`].
    pub fn new(state: PathBuf, deadline: Duration) -> io::Result<Self> {
        Ok(Self { state, connections: Connections::open()?, deadline, watched: HashMap::new() })
    }

    /// Looks at the mounts' connections (minor device numbers) once; to be called every second or so. Ends those that
    /// hang, and answers which and why.
    pub fn look(&mut self, mounts: &[u32]) -> Vec<(u32, Hang)> {
        let now = Instant::now();
        let mounter = heartbeat::read(&self.state);
        self.watched.retain(|connection, _| mounts.contains(connection));
        for connection in mounts {
            let watch = self.watched.entry(*connection).or_insert(Watch { waiting: None, served: now });
            match self.connections.waiting(*connection) {
                Ok(Some(1..)) => _ = watch.waiting.get_or_insert(now),
                Ok(_) => watch.waiting = None,
                Err(error) => tracing::warn!(connection, %error, "cannot see how many requests wait"),
            }
            let ago = mounter.as_ref().and_then(|mounter| shown(*connection, mounter));
            let served = ago.and_then(|ago| now.checked_sub(ago));
            watch.served = watch.served.max(served.unwrap_or(watch.served));
        }
        let judged = |(connection, watch): (&u32, &Watch)| {
            let (waiting, served) = (now.duration_since(watch.waiting?), now.duration_since(watch.served));
            judge(*connection, waiting, served, mounter.as_ref(), self.deadline).map(|hang| (*connection, hang))
        };
        let hanging: Vec<_> = self.watched.iter().filter_map(judged).collect();
        for (connection, hang) in &hanging {
            self.watched.remove(connection);
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

    /// Of connection 7, which has had unanswered requests for an hour.
    fn judged(served: u64, mounter: Option<&Heartbeat>) -> Option<Hang> {
        judge(7, Duration::from_secs(3600), Duration::from_secs(served), mounter, DEADLINE)
    }

    #[test]
    fn a_busy_mount_is_left_alone() {
        let busy = beat(1, &[(7, 2)]);
        let served = shown(7, &busy).unwrap();
        assert_eq!(served, Duration::from_secs(3));
        assert_eq!(judged(served.as_secs(), Some(&busy)), None);
    }

    #[test]
    fn nothing_is_ended_before_its_time() {
        assert_eq!(judged(60, None), None);
        // A mounter that was just started.
        assert_eq!(judged(5, Some(&beat(0, &[]))), None);
        assert_eq!(judge(7, DEADLINE, Duration::from_secs(3600), None, DEADLINE), None);
    }

    #[test]
    fn who_does_not_work_on_it_is_named() {
        assert_eq!(judged(61, None), Some(Hang::NoMounter));
        assert_eq!(judged(61, Some(&beat(61, &[(7, 0)]))), Some(Hang::NoMounter));
        assert_eq!(judged(61, Some(&beat(1, &[(8, 0)]))), Some(Hang::NotServed));
        assert_eq!(judged(62, Some(&beat(1, &[(7, 61)]))), Some(Hang::Stuck(Duration::from_secs(61))));
    }
}
