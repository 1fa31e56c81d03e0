//! Whether a client can connect at a mount: the first two messages of a client's conversation.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use gpuvol_protocol::message::{Hello, MAGIC, Welcome};
use gpuvol_protocol::types::SOCKET_NAME;
use gpuvol_protocol::{Channel, Limits, Version};

use super::{Error, Result};
use crate::listener;

const RETRY: Duration = Duration::from_millis(20);

/// Connects as a client does and answers the store's welcome.
pub fn ask(mount: &Path, patience: Duration) -> std::result::Result<Welcome, String> {
    let open = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(mount);
    let directory = open.map_err(|e| e.to_string())?;
    let socket = listener::connect(directory.as_fd(), SOCKET_NAME).map_err(|e| e.to_string())?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(|e| e.to_string())?;
    let mut channel = Channel::new(stream, Limits::default());
    let hello = Hello {
        magic: MAGIC,
        min_version: Version::OLDEST.number(),
        max_version: Version::NEWEST.number(),
        lease: Vec::new(),
        client: format!("gpuvol-dev pid {}", std::process::id()),
    };
    channel.send(&hello, &[]).map_err(|e| e.to_string())?;
    match channel.receive::<Welcome>(Some(patience)) {
        Ok(Some((welcome, _))) => match welcome.fault {
            Some(fault) => Err(fault.to_string()),
            None => Ok(welcome),
        },
        Ok(None) => Err("the store closed the connection".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits until a client can connect.
pub fn wait(mount: &Path, deadline: Duration) -> Result<()> {
    let until = Instant::now() + deadline;
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(RETRY);
        match ask(mount, left) {
            Ok(_) => return Ok(()),
            Err(why) if Instant::now() + RETRY >= until => return Err(Error::Mount { mount: mount.to_owned(), why }),
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}
