//! A CUDA driver for machines without a GPU: the driver-API functions that gpuvol calls, over memfds, under
//! their real names, in a shared library that `GPUVOL_LIBCUDA` can point at. It also has the few NVML
//! functions that give inventory and free memory.
//!
//! "Device memory" is a memfd; a descriptor exported here can be imported by another process that uses this
//! library. As on a real GPU, a device address cannot be dereferenced by the CPU: ranges are reserved without
//! access, and copies go through the memfd. Work on streams is done at once, in the call that enqueues it.
//! Used memory is counted per process; a descriptor that outlives its process is not counted.
//!
//! Environment, read at `cuInit` or `nvmlInit`:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `GPUVOL_FAKE_CUDA_DEVICES` | UUIDs of the visible devices, comma-separated; empty for none | one fixed UUID |
//! | `GPUVOL_FAKE_CUDA_MEMORY` | bytes of memory of each device | 16 GiB |
//! | `GPUVOL_FAKE_CUDA_FAULTS` | faults to inject, see [`faults`] | none |
//! | `GPUVOL_FAKE_NVML_FREE` | a file with the free bytes that NVML reports, as text, read at each call | all free |
#![allow(non_snake_case)]

mod abi;
mod codes;
mod config;
mod context;
mod copy;
mod faults;
mod host;
mod live;
mod nvml;
mod pointer;
mod stream;
mod vmm;
mod world;
