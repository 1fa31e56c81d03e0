//! The plugin's watch over its mounts: one that answers nothing is ended, so that pods in it can be.
//!
//! Whoever waits for an answer in a mount cannot be killed, and kubelet cannot end its pod. The mounter answers in its
//! own deadline, if only with an error; where nobody answers for longer, the connection is ended, and every caller gets
//! an error.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::mount::fuse;
use crate::target::Roots;
use crate::view::watchdog::Watchdog;

const EVERY: Duration = Duration::from_secs(1);

/// Watches, until the process ends, over the mounts of ours below `roots`. `deadline` must be longer than the mounter's.
pub fn start(state: PathBuf, roots: Roots, deadline: Duration) -> io::Result<()> {
    let mut watchdog = Watchdog::new(state, deadline)?;
    thread::Builder::new().name("watch".into()).spawn(move || {
        loop {
            // Mounts at other places are another node's, which watches over them itself.
            let ours = fuse::mounted().filter(|mounted| roots.hold(&mounted.at));
            let connections: Vec<u32> = ours.map(|mounted| mounted.device.1).collect();
            // What it ends it logs.
            let _ = watchdog.look(&connections);
            thread::sleep(EVERY);
        }
    })?;
    Ok(())
}
