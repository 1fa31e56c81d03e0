//! A publish that is a file system: the volume's files, served by the mounter, and the store's socket among them.
//!
//! The mount is made where nobody can see it, its FUSE descriptor goes to the store and from there to keeper and mounter,
//! and the socket is bound in it: the mounter has to answer for that, so a publish that succeeds is one that is served.
//! Only then does the mount appear at the target, in one step. This process asks its own mounts for nothing else, and
//! for that in threads that can be left behind: whoever waits for a mounter that hangs cannot even be killed.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gpuvol_protocol::admin::{Mount, Publish};
use gpuvol_protocol::types::SOCKET_NAME;

use super::repeat::Standing;
use super::steps::Step;
use super::{PublishError, Publisher, Request, failed};
use crate::deadline::{Late, within};
use crate::listener;
use crate::mount::fuse::{FuseMount, may_pass_through};
use crate::mount::{self, Found, Root, Unmounted};
use crate::target::Target;
use crate::undo::Undo;
use crate::view::connections::Connections;
use crate::view::handshake;

/// How soon after a mount was busy the next try is made.
const AGAIN: Duration = Duration::from_millis(20);

impl Publisher {
    pub(super) fn publish_view<'a>(
        &'a self,
        request: &Request,
        target: &Arc<Target>,
        found: &Found,
        undo: &mut Undo<'a>,
    ) -> Result<(), PublishError> {
        let failed = failed(target);
        if let Found::Mounted(_) = found {
            let (target, what) = (target.path().to_string(), "another mount".to_owned());
            return Err(PublishError::Occupied { target, what });
        }
        self.make_target(target, found, undo)?;
        self.step(Step::Detached, target, undo)?;
        let FuseMount { fuse, mount, connection } = FuseMount::create().map_err(|e| failed("make a FUSE mount", e))?;
        let held = mount.directory().map_err(|e| failed("hold the mount", e))?;
        undo.push(move || {
            // Whoever still waits for an answer is let go. The mount is held until then, so the number is its own.
            if let Err(error) = abort(connection) {
                tracing::debug!(connection, %error, "not aborted; it ends with its descriptors");
            }
            drop(held);
        });
        let agreed = handshake::answer(fuse.as_fd(), may_pass_through(), self.patience)
            .map_err(|e| failed("agree with the kernel on a FUSE mount", e))?;

        self.step(Step::Session, target, undo)?;
        let publish = request.publish();
        let with_mount = Publish { mount: Some(Mount { connection, agreed: Some(agreed) }), ..publish.clone() };
        self.hand_over(with_mount, fuse.as_fd(), true, undo)?;

        self.step(Step::Socket, target, undo)?;
        let directory = mount.directory().map_err(|e| failed("hold the mount", e))?;
        let listener = self.in_mount(target, self.serving, "bind the socket in the mount", move || {
            listener::bind_once(directory.as_fd(), SOCKET_NAME)
        })?;
        self.step(Step::Store, target, undo)?;
        self.hand_over(publish, listener.as_fd(), false, undo)?;

        if request.read_only {
            mount.make_read_only().map_err(|e| failed("make the mount read-only", e))?;
        }
        let directory = target.open_directory().map_err(|e| failed("open the target directory", e))?;
        self.step(Step::Attach, target, undo)?;
        // The last step: nothing after it can fail.
        mount.attach(directory.as_fd()).map_err(|e| failed("attach the mount", e))
    }

    /// Whether a publish with a mount still works: its very mount is at the target, and its socket answers.
    pub(super) fn view_standing(&self, target: &Arc<Target>, connection: u32) -> Result<Standing, PublishError> {
        let occupied = |what| PublishError::Occupied { target: target.path().to_string(), what };
        let ours = |root: &Root| root.connection() == Some(connection);
        let failed = failed(target);
        match mount::look(target).map_err(|e| failed("look at what is there", e))? {
            Found::Mounted(root) if ours(&root) => {}
            Found::Mounted(_) | Found::Silent(_) => return Err(occupied("another mount".into())),
            Found::Other(kind) => return Err(occupied(format!("a {kind:?}"))),
            Found::Nothing | Found::Directory | Found::Dead(_) => return Ok(Standing::Over),
        }
        let directory = target.open_directory().map_err(|e| failed("open the target directory", e))?;
        let answers = self.in_mount(target, self.patience, "connect to the socket", move || {
            // The kernel may remember the socket of a mount that answers nothing any more.
            mount::ask(directory.as_fd())?;
            listener::answers(directory.as_fd(), SOCKET_NAME)
        });
        match answers {
            Ok(true) => Ok(Standing::Works),
            Ok(false) => Ok(Standing::Over),
            Err(PublishError::System { source, .. }) if is_dead(&source) => Ok(Standing::Over),
            // Without an answer it may be back in a moment; if it is not, the watchdog ends it.
            Err(error) => Err(error),
        }
    }

    /// Does something that asks the mounter.
    fn in_mount<T: Send + 'static>(
        &self,
        target: &Target,
        deadline: Duration,
        doing: &'static str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, PublishError> {
        let target = target.path().to_string();
        match within(deadline, work) {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(source)) => Err(PublishError::System { doing, target, source }),
            Err(Late::Hangs(after)) => Err(PublishError::Unserved { target, after }),
            Err(late) => Err(PublishError::System { doing, target, source: io::Error::other(late) }),
        }
    }

    /// Takes a view off its target. Its listener was closed before, so only a user inside keeps it busy, or the last of
    /// the store's connections that is being closed. Where nobody answers any more, whoever waits is let go.
    pub(super) fn unmount_view(&self, target: &Arc<Target>, connection: u32) -> io::Result<()> {
        let until = Instant::now() + self.patience;
        let why = loop {
            match mount::try_unmount(target, self.patience)? {
                Unmounted::Gone => return Ok(()),
                Unmounted::Busy if Instant::now() < until => thread::sleep(AGAIN),
                Unmounted::Busy => break "somebody is inside",
                Unmounted::Hangs(_) => break "unmounting hangs",
            }
        };
        if !matches!(mount::inspect(target, self.patience)?, Found::Mounted(_)) {
            tracing::warn!(target_path = %target.path(), connection, "nobody answers in the mount: it is aborted");
            match abort(connection) {
                Ok(_) if mount::try_unmount(target, self.patience)? == Unmounted::Gone => return Ok(()),
                Ok(_) => {}
                Err(error) => tracing::warn!(connection, %error, "not aborted"),
            }
        }
        mount::detach(target, why, self.patience)
    }
}

/// Whoever waits in a mount gets an error. Its mount must be there still, so that the number is its own.
fn abort(connection: u32) -> io::Result<bool> {
    Connections::open()?.abort(connection)
}

fn is_dead(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error).is_some_and(mount::is_dead)
}
