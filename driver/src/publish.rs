//! Publishing a volume at a target path, and undoing it.
//!
//! With [`MountMode::View`] the volume's files are at the target, as a FUSE file system that the mounter serves; the
//! store's socket is in it under a hidden name ([`view`]). With [`MountMode::Bind`] there is a directory that holds the
//! store's socket and nothing else: `<state>/publish/<publish id>`, mounted read-only at the target: a pod cannot write
//! to the node's disk, and connecting to a socket works on a read-only mount. The socket can be replaced in place, under
//! a mount that stays ([`bind`]). With [`MountMode::None`] the socket is in the target directory itself.
//!
//! Every step looks first whether it is done already, and a step that fails takes back what this call did, and nothing
//! that was there before: repeating a publish finishes a half-done one and never takes down a working one.

mod bind;
mod check;
mod home;
mod mode;
mod repeat;
mod retract;
pub mod steps;
mod view;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvol_protocol::VolumeId;
use gpuvol_protocol::admin::Publish;

use crate::mount::{self, Found};
use crate::parameters::Files;
use crate::store_client::{StoreClient, StoreError};
use crate::target::{Roots, Target, TargetError, TargetPath};
use crate::undo::Undo;
pub use mode::{Best, MountMode};
use repeat::Standing;
use steps::Hook;

/// A volume at a target, and how.
#[derive(Debug, Clone)]
pub struct Request {
    pub volume: VolumeId,
    pub target: TargetPath,
    /// Nothing may be written to the volume through this publish.
    pub read_only: bool,
    /// Several publishes of the volume at once.
    pub shared: bool,
    /// What the volume wants its pods to see; less where the plugin's own mode is less.
    pub files: Files,
    /// `namespace/name`, or empty.
    pub pod: String,
    /// The rest of the arguments, for comparison with a repeated publish.
    pub arguments: String,
}

impl Request {
    /// As the store gets it, without a mount.
    fn publish(&self) -> Publish {
        Publish {
            publish: self.target.publish_id(),
            volume: self.volume.to_string(),
            target: self.target.to_string(),
            read_only: self.read_only,
            pod: self.pod.clone(),
            shared: self.shared,
            arguments: self.arguments.clone(),
            mount: None,
        }
    }
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
    #[error(
        "the files of target path {target} were not served within {after:?}; is gpuvol-mounter running on this node? \
         Repeat the call when it is"
    )]
    Unserved { target: String, after: Duration },
    #[error("cannot {doing} for target path {target}")]
    System { doing: &'static str, target: String, source: io::Error },
}

/// For `map_err` on a system call: what failed, at which target.
fn failed(target: &Target) -> impl Fn(&'static str, io::Error) -> PublishError {
    let target = target.path().to_string();
    move |doing, source| PublishError::System { doing, target: target.clone(), source }
}

/// Publishes volumes of one store on this node.
#[derive(Debug)]
pub struct Publisher {
    store: Arc<StoreClient>,
    /// Holds one directory for each publish that is a bind mount.
    homes: PathBuf,
    roots: Roots,
    mode: MountMode,
    /// How long a look at a mount, or an unmount, may take.
    patience: Duration,
    /// How long the mounter may take until it serves a new mount; it may be on its way back up.
    serving: Duration,
    hook: Hook,
}

impl Publisher {
    /// `state` is the node's state directory; publishes live below it. `mode` is the most that a publish can be.
    pub fn new(store: Arc<StoreClient>, state: &Path, roots: Roots, mode: MountMode) -> Self {
        let (patience, serving) = (Duration::from_secs(5), Duration::from_secs(30));
        Self { store, homes: state.join("publish"), roots, mode, patience, serving, hook: Hook::default() }
    }

    /// For tests: what happens at each step, and how long mounts may hang.
    pub fn with_hook(mut self, hook: Hook, patience: Duration) -> Self {
        self.hook = hook;
        self.patience = patience;
        self.serving = patience;
        self
    }

    /// Publishes a volume, finishes a publish that was cut short, or finds a working one and leaves it alone. Blocks; the
    /// caller sees to it that nothing else happens to the volume or the target meanwhile.
    pub fn publish(&self, request: &Request) -> Result<(), PublishError> {
        let target = Arc::new(self.roots.open(&request.target)?);
        let known = repeat::check(&self.store.publishes()?.publishes, request)?;
        let wanted =
            if request.files == Files::None && self.mode == MountMode::View { MountMode::Bind } else { self.mode };
        let (known, form) = match known {
            None => (None, wanted),
            Some(known) => match self.standing(&known, &target, wanted)? {
                Standing::Works => return Ok(()),
                Standing::Unfinished(form) => (Some(known), form),
                Standing::Over => {
                    tracing::warn!(target_path = %target.path(), "a publish that is not there any more is ended");
                    self.end(&known, &target)?;
                    (None, wanted)
                }
            },
        };
        let found = self.clear_dead(&target)?;
        let mut undo = Undo::default();
        match form {
            MountMode::View => self.publish_view(request, &target, &found, &mut undo)?,
            MountMode::Bind | MountMode::None => {
                self.publish_socket(request, &target, &found, known, form, &mut undo)?;
            }
        }
        undo.keep();
        Ok(())
    }

    /// Unmounts mounts whose file system is gone, which nobody can use any more. What is left may be ours or free.
    fn clear_dead(&self, target: &Arc<Target>) -> Result<Found, PublishError> {
        let failed = failed(target);
        for _ in 0..retract::MOST_LAYERS {
            let why = match mount::inspect(target, self.patience).map_err(|e| failed("look at what is there", e))? {
                Found::Dead(why) => why,
                // One of a publish that the store knows is not looked at here.
                Found::Silent(_) => format!("its file system did not answer within {:?}", self.patience),
                Found::Other(kind) => {
                    let (target, what) = (target.path().to_string(), format!("a {kind:?}"));
                    return Err(PublishError::Occupied { target, what });
                }
                found => return Ok(found),
            };
            tracing::warn!(target_path = %target.path(), why, "a dead mount is unmounted before the publish");
            mount::unmount(target, self.patience).map_err(|e| failed("unmount a dead mount", e))?;
        }
        let what = format!("more than {} dead mounts", retract::MOST_LAYERS);
        Err(PublishError::Occupied { target: target.path().to_string(), what })
    }

    /// Gives the store a publish with its descriptor. What comes of a call without an answer is taken back with the
    /// rest, if the store did not know the publish before.
    fn hand_over<'a>(
        &'a self,
        publish: Publish,
        descriptor: BorrowedFd<'_>,
        fresh: bool,
        undo: &mut Undo<'a>,
    ) -> Result<(), PublishError> {
        let id = publish.publish.clone();
        let answer = self.store.publish(publish, descriptor);
        // Without an answer the store may have done it. A publish that it knew before is not this call's to end.
        if fresh && !matches!(answer, Err(StoreError::Fault(_))) {
            undo.push(move || {
                if let Err(error) = self.store.unpublish(&id) {
                    tracing::warn!(publish = id, %error, "the store may keep a publish that failed; repeat or unpublish it");
                }
            });
        }
        Ok(answer?)
    }
}
