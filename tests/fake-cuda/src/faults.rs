//! Faults to inject: `call:fault[@n]`, comma-separated.
//!
//! `call` is a group of driver functions (see [`GROUPS`]); `fault` is one of [`FAULTS`]; `@n` makes only the
//! n-th call of the group fail (counted from 1, for this process), otherwise every call does. Example:
//! `create:oom@3,import:refused,memcpy:illegal_address@2`.

use crate::codes::{self, Code};

/// Groups of driver functions that faults can be asked for.
pub const GROUPS: &[&str] = &[
    "init", "device", "retain", "create", "release", "export", "import", "reserve", "map", "unmap", "access", "handle",
    "alloc", "memcpy", "memset", "info", "pointer", "stream", "sync", "register",
];

/// Names of faults, each with the driver's answer.
pub const FAULTS: &[(&str, Code)] = &[
    ("oom", codes::OUT_OF_MEMORY),
    ("refused", codes::NOT_PERMITTED),
    ("invalid", codes::INVALID_VALUE),
    ("invalid_device", codes::INVALID_DEVICE),
    ("invalid_context", codes::INVALID_CONTEXT),
    ("no_device", codes::NO_DEVICE),
    ("unsupported", codes::NOT_SUPPORTED),
    ("illegal_address", codes::ILLEGAL_ADDRESS),
    ("launch_failed", codes::LAUNCH_FAILED),
    ("unknown", codes::UNKNOWN),
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    group: String,
    code: Code,
    /// Which call fails, from 1; `None` for all.
    only: Option<u64>,
    calls: u64,
}

/// All faults of a process, with their counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Reads a list; the error says which part is wrong and what is possible.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(parse_one).collect::<Result<_, _>>().map(Self)
    }

    /// Counts a call of `group` and says whether it shall fail.
    pub fn check(&mut self, group: &str) -> Result<(), Code> {
        let mut answer = Ok(());
        for fault in self.0.iter_mut().filter(|fault| fault.group == group) {
            fault.calls += 1;
            if answer.is_ok() && fault.only.is_none_or(|only| only == fault.calls) {
                answer = Err(fault.code);
            }
        }
        answer
    }
}

fn parse_one(part: &str) -> Result<Fault, String> {
    let (group, fault) = part.split_once(':').ok_or_else(|| format!("`{part}` is not call:fault[@n]"))?;
    if !GROUPS.contains(&group) {
        return Err(format!("`{group}` is not one of {}", GROUPS.join(", ")));
    }
    let (fault, only) = match fault.split_once('@') {
        None => (fault, None),
        Some((fault, number)) => match number.parse() {
            Ok(number) if number > 0 => (fault, Some(number)),
            _ => return Err(format!("`{number}` in `{part}` is not a number from 1")),
        },
    };
    let Some((_, code)) = FAULTS.iter().find(|(name, _)| *name == fault) else {
        let known: Vec<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
        return Err(format!("`{fault}` is not one of {}", known.join(", ")));
    };
    Ok(Fault { group: group.to_owned(), code: *code, only, calls: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_fails_without_a_list() {
        let mut faults = Faults::parse(" , ").unwrap();
        assert_eq!(faults, Faults::default());
        assert_eq!(faults.check("create"), Ok(()));
    }

    #[test]
    fn only_the_nth_call_of_its_group_fails() {
        let mut faults = Faults::parse("create:oom@3, import:refused").unwrap();
        assert_eq!(faults.check("create"), Ok(()));
        assert_eq!(faults.check("import"), Err(codes::NOT_PERMITTED));
        assert_eq!(faults.check("create"), Ok(()));
        assert_eq!(faults.check("create"), Err(codes::OUT_OF_MEMORY));
        assert_eq!(faults.check("create"), Ok(()));
        assert_eq!(faults.check("import"), Err(codes::NOT_PERMITTED));
        assert_eq!(faults.check("export"), Ok(()));
    }

    #[test]
    fn two_faults_of_one_group_both_count() {
        let mut faults = Faults::parse("memcpy:invalid@1,memcpy:illegal_address@2").unwrap();
        assert_eq!(faults.check("memcpy"), Err(codes::INVALID_VALUE));
        assert_eq!(faults.check("memcpy"), Err(codes::ILLEGAL_ADDRESS));
        assert_eq!(faults.check("memcpy"), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("create", "`create`"),
            ("make:oom", "`make`"),
            ("create:fire", "`fire`"),
            ("create:oom@0", "`0`"),
            ("create:oom@x", "`x`"),
            ("create:oom@", "``"),
            ("create:oom,@", "`@`"),
        ] {
            let error = Faults::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
