//! Bytes that tell where they came from: different for every seed and at every offset, and never zero, so that a hole or
//! a page of zeros is never taken for data.

pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The first difference in words, or None where both are equal.
pub fn difference(expected: &[u8], got: &[u8]) -> Option<String> {
    if expected == got {
        return None;
    }
    let common = expected.len().min(got.len());
    let at = (0..common).find(|&n| expected[n] != got[n]);
    let lengths = match expected.len() == got.len() {
        true => format!("{} bytes", expected.len()),
        false => format!("expected {} bytes, got {}", expected.len(), got.len()),
    };
    Some(match at {
        None => lengths,
        Some(at) => {
            let end = (at..common).rev().find(|&n| expected[n] != got[n]).unwrap_or(at);
            format!(
                "{lengths}; they differ from {at} to {end}: expected {}, got {}",
                short(&expected[at..]),
                short(&got[at..])
            )
        }
    })
}

/// The beginning of some bytes in hexadecimal; a run of zeros as its length.
pub fn short(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    if zeros >= 8 {
        return format!("{zeros} zeros");
    }
    let head: String = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > 8 { head + ".." } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_first_difference() {
        assert_eq!(difference(b"same", b"same"), None);
        assert_eq!(difference(b"abcd", b"abXd").unwrap(), "4 bytes; they differ from 2 to 2: expected 6364, got 5864");
        assert_eq!(difference(b"ab", b"abc").unwrap(), "expected 2 bytes, got 3");
    }

    #[test]
    fn has_no_zero_and_depends_on_the_seed() {
        assert!(content(7, 10_000).iter().all(|&byte| byte != 0));
        assert_ne!(content(7, 64), content(8, 64));
        assert_eq!(content(7, 64), content(7, 65)[..64]);
    }
}
