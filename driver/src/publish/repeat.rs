//! The specification's table of second publishes.

use gpuvol_protocol::admin::Publish;

use super::{PublishError, Request};

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
    use crate::target::TargetPath;
    use gpuvol_protocol::VolumeId;

    fn request(volume: &str, target: &str, shared: bool) -> Request {
        Request {
            volume: VolumeId::new(volume).unwrap(),
            target: TargetPath::parse(target).unwrap(),
            read_only: false,
            shared,
            pod: "ns/pod".into(),
            arguments: "mode=x".into(),
        }
    }

    fn publish(of: &Request) -> Publish {
        Publish {
            publish: of.target.publish_id(),
            volume: of.volume.to_string(),
            target: of.target.to_string(),
            read_only: of.read_only,
            pod: String::new(),
            shared: of.shared,
            arguments: of.arguments.clone(),
            mount: None,
        }
    }

    #[test]
    fn the_table_of_second_publishes() {
        let first = request("v", "/t/1", false);
        let known = [publish(&first)];
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
        let shared = [publish(&request("v", "/t/1", true))];
        assert!(check(&shared, &request("v", "/t/2", true)).unwrap().is_none());
        assert!(matches!(check(&shared, &request("v", "/t/2", false)), Err(PublishError::Elsewhere { .. })));
    }
}
