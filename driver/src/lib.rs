//! CSI plugin of gpuvol: Identity, Controller and Node services on one Unix socket, without CUDA.
//!
//! The plugin keeps nothing between calls. The store knows volumes and publishes; what is mounted is read from the
//! kernel. So it may end and start again at any time, and a call that was cut short is finished by its repetition.

pub mod blocking;
pub mod capabilities;
pub mod capacity;
pub mod config;
pub mod controller;
pub mod csi;
pub mod deadline;
pub mod dev;
pub mod identity;
pub mod listener;
pub mod logging;
pub mod mount;
pub mod node;
pub mod op_guard;
pub mod parameters;
pub mod publish;
pub mod registration;
pub mod server;
pub mod status;
pub mod store_client;
pub mod target;
pub mod topology;
pub mod undo;
pub mod view;
pub mod watch;
