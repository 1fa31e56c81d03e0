//! From CSI's capacity range to the size of a volume.
//!
//! The store rounds internally; what is reported is exactly what was asked, because the range is a promise.

use crate::csi::CapacityRange;

/// The size of a volume for which nobody named one, in bytes.
pub const DEFAULT_SIZE: u64 = 1 << 30;

/// At least `required` bytes, at most `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeRange {
    required: u64,
    limit: u64,
}

/// No size fits the range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    #[error("capacity range has a negative size: required_bytes {required}, limit_bytes {limit}")]
    Negative { required: i64, limit: i64 },
    #[error("capacity range is empty: required_bytes {required} is more than limit_bytes {limit}")]
    Empty { required: u64, limit: u64 },
}

impl SizeRange {
    /// Reads a range in bytes. No range, or a side that is 0, is open.
    pub fn parse(range: Option<&CapacityRange>) -> Result<Self, RangeError> {
        let (required, limit) = range.map_or((0, 0), |r| (r.required_bytes, r.limit_bytes));
        let (Ok(required), Ok(limit)) = (u64::try_from(required), u64::try_from(limit)) else {
            return Err(RangeError::Negative { required, limit });
        };
        if limit != 0 && required > limit {
            return Err(RangeError::Empty { required, limit });
        }
        Ok(Self { required, limit: if limit == 0 { i64::MAX.cast_unsigned() } else { limit } })
    }

    /// The size of a new volume in bytes.
    pub fn new_size(&self) -> u64 {
        if self.required == 0 { DEFAULT_SIZE.min(self.limit) } else { self.required }
    }

    /// A volume of this many bytes already is what was asked for.
    pub fn admits(&self, size: u64) -> bool {
        (self.required..=self.limit).contains(&size)
    }

    /// Fewest bytes asked for; 0 where no number was named.
    pub fn required(&self) -> u64 {
        self.required
    }

    /// Most bytes allowed.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required_bytes: i64, limit_bytes: i64) -> Result<SizeRange, RangeError> {
        SizeRange::parse(Some(&CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn the_size_is_exactly_what_was_asked() {
        assert_eq!(SizeRange::parse(None).unwrap().new_size(), DEFAULT_SIZE);
        assert_eq!(range(0, 0).unwrap().new_size(), DEFAULT_SIZE);
        assert_eq!(range(10 << 30, 0).unwrap().new_size(), 10 << 30);
        assert_eq!(range(1, 0).unwrap().new_size(), 1);
        assert_eq!(range(0, 1000).unwrap().new_size(), 1000);
        assert_eq!(range(7, 7).unwrap().new_size(), 7);
    }

    #[test]
    fn impossible_ranges_are_refused() {
        assert!(matches!(range(2, 1), Err(RangeError::Empty { .. })));
        assert!(matches!(range(-1, 0), Err(RangeError::Negative { .. })));
        assert!(matches!(range(0, -1), Err(RangeError::Negative { .. })));
    }

    #[test]
    fn an_existing_size_is_compared_with_both_ends() {
        let asked = range(5, 10).unwrap();
        assert!(!asked.admits(4) && asked.admits(5) && asked.admits(10) && !asked.admits(11));
        assert!(SizeRange::parse(None).unwrap().admits(1));
        assert!(range(5, 0).unwrap().admits(u64::MAX / 2));
    }
}
