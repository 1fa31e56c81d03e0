//! Protocol versions, and the history of the protocol.

use crate::types::TypeError;

/// Every version that was ever released, oldest first. The documentation of a variant says what it changed, so this
/// enum is the protocol's history. A peer names the range it speaks; the store picks the highest version in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum Version {
    /// The first: length-prefixed protobuf frames, descriptors on the first byte, lease by pipe.
    V1 = 1,
}

impl Version {
    /// The oldest version this build speaks.
    pub const OLDEST: Version = Version::V1;
    /// The newest version this build speaks.
    pub const NEWEST: Version = Version::V1;

    pub fn number(self) -> u32 {
        self as u32
    }

    /// The highest version that both this build and a peer speaking `min..=max` know.
    pub fn negotiate(min: u32, max: u32) -> Option<Version> {
        let highest = max.min(Self::NEWEST.number());
        (highest >= min.max(Self::OLDEST.number())).then(|| Self::try_from(highest).ok()).flatten()
    }
}

impl TryFrom<u32> for Version {
    type Error = TypeError;
    fn try_from(number: u32) -> Result<Self, TypeError> {
        match number {
            1 => Ok(Version::V1),
            other => Err(TypeError::Enum { what: "protocol version", value: i32::try_from(other).unwrap_or(i32::MAX) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_takes_the_highest_common_version() {
        assert_eq!(Version::negotiate(1, 1), Some(Version::V1));
        assert_eq!(Version::negotiate(1, 99), Some(Version::V1));
        assert_eq!(Version::negotiate(2, 99), None);
        assert_eq!(Version::negotiate(0, 0), None);
        assert_eq!(Version::negotiate(5, 1), None);
    }
}
