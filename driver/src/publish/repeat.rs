//! The specification's table of second publishes, and what is left of the first one.

use std::os::fd::AsFd;
use std::sync::Arc;

use gpuvol_protocol::admin::Publish;
use gpuvol_protocol::types::SOCKET_NAME;
use rustix::fs::AtFlags;

use super::{MountMode, PublishError, Publisher, Request, failed};
use crate::mount::{self, Found};
use crate::target::Target;

/// How a publish that the store knows stands on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Works,
    /// It is a socket, in this form, and whatever is missing can be made.
    Unfinished(MountMode),
    /// Nobody can use it any more: it is to be ended, and made anew.
    Over,
}

impl Publisher {
    /// `wanted` is the form in which it would be made now; a working one keeps the form that it has.
    pub(super) fn standing(
        &self,
        known: &Publish,
        target: &Arc<Target>,
        wanted: MountMode,
    ) -> Result<Standing, PublishError> {
        let failed = failed(target);
        if let Some(view) = known.mount {
            return self.view_standing(target, view.connection);
        }
        if wanted != MountMode::View {
            return Ok(Standing::Unfinished(wanted));
        }
        Ok(match mount::look(target).map_err(|e| failed("look at what is there", e))? {
            Found::Mounted(root) if self.root_of_home(target) == Some(root) => Standing::Unfinished(MountMode::Bind),
            Found::Directory if has_socket(target) => Standing::Unfinished(MountMode::None),
            _ => Standing::Over,
        })
    }

    /// Ends a publish of which nothing is left that works, and takes off what is left of its mount.
    pub(super) fn end(&self, known: &Publish, target: &Arc<Target>) -> Result<(), PublishError> {
        let failed = failed(target);
        // Its descriptors go first, so nothing hangs in its mount any more.
        self.store.unpublish(&known.publish)?;
        let Some(view) = known.mount else { return Ok(()) };
        match mount::look(target).map_err(|e| failed("look at what is there", e))? {
            Found::Mounted(root) if root.connection() == Some(view.connection) => {
                mount::unmount(target, self.patience).map_err(|e| failed("unmount a dead mount", e))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the target directory holds the store's socket.
fn has_socket(target: &Target) -> bool {
    target
        .open_directory()
        .is_ok_and(|directory| rustix::fs::statat(directory.as_fd(), SOCKET_NAME, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

/// Compares a request with what the store has published, and answers this very publish where it is known. Another use
/// of the same target is refused, and another target unless both publishes are shared.
pub(super) fn check(publishes: &[Publish], request: &Request) -> Result<Option<Publish>, PublishError> {
    let id = request.target.publish_id();
    if let Some(same) = publishes.iter().find(|publish| publish.publish == id) {
        return if is_same(same, request) {
            Ok(Some(same.clone()))
        } else {
            Err(PublishError::OtherArguments {
                target: same.target.clone(),
                volume: same.volume.clone(),
                was: format!("readonly={}, {}", same.read_only, same.arguments),
            })
        };
    }
    let volume = request.volume.as_str();
    match publishes.iter().find(|p| p.volume == volume && !(p.shared && request.shared)) {
        Some(other) => Err(PublishError::Elsewhere { volume: volume.to_owned(), at: other.target.clone() }),
        None => Ok(None),
    }
}

/// The pod is not compared: it is there for people, and kubelet may know less of it after a restart.
fn is_same(known: &Publish, request: &Request) -> bool {
    known.volume == request.volume.as_str()
        && known.read_only == request.read_only
        && known.shared == request.shared
        && known.arguments == request.arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Files;
    use crate::target::TargetPath;
    use gpuvol_protocol::VolumeId;

    fn request(volume: &str, target: &str, shared: bool) -> Request {
        Request {
            volume: VolumeId::new(volume).unwrap(),
            target: TargetPath::parse(target).unwrap(),
            read_only: false,
            shared,
            files: Files::View,
            pod: "ns/pod".into(),
            arguments: "mode=x".into(),
        }
    }

    #[test]
    fn the_table_of_second_publishes() {
        let first = request("v", "/t/1", false);
        let known = [first.publish()];
        assert!(check(&known, &first).unwrap().is_some());
        assert!(check(&[], &first).unwrap().is_none());
        let other_mode = Request { arguments: "mode=y".into(), ..first.clone() };
        let read_only = Request { read_only: true, ..first.clone() };
        let other_volume = request("w", "/t/1", false);
        for other in [other_mode, read_only, other_volume] {
            assert!(matches!(check(&known, &other), Err(PublishError::OtherArguments { .. })));
        }
        assert!(matches!(check(&known, &request("v", "/t/2", false)), Err(PublishError::Elsewhere { .. })));
        assert!(matches!(check(&known, &request("v", "/t/2", true)), Err(PublishError::Elsewhere { .. })));
        assert!(check(&known, &request("w", "/t/2", false)).unwrap().is_none());
        let shared = [request("v", "/t/1", true).publish()];
        assert!(check(&shared, &request("v", "/t/2", true)).unwrap().is_none());
        assert!(matches!(check(&shared, &request("v", "/t/2", false)), Err(PublishError::Elsewhere { .. })));
    }
}
