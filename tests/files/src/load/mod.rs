//! Many processes on several mounts of one volume, with content that proves itself:
//!
//! * [`objects`]: files whose names are the hashes of their bytes, written beside and renamed into place, so that whoever
//!   sees such a name sees all of its bytes;
//! * [`log`]: records appended by many, each with its own checksum and number, so that none can be lost or mixed unseen;
//! * [`worker`]: one process that does both at random; [`check`]: what must be there in the end.

pub mod check;
pub mod log;
pub mod objects;
pub mod stale;
pub mod worker;
