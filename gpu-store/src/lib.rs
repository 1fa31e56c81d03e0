//! The store of a node, and the keeper that memory outlives it in.
//!
//! Layers, lowest first: [`catalogue`] is all state and its log; [`keeper_link`], [`inventory`], [`provision`] and
//! [`watch`] are what the store stands on beside it; [`node`] brings them together; [`serve`] answers connections.
//! [`keeper`] is the other process, and knows none of these.

pub mod budget;
pub mod catalogue;
pub mod copier;
pub mod hosting;
pub mod inventory;
pub mod keeper;
pub mod keeper_link;
pub mod node;
pub mod process;
pub mod provision;
pub mod replica;
pub mod serve;
pub mod watch;
