//! Publishing a volume at a target path, and undoing it.
//!
//! A published volume is a directory that holds the store's socket and nothing else. With [`MountMode::Bind`] it is
//! `<state>/publish/<publish id>`, mounted read-only at the target: a pod cannot write to the node's disk, and
//! connecting to a socket works on a read-only mount. The socket can be replaced in place, under a mount that stays.
//! With [`MountMode::None`] the socket is in the target directory itself.
//!
//! Every step looks first whether it is done already, and a step that fails takes back what this call did, and nothing
//! that was there before: repeating a publish finishes a half-done one and never takes down a working one.

mod check;
mod home;
mod repeat;
mod retract;
pub mod steps;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvol_protocol::VolumeId;
use gpuvol_protocol::admin::Publish;
use gpuvol_protocol::types::SOCKET_NAME;
use rustix::fs::Mode;

use crate::listener;
use crate::mount::{self, Detached, Found, Root};
use crate::store_client::{StoreClient, StoreError};
use crate::target::{Roots, Target, TargetError, TargetPath};
use crate::undo::Undo;
use steps::{Hook, Step};

/// How a published volume appears at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountMode {
    /// As a read-only mount.
    Bind,
    /// As a plain directory, for machines where mounting is not permitted.
    None,
}

/// A volume at a target, and how.
#[derive(Debug, Clone)]
pub struct Request {
    pub volume: VolumeId,
    pub target: TargetPath,
    /// Nothing may be written to the volume through this publish; the mount itself is always read-only.
    pub read_only: bool,
    /// Several publishes of the volume at once.
    pub shared: bool,
    /// `namespace/name`, or empty.
    pub pod: String,
    /// The rest of the arguments, for comparison with a repeated publish.
    pub arguments: String,
}

/// Why a volume could not be published or unpublished.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("target path {target} has volume {volume} published with other arguments ({was}); unpublish it first")]
    OtherArguments { target: String, volume: String, was: String },
    #[error(
        "volume {volume} is published at {at} already, and one of the two publishes is for a single user; \
         use access mode SINGLE_NODE_MULTI_WRITER (ReadWriteOnce) for both, or unpublish the other"
    )]
    Elsewhere { volume: String, at: String },
    #[error("target path {target} is taken by {what}, which is not gpuvol's; remove it first")]
    Occupied { target: String, what: String },
    #[error("target path {target} holds other files than gpuvol's, so it is not removed; remove them first")]
    NotEmpty { target: String },
    #[error("the volume is published where this plugin cannot reach it")]
    Unreachable(#[source] TargetError),
    #[error("cannot {doing} for target path {target}")]
    System { doing: &'static str, target: String, source: io::Error },
}

/// Publishes volumes of one store on this node.
#[derive(Debug)]
pub struct Publisher {
    store: Arc<StoreClient>,
    /// Holds one directory for each publish.
    homes: PathBuf,
    roots: Roots,
    mode: MountMode,
    /// How long a look at a mount, or an unmount, may take.
    patience: Duration,
    hook: Hook,
}

impl Publisher {
    /// `state` is the node's state directory; publishes live below it.
    pub fn new(store: Arc<StoreClient>, state: &Path, roots: Roots, mode: MountMode) -> Self {
        let patience = Duration::from_secs(5);
        Self { store, homes: state.join("publish"), roots, mode, patience, hook: Hook::default() }
    }

    /// For tests: what happens at each step, and how long mounts may hang.
    pub fn with_hook(mut self, hook: Hook, patience: Duration) -> Self {
        self.hook = hook;
        self.patience = patience;
        self
    }

    /// Publishes a volume, finishes a publish that was cut short, or finds a working one and leaves it alone. Blocks; the
    /// caller sees to it that nothing else happens to the volume or the target meanwhile.
    pub fn publish(&self, request: &Request) -> Result<(), PublishError> {
        let target = Arc::new(self.roots.open(&request.target)?);
        let known = repeat::check(&self.store.publishes()?, request)?;
        let found = self.clear_dead(&target)?;
        let mut undo = Undo::default();
        let home = self.make_home(&target, &found, &mut undo)?;
        self.serve(request, &target, &home, known, &mut undo)?;
        if self.mode == MountMode::Bind {
            self.attach(&target, &found, &home, &mut undo)?;
        }
        undo.keep();
        Ok(())
    }

    /// Unmounts mounts whose file system is gone, which nobody can use any more. What is left may be ours or free.
    fn clear_dead(&self, target: &Arc<Target>) -> Result<Found, PublishError> {
        let failed = |doing, source| PublishError::System { doing, target: target.path().to_string(), source };
        for _ in 0..retract::MOST_LAYERS {
            match mount::inspect(target, self.patience).map_err(|e| failed("look at what is there", e))? {
                Found::Dead(why) => {
                    tracing::warn!(target_path = %target.path(), why, "a dead mount is unmounted before the publish");
                    mount::unmount(target, self.patience).map_err(|e| failed("unmount a dead mount", e))?;
                }
                Found::Other(kind) => {
                    let (target, what) = (target.path().to_string(), format!("a {kind:?}"));
                    return Err(PublishError::Occupied { target, what });
                }
                found => return Ok(found),
            }
        }
        let what = format!("more than {} dead mounts", retract::MOST_LAYERS);
        Err(PublishError::Occupied { target: target.path().to_string(), what })
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
        let failed = |doing, source| PublishError::System { doing, target: request.target.to_string(), source };
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
        let id = request.target.publish_id();
        let fresh = known.is_none();
        let publish = known.unwrap_or_else(|| Publish {
            publish: id.clone(),
            volume: request.volume.to_string(),
            target: request.target.to_string(),
            read_only: request.read_only,
            pod: request.pod.clone(),
            shared: request.shared,
            arguments: request.arguments.clone(),
            mount: None,
        });
        let answer = self.store.publish(publish, listener.as_fd());
        // Without an answer the store may have done it. A publish that it knew before is not this call's to end.
        if fresh && !matches!(answer, Err(StoreError::Fault(_))) {
            undo.push(move || {
                if let Err(error) = self.store.unpublish(&id) {
                    tracing::warn!(publish = id, %error, "the store may keep a publish that failed; repeat or unpublish it");
                }
            });
        }
        answer?;
        Ok(())
    }

    /// Mounts the home directory at the target, unless it is there.
    fn attach(
        &self,
        target: &Arc<Target>,
        found: &Found,
        home: &File,
        undo: &mut Undo<'_>,
    ) -> Result<(), PublishError> {
        let failed = |doing, source| PublishError::System { doing, target: target.path().to_string(), source };
        let root = Root::of(home.as_fd()).map_err(|e| failed("look at the publish directory", e))?;
        match found {
            Found::Mounted(at) if *at == root => return Ok(()),
            Found::Mounted(_) => {
                let (target, what) = (target.path().to_string(), "another mount".to_owned());
                return Err(PublishError::Occupied { target, what });
            }
            Found::Nothing | Found::Directory | Found::Dead(_) | Found::Other(_) => {}
        }
        self.step(Step::Detached, target, undo)?;
        let mount = Detached::read_only(home.as_fd()).map_err(|e| failed("make a read-only mount", e))?;
        let directory = target.open_directory().map_err(|e| failed("open the target directory", e))?;
        self.step(Step::Attach, target, undo)?;
        // The last step: nothing after it can fail.
        mount.attach(directory.as_fd()).map_err(|e| failed("attach the mount", e))
    }
}
