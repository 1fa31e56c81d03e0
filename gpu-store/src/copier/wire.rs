//! What the store and its copier say to each other.
//!
//! The copier's standard input is the control connection. On it each copy is announced with [`Begin`], which brings
//! the two descriptors that the copy needs beside its sources: a connection of its own, on which its [`Copy`] goes one
//! way and its [`Ended`] the other, and the memory to fill. Both ends are of one build: there are no versions here.

use gpuvol_protocol::message::{Allocation, Segment};
use gpuvol_protocol::{Fault, Limits};

/// Copies of one copier at a time. The bus is one: more would not be faster, only keep more memory busy.
pub const COPIES: usize = 4;

/// The largest object: its segments with their inline bytes (both bounded by the protocol), its allocations, a path.
const MAX_FRAME: u32 = 2 * 1024 * 1024;

pub fn limits() -> Limits {
    Limits { max_frame: MAX_FRAME, ..Limits::default() }
}

/// Announces a copy. Descriptors: the copy's own connection, and the memfd to fill.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Begin {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Begun {
    #[prost(message, optional, tag = "1")]
    pub fault: Option<Fault>,
}

/// What to lay end to end into the memory. Descriptors: one for each allocation.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Copy {
    /// The object's name, for people.
    #[prost(string, tag = "1")]
    pub object: String,
    #[prost(message, repeated, tag = "2")]
    pub allocations: Vec<Allocation>,
    #[prost(message, repeated, tag = "3")]
    pub segments: Vec<Segment>,
}

/// How a copy ended. The copier has let go of the memory, mapping included, before it says so.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ended {
    #[prost(message, optional, tag = "1")]
    pub fault: Option<Fault>,
    /// With `fault`: the GPU failed this process. A fresh one may do better; this one must not be asked again.
    #[prost(bool, tag = "2")]
    pub broken: bool,
    /// Bytes copied.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// How long it took, in microseconds, the GPU's context included where it had to be made.
    #[prost(uint64, tag = "4")]
    pub micros: u64,
}
