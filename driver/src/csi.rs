//! The Container Storage Interface 1.12 as Rust types, servers and clients, generated from `proto/csi.proto`.
//!
//! Requests that carry secrets have no `Debug`: logging one does not compile.
#![allow(missing_debug_implementations, clippy::pedantic, clippy::all)]

tonic::include_proto!("csi.v1");

/// The compiled `csi.proto` and what it imports, as a serialised `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/csi.descriptors"));
