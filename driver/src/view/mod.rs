//! The file view: published volumes as file systems, served over FUSE by the mounter.
//!
//! The plugin agrees with the kernel ([`handshake`]), the store keeps the connections, and a mounter takes them over
//! ([`resume`]), serves them ([`filesystem`]), and may be killed at any moment: its successor does what was not answered.
//! What that rests on:
//!
//! * Node ids and handles are the store's and mean the same to every mounter. What a mounter knows of them is a cache.
//! * A request has one effect however often it is sent: the store remembers what a request's id did; an append, which
//!   the mounter does itself, is noted in the mount's [`journal`] first.
//! * A handle is the id of the request that opened it.
//! * Nothing waits longer than the deadline: for the store ([`store`]), or for another request on the same file
//!   ([`turn`]). Then the caller gets an error. What hangs all the same is ended by the plugin's [`watchdog`].
//! * Nobody here touches a file on a mount of ours: whoever does so may wait for himself.

mod append;
mod attributes;
mod buffers;
pub mod connections;
mod content;
mod contents;
mod draft;
pub mod errno;
mod files;
pub mod filesystem;
mod found;
pub mod handshake;
pub mod heartbeat;
pub mod journal;
mod names;
mod opening;
mod passthrough;
mod process;
mod progress;
mod release;
mod remembered;
pub mod resume;
mod session;
pub mod sessions;
pub mod store;
mod tree;
pub mod turn;
pub mod watchdog;
mod xattrs;

pub use process::{Config, run};
