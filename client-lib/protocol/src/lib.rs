//! Messages between gpuvol processes, the validated types in them, and how they travel: length-prefixed protobuf
//! frames over Unix stream sockets, with file descriptors on a frame's first byte.
//!
//! Everything a peer sends is untrusted: malformed input is a typed error, and nothing is allocated because a peer
//! named a size.

pub mod admin;
pub mod fault;
pub mod fdpass;
pub mod frame;
pub mod keeping;
pub mod message;
pub mod types;
pub mod version;
pub mod view;

pub use fault::{Code, Fault};
pub use frame::{Channel, FrameError, Limits};
pub use types::{DeviceUuid, ObjectPath, TypeError, VolumeId};
pub use version::Version;
