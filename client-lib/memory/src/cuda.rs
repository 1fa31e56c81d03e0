//! Device memory through the CUDA driver API.
//!
//! Layers, from the ground: [`sys`] is the table of functions found in libcuda at run time; [`driver`] turns
//! each call into a `Result`; `context` holds a device's primary context; the rest is safe to use. A machine
//! without CUDA is an ordinary, named error, and nothing here touches CUDA before it is asked to.
//!
//! The caller's CUDA state stays as it is: every group of calls pushes the device's primary context (the one
//! that the CUDA runtime, and so every framework, uses) and pops it again. CUDA does not survive `fork`: a
//! child must not use what its parent opened.

mod adopt;
mod context;
mod copy;
mod device;
pub mod driver;
mod fill;
mod lanes;
mod pinned;
mod stage;
pub mod sys;
pub mod vmm;

pub use adopt::{ADOPT_LIMIT, Adopted, AdoptedPiece, Adoption, NotAdoptable};
pub use copy::DeviceCopy;
pub use device::{DeviceInfo, device_of_pointer, visible_devices};
pub use driver::use_library;
pub use fill::{FillError, Piece};
pub use pinned::{HostSide, PinnedHost, PinnedMapping};
pub use stage::Staging;
pub use vmm::{CudaAllocation, CudaMapping, CudaMemory, DeviceMemory};
