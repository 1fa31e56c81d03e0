//! What the environment asks this driver to be.

use crate::faults::Faults;

/// The device that there is by default.
const DEFAULT_DEVICE: &str = "GPU-fa4e0000-0000-4000-8000-000000000001";
/// Bytes of memory of each device by default.
const DEFAULT_MEMORY: u64 = 16 << 30;

/// The visible devices and the faults to inject.
#[derive(Debug, Clone)]
pub struct Config {
    pub devices: Vec<[u8; 16]>,
    pub memory: u64,
    pub faults: Faults,
}

impl Config {
    /// A mistake in the environment is reported on standard error, since CUDA's numbers cannot say it.
    pub fn from_environment() -> Option<Self> {
        let read = |name: &str| std::env::var(name).ok();
        let devices = read("GPUVOL_FAKE_CUDA_DEVICES").unwrap_or_else(|| DEFAULT_DEVICE.to_owned());
        let memory = read("GPUVOL_FAKE_CUDA_MEMORY");
        let faults = read("GPUVOL_FAKE_CUDA_FAULTS").unwrap_or_default();
        match Self::parse(&devices, memory.as_deref(), &faults) {
            Ok(config) => Some(config),
            Err(message) => {
                eprintln!("gpuvol fake CUDA: {message}");
                None
            }
        }
    }

    fn parse(devices: &str, memory: Option<&str>, faults: &str) -> Result<Self, String> {
        let devices = devices
            .split(',')
            .map(str::trim)
            .filter(|device| !device.is_empty())
            .map(|device| parse_uuid(device).ok_or_else(|| format!("`{device}` is not a UUID")))
            .collect::<Result<_, _>>()?;
        let memory = match memory {
            None => DEFAULT_MEMORY,
            Some(text) => text.trim().parse().map_err(|_| format!("`{text}` is not a number of bytes"))?,
        };
        Ok(Self { devices, memory, faults: Faults::parse(faults)? })
    }
}

/// `GPU-8-4-4-4-12` hexadecimal digits, the prefix optional.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.strip_prefix("GPU-").unwrap_or(text).split('-').collect();
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

/// As NVML writes it.
pub fn format_uuid(uuid: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(uuid));
    format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_survive_a_round_trip() {
        let uuid = parse_uuid(DEFAULT_DEVICE).unwrap();
        assert_eq!(format_uuid(uuid), DEFAULT_DEVICE);
        assert_eq!(parse_uuid(&DEFAULT_DEVICE[4..]), Some(uuid));
        assert_eq!(parse_uuid("GPU-1"), None);
    }

    #[test]
    fn lists_and_sizes_are_read() {
        let second = "GPU-fa4e0000-0000-4000-8000-000000000002";
        let config = Config::parse(&format!("{DEFAULT_DEVICE}, {second}"), Some("4096"), "").unwrap();
        assert_eq!(config.devices.len(), 2);
        assert_eq!(config.memory, 4096);
        assert!(Config::parse("", None, "").unwrap().devices.is_empty());
        assert!(Config::parse("x", None, "").is_err());
        assert!(Config::parse("", Some("much"), "").is_err());
    }
}
