//! What the mounter asks for: the files of published volumes, by node.
//!
//! A mount is a lease: its handles are the lease's holds, each known by the kernel's id of the request that opened it,
//! and it ends with its publish. Nothing that a mount needs is in the mounter alone: a successor asks again.

mod attributes;
mod describe;
mod drafts;
mod files;
mod freeze;
mod names;
mod session;
mod source;

pub use files::written_by;
pub use freeze::{freeze, freeze_unless_expected, freeze_what_nobody_writes};
pub use session::serve;
pub use source::Source;
