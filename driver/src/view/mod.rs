//! The file view of published volumes, over FUSE.
pub mod handshake;
pub mod resume;
