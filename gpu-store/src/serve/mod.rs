//! What connections ask for: clients over a volume's socket, the plugin over the admin socket.

pub mod admin;
mod check;
pub mod names;
pub mod open;
pub mod put;
pub mod session;
pub mod small;
