//! A node on one machine without Kubernetes: `gpuvol-dev up`, `down`, `status` and `demo`.
//!
//! Keeper, store, mounter and plugin run as they do on a cluster's node, each with its state directory on its command line; a
//! small supervisor stands in for their DaemonSets, and [`kubelet`] makes the CSI calls that kubelet would make. Nothing
//! here is known to them.
//!
//! Everything about a node is in its state directory: `dev.json` ([`record`]), sockets, logs. Whoever ends a node, be it
//! its supervisor or `down` after the supervisor was killed, goes through [`sweep`], which looks at what is there and
//! not at what should be.

pub mod answer;
pub mod demo;
pub mod device;
pub mod directory;
pub mod down;
pub mod error;
pub mod find;
pub mod interrupt;
pub mod kubelet;
pub mod namespace;
pub mod node;
pub mod place;
pub mod process;
pub mod programs;
pub mod python;
pub mod record;
pub mod serve;
pub mod stage;
pub mod status;
pub mod supervisor;
pub mod sweep;
pub mod table;
pub mod up;

pub use error::{Error, Result};
