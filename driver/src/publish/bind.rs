//! A publish that is the store's socket and no files: in a directory of its own that is mounted read-only at the target,
//! or in the target directory itself.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use gpuvol_protocol::admin::Publish;
use gpuvol_protocol::types::SOCKET_NAME;
use rustix::fs::Mode;

use super::steps::Step;
use super::{MountMode, PublishError, Publisher, Request, failed};
use crate::listener;
use crate::mount::{Detached, Found, Root};
use crate::target::Target;
use crate::undo::Undo;

impl Publisher {
    /// `form` is anything but a view.
    pub(super) fn publish_socket<'a>(
        &'a self,
        request: &Request,
        target: &Arc<Target>,
        found: &Found,
        known: Option<Publish>,
        form: MountMode,
        undo: &mut Undo<'a>,
    ) -> Result<(), PublishError> {
        let home = self.make_home(target, found, form, undo)?;
        self.serve(request, target, &home, known, undo)?;
        if form == MountMode::Bind {
            self.attach(target, found, &home, undo)?;
        }
        Ok(())
    }

    /// Sees to it that the store serves the volume on a socket in the home directory.
    fn serve<'a>(
        &'a self,
        request: &Request,
        target: &Arc<Target>,
        home: &Arc<File>,
        known: Option<Publish>,
        undo: &mut Undo<'a>,
    ) -> Result<(), PublishError> {
        let failed = failed(target);
        let directory = home.as_fd();
        let answers = || listener::answers(directory, SOCKET_NAME).map_err(|e| failed("connect to the socket", e));
        if known.is_some() && answers()? {
            return Ok(());
        }
        self.step(Step::Socket, target, undo)?;
        // Pods have any uid and none of the node's groups: who has the mount may connect.
        let listener = listener::bind(directory, SOCKET_NAME, Mode::from_raw_mode(0o777))
            .map_err(|e| failed("bind the socket", e))?;
        let home = Arc::clone(home);
        undo.push(move || {
            if let Err(error) = listener::remove(home.as_fd(), SOCKET_NAME) {
                tracing::warn!(%error, "a socket is left behind after a failed publish");
            }
        });
        self.step(Step::Store, target, undo)?;
        let fresh = known.is_none();
        self.hand_over(known.unwrap_or_else(|| request.publish()), listener.as_fd(), fresh, undo)
    }

    /// Mounts the home directory at the target, unless it is there.
    fn attach(
        &self,
        target: &Arc<Target>,
        found: &Found,
        home: &File,
        undo: &mut Undo<'_>,
    ) -> Result<(), PublishError> {
        let failed = failed(target);
        let root = Root::of(home.as_fd()).map_err(|e| failed("look at the publish directory", e))?;
        match found {
            Found::Mounted(at) if *at == root => return Ok(()),
            Found::Mounted(_) => {
                let (target, what) = (target.path().to_string(), "another mount".to_owned());
                return Err(PublishError::Occupied { target, what });
            }
            Found::Nothing | Found::Directory | Found::Silent(_) | Found::Dead(_) | Found::Other(_) => {}
        }
        self.step(Step::Detached, target, undo)?;
        let mount = Detached::read_only(home.as_fd()).map_err(|e| failed("make a read-only mount", e))?;
        let directory = target.open_directory().map_err(|e| failed("open the target directory", e))?;
        self.step(Step::Attach, target, undo)?;
        // The last step: nothing after it can fail.
        mount.attach(directory.as_fd()).map_err(|e| failed("attach the mount", e))
    }
}
