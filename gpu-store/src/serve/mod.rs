//! What connections ask for: clients over a volume's socket, the plugin over the admin socket, the mounter over
//! the view socket.

pub mod admin;
mod check;
pub mod names;
pub mod open;
mod pending;
pub mod put;
pub mod session;
pub mod small;
pub mod view;
