//! Where volumes are reachable from: exactly one node.

use std::collections::HashMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::csi::{Topology, TopologyRequirement};

/// The topology key; its value names a node.
pub const KEY: &str = "topology.csi.gpuvol.dev/node";
/// Longest value of a label, and so of a topology segment, in Kubernetes.
const MAX_VALUE: usize = 63;
/// Hex digits of the hash in a shortened value: 64 bits tell apart all nodes of any cluster.
const HASH_DIGITS: usize = 16;

/// The segment of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTopology(String);

impl NodeTopology {
    /// A node name may have 253 characters: a longer one than a label's value keeps its beginning and a hash of all.
    pub fn of(node_name: &str) -> Self {
        if node_name.len() <= MAX_VALUE {
            return Self(node_name.to_owned());
        }
        let kept: String = node_name.chars().take(MAX_VALUE - 1 - HASH_DIGITS).collect();
        let kept = kept.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        Self(format!("{kept}-{}", hash(node_name, HASH_DIGITS)))
    }

    /// This node as CSI's topology.
    pub fn segments(&self) -> Topology {
        Topology { segments: HashMap::from([(KEY.to_owned(), self.0.clone())]) }
    }

    /// A place includes this node: it names this node, or no node at all.
    pub fn is_in(&self, place: &Topology) -> bool {
        place.segments.get(KEY).is_none_or(|node| *node == self.0)
    }

    /// A volume on this node would satisfy the requirement.
    pub fn satisfies(&self, requirement: Option<&TopologyRequirement>) -> bool {
        requirement.is_none_or(|r| r.requisite.is_empty() || r.requisite.iter().any(|place| self.is_in(place)))
    }

    /// The topology value, at most 63 characters.
    pub fn value(&self) -> &str {
        &self.0
    }
}

/// The first hex digits of a text's SHA-256.
pub fn hash(text: &str, digits: usize) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex.truncate(digits);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_a_label_and_stay_distinct() {
        assert_eq!(NodeTopology::of("node-1").value(), "node-1");
        assert_eq!(NodeTopology::of(&"n".repeat(63)).value(), "n".repeat(63));
        let a = NodeTopology::of(&format!("{}-a", "n".repeat(200)));
        let b = NodeTopology::of(&format!("{}-b", "n".repeat(200)));
        assert_ne!(a, b);
        let dots = NodeTopology::of(&format!("{}{}", "n".repeat(45), ".".repeat(100)));
        for value in [a.value(), b.value(), dots.value()] {
            assert!(value.len() <= 63, "{value}");
            assert!(value.ends_with(|c: char| c.is_ascii_alphanumeric()), "{value}");
        }
    }

    #[test]
    fn a_requirement_is_met_by_naming_this_node_or_none() {
        let here = NodeTopology::of("here");
        let there = NodeTopology::of("there").segments();
        assert!(here.satisfies(None));
        assert!(here.satisfies(Some(&TopologyRequirement::default())));
        let requisite = vec![there.clone(), here.segments()];
        assert!(here.satisfies(Some(&TopologyRequirement { requisite, preferred: vec![] })));
        assert!(!here.satisfies(Some(&TopologyRequirement { requisite: vec![there], preferred: vec![] })));
    }

    #[test]
    fn hashes_are_sha256() {
        assert_eq!(hash("abc", 16), "ba7816bf8f01cfea");
    }
}
