//! Validated domain types: once one of these exists, nobody checks it again.
//!
//! Every constructor takes untrusted input and answers a [`TypeError`] that says what was wrong and what is allowed.

use std::fmt;
use std::str::FromStr;

/// The name under which the store's socket appears in a published volume; no object may carry it.
pub const SOCKET_NAME: &str = ".gpuvol.sock";

/// Longest object path in bytes, `PATH_MAX` of Linux.
pub const MAX_PATH: usize = 4096;
/// Longest path component in bytes, `NAME_MAX` of Linux.
pub const MAX_NAME: usize = 255;
/// Deepest directory nesting; bounds every walk over a path.
pub const MAX_DEPTH: usize = 128;
/// Largest size in bytes that any message may name: offsets in files are signed 64-bit.
pub const MAX_SIZE: u64 = i64::MAX as u64;

/// Why a value is not of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    #[error("volume id {0:?} is not valid: 1 to 128 characters of a-z, 0-9, '-', '.', starting with a letter or digit")]
    VolumeId(String),
    #[error("path {path:?} is not valid: {why}")]
    Path { path: String, why: &'static str },
    #[error("size {0} bytes is larger than the largest supported size of {MAX_SIZE} bytes")]
    Size(u64),
    #[error("device UUID {0:?} is not valid: want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")]
    DeviceUuid(String),
    #[error("size {0:?} is not valid: want bytes, or a number with KiB, MiB, GiB or TiB, such as 4GiB or 1.5GiB")]
    SizeText(String),
    #[error("unknown {what} {value}")]
    Enum { what: &'static str, value: i32 },
}

/// A volume's id: what CSI calls `volume_id`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(String);

impl VolumeId {
    pub fn new(id: impl Into<String>) -> Result<Self, TypeError> {
        let id = id.into();
        let bytes = id.as_bytes();
        let ok = (1..=128).contains(&bytes.len())
            && bytes[0].is_ascii_alphanumeric()
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
            && !id.contains("..");
        if ok { Ok(Self(id)) } else { Err(TypeError::VolumeId(shorten(&id))) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeId({})", self.0)
    }
}

/// A path inside a volume: relative, `/`-separated, any bytes that a Linux file name may have.
///
/// The empty path is the volume's root directory. There is no `.` or `..` component, no empty one, and no component
/// is [`SOCKET_NAME`], so a path can never leave its volume or hide the store's socket.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectPath(Vec<u8>);

impl ObjectPath {
    pub fn root() -> Self {
        Self::default()
    }

    pub fn new(path: impl Into<Vec<u8>>) -> Result<Self, TypeError> {
        let path = path.into();
        let refuse = |why| Err(TypeError::Path { path: shorten(&String::from_utf8_lossy(&path)), why });
        if path.is_empty() {
            return Ok(Self(path));
        }
        if path.len() > MAX_PATH {
            return refuse("longer than 4096 bytes");
        }
        let mut depth = 0;
        for name in path.split(|&b| b == b'/') {
            depth += 1;
            if name.is_empty() {
                return refuse("has an empty component (leading, trailing or doubled '/')");
            }
            if name == b"." || name == b".." {
                return refuse("has a '.' or '..' component");
            }
            if name.len() > MAX_NAME {
                return refuse("has a component longer than 255 bytes");
            }
            if name.contains(&0) {
                return refuse("has a NUL byte");
            }
            if name == SOCKET_NAME.as_bytes() {
                return refuse("uses the reserved name .gpuvol.sock");
            }
        }
        if depth > MAX_DEPTH {
            return refuse("is nested deeper than 128 directories");
        }
        Ok(Self(path))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path's components from the root down; none for the root.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|c| !c.is_empty())
    }

    /// The directory that holds this path, and its name there; `None` for the root.
    pub fn split(&self) -> Option<(ObjectPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => Some((Self(self.0[..at].to_vec()), &self.0[at + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { f.write_str("/") } else { f.write_str(&String::from_utf8_lossy(&self.0)) }
    }
}

impl fmt::Debug for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// A GPU's UUID, the 16 bytes that `cuDeviceGetUuid` and NVML agree on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceUuid(pub [u8; 16]);

impl TryFrom<&[u8]> for DeviceUuid {
    type Error = TypeError;
    fn try_from(bytes: &[u8]) -> Result<Self, TypeError> {
        let array = bytes.try_into().map_err(|_| TypeError::DeviceUuid(format!("{} bytes", bytes.len())))?;
        Ok(Self(array))
    }
}

impl FromStr for DeviceUuid {
    type Err = TypeError;
    fn from_str(text: &str) -> Result<Self, TypeError> {
        let refuse = || TypeError::DeviceUuid(shorten(text));
        let hex: Vec<u8> = text
            .strip_prefix("GPU-")
            .ok_or_else(refuse)?
            .bytes()
            .filter(|b| *b != b'-')
            .map(|b| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect::<Option<_>>()
            .ok_or_else(refuse)?;
        if hex.len() != 32 {
            return Err(refuse());
        }
        let mut uuid = [0; 16];
        for (byte, pair) in uuid.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(uuid))
    }
}

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A size or offset in bytes that fits a signed 64-bit file offset.
pub fn size(bytes: u64) -> Result<u64, TypeError> {
    if bytes <= MAX_SIZE { Ok(bytes) } else { Err(TypeError::Size(bytes)) }
}

/// A size as people write it: `1024`, `64KiB`, `1.5GiB`, `4Gi`, `4G`; units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, TypeError> {
    let refuse = || TypeError::SizeText(shorten(text));
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kb" | "kib" => 1 << 10,
        "m" | "mi" | "mb" | "mib" => 1 << 20,
        "g" | "gi" | "gb" | "gib" => 1 << 30,
        "t" | "ti" | "tb" | "tib" => 1 << 40,
        _ => return Err(refuse()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || fraction.len() > 9 || (factor == 1 && number.contains('.')) {
        return Err(refuse());
    }
    let whole: u64 = whole.parse().map_err(|_| refuse())?;
    let parts: u64 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| refuse())? };
    let scale = 10u64.pow(u32::try_from(fraction.len()).unwrap_or(9));
    let parts = u128::from(parts) * u128::from(factor) / u128::from(scale);
    let total = u128::from(whole) * u128::from(factor) + parts;
    u64::try_from(total).map_err(|_| refuse()).and_then(size)
}

/// Bytes as people read them: `1.5 GiB (1610612736 bytes)`.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = None;
        let mut whole = self.0;
        let mut tenths = 0;
        for name in UNITS {
            if whole < 1024 {
                break;
            }
            tenths = whole % 1024 * 10 / 1024;
            whole /= 1024;
            unit = Some(name);
        }
        match unit {
            None => write!(f, "{} bytes", self.0),
            Some(unit) if tenths == 0 => write!(f, "{whole} {unit} ({} bytes)", self.0),
            Some(unit) => write!(f, "{whole}.{tenths} {unit} ({} bytes)", self.0),
        }
    }
}

/// The longest part of hostile input that an error message repeats.
fn shorten(text: &str) -> String {
    const LIMIT: usize = 160;
    if text.chars().count() <= LIMIT {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(LIMIT).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside_the_volume() {
        for good in ["a", "a/b", "übung/ü", "a b", "..a", "a..", ".gpuvol"] {
            assert!(ObjectPath::new(good).is_ok(), "{good}");
        }
        for bad in ["/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", ".gpuvol.sock", "a/.gpuvol.sock"] {
            assert!(ObjectPath::new(bad).is_err(), "{bad}");
        }
        assert!(ObjectPath::new(b"\xff\xfe".to_vec()).is_ok());
        assert!(ObjectPath::new("x".repeat(256)).is_err());
        assert!(ObjectPath::new("x/".repeat(2047) + "xx").is_err());
        assert!(ObjectPath::new(["d"; MAX_DEPTH].join("/")).is_ok());
        assert!(ObjectPath::new(["d"; MAX_DEPTH + 1].join("/")).is_err());
    }

    #[test]
    fn path_splits_into_parent_and_name() {
        let path = ObjectPath::new("a/b/c").unwrap();
        let (parent, name) = path.split().unwrap();
        assert_eq!((parent.as_bytes(), name), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(ObjectPath::new("a").unwrap().split().unwrap().0, ObjectPath::root());
        assert!(ObjectPath::root().split().is_none());
    }

    #[test]
    fn volume_ids_cannot_name_other_files() {
        for good in ["pvc-1", "a", "gv.1"] {
            assert!(VolumeId::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "-a", "a/b", "A", "a..b", "a\n"] {
            assert!(VolumeId::new(bad).is_err(), "{bad}");
        }
        assert!(VolumeId::new("a".repeat(129)).is_err());
    }

    #[test]
    fn device_uuids_round_trip() {
        let text = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
        let uuid: DeviceUuid = text.parse().unwrap();
        assert_eq!(uuid.0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(uuid.to_string(), text);
        for bad in
            ["", "GPU-", "GPU-00", "00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-zz010203-0405-0607-0809-0a0b0c0d0e0f"]
        {
            assert!(bad.parse::<DeviceUuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65536),
            ("4GiB", 4 << 30),
            ("1.5GiB", 3 << 29),
            ("2 Mi", 2 << 20),
            ("1G", 1 << 30),
            ("7b", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "GiB", "-1", "1.2.3", "1XB", "4ib", "1kbbb", "1.5", "99999999999999999999", "8388608TiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_read_like_a_person_writes_them() {
        assert_eq!(Bytes(12).to_string(), "12 bytes");
        assert_eq!(Bytes(1 << 30).to_string(), "1 GiB (1073741824 bytes)");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB (1610612736 bytes)");
    }
}
