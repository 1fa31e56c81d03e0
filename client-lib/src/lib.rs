//! Put and open objects on a gpu-volume: bytes, Arrow tables and tensors, in host or GPU memory.
//!
//! A put registers memory under a path; an open maps the same memory in another process, whatever its size, after the
//! producer is gone. Everything blocks; there is no runtime, and no thread outlives a call.
//!
//! ```no_run
//! # fn main() -> gpuvol_client::Result<()> {
//! use gpuvol_client::{OpenOptions, PutOptions, put_bytes, open};
//! put_bytes("/data/greeting".as_ref(), b"hello", &PutOptions::default())?;
//! assert_eq!(&open("/data/greeting".as_ref(), &OpenOptions::default())?.bytes()?[..], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Where a path is on no gpu-volume the same calls read and write ordinary files, so that a stage runs anywhere.

mod error;
mod files;
pub mod layout;
mod locate;
mod mapping;
mod open;
mod placed;
mod put;
mod session;
mod volume;

pub use error::{Error, Result};
pub use files::{open, put_batches, put_bytes, put_tensor, volume_at};
pub use gpuvol_protocol::message::{Entry, Kind, Tier, Usage};
pub use gpuvol_protocol::{Code, DeviceUuid, Fault, ObjectPath};
pub use locate::{Place, in_mount, locate};
pub use mapping::device_memory;
pub use open::{DeviceView, Object, OpenOptions, OpenWay};
pub use put::{Put, PutOptions, PutWay};
pub use session::DEFAULT_DEADLINE;
pub use volume::Volume;
