//! The mounter's sign of life: a small file with the age of each mount's oldest unanswered request.
//!
//! The kernel counts unanswered requests but not their age. A watchdog in another process reads this beside it. Times
//! are of the monotonic clock, which nobody sets and all pods of a node share.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::progress::monotonic_ms;

/// Below the node's state directory.
const DIRECTORY: &str = "mounter";
const FILE: &str = "heartbeat";
/// How often it is written.
pub const EVERY: Duration = Duration::from_secs(1);

/// Where the mounter of a node keeps its files.
pub fn directory(state: &Path) -> PathBuf {
    state.join(DIRECTORY)
}

/// What one mount says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    pub publish: String,
    pub connection: u32,
    /// Of its oldest unanswered request; zero where all are answered.
    pub age: Duration,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// How long ago it was written.
    pub age: Duration,
    /// The age of each connection's oldest request, when it was written.
    pub oldest: HashMap<u32, Duration>,
}

/// Replaces the file, so that a reader sees a whole one.
pub fn write(state: &Path, beats: &[Beat]) -> io::Result<()> {
    let directory = directory(state);
    let fresh = directory.join(".heartbeat.new");
    std::fs::write(&fresh, encode(monotonic_ms(), beats))?;
    std::fs::rename(fresh, directory.join(FILE))
}

fn encode(now_ms: u64, beats: &[Beat]) -> String {
    let mut text = format!("{now_ms}\n");
    for beat in beats {
        // A publish id is a word of the plugin's own making; a blank in it would end it early.
        let publish = beat.publish.replace(char::is_whitespace, "_");
        text.push_str(&format!("{publish} {} {}\n", beat.connection, beat.age.as_millis()));
    }
    text
}

/// `None`: there is none, or it is not one: as good as one that was never written.
pub fn read(state: &Path) -> Option<Heartbeat> {
    let text = std::fs::read_to_string(directory(state).join(FILE)).ok()?;
    decode(&text, monotonic_ms())
}

fn decode(text: &str, now_ms: u64) -> Option<Heartbeat> {
    let mut lines = text.lines();
    let written: u64 = lines.next()?.parse().ok()?;
    let mut oldest = HashMap::new();
    for line in lines {
        let mut words = line.split_whitespace().skip(1);
        let connection = words.next()?.parse().ok()?;
        oldest.insert(connection, Duration::from_millis(words.next()?.parse().ok()?));
    }
    // Written after now: before a reboot.
    let age = now_ms.checked_sub(written)?;
    Some(Heartbeat { age: Duration::from_millis(age), oldest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let beats = [
            Beat { publish: "p1".into(), connection: 41, age: Duration::ZERO },
            Beat { publish: "p 2".into(), connection: 42, age: Duration::from_millis(1500) },
        ];
        let read = decode(&encode(1000, &beats), 3000).unwrap();
        assert_eq!(read.age, Duration::from_secs(2));
        assert_eq!(read.oldest[&41], Duration::ZERO);
        assert_eq!(read.oldest[&42], Duration::from_millis(1500));
    }

    #[test]
    fn what_is_no_heartbeat_is_none() {
        assert_eq!(decode("", 1), None);
        assert_eq!(decode("12 p 3 4\n", 20), None);
        assert_eq!(decode("12\np x 4\n", 20), None);
        assert_eq!(decode("12\n", 11), None);
    }
}
