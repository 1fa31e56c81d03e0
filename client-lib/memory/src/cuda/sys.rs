//! The table of driver functions, each found by name.
//!
//! Types are cudarc's, its functions are not: they panic when libcuda or a symbol is missing. Results are
//! plain numbers here, because a newer driver may return one that cudarc's enum does not have.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys as cu;
use libloading::Library;

use crate::error::{MemoryError, Result};

/// A `CUresult` as the number it is; 0 is success.
pub type Code = c_uint;

macro_rules! symbols {
    ($($field:ident = $symbol:literal ( $($argument:ty),* );)*) => {
        /// The functions in use. Fields are named as the functions, without `cu` and version.
        #[derive(Debug)]
        #[allow(missing_docs)]
        pub struct Symbols {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Symbols {
            /// Names of all functions that a library must have.
            pub const NAMES: &[&str] = &[$($symbol),*];

            /// Finds every function in `library`; the first one missing is named, with `path`.
            pub(super) fn find(library: &Library, path: &str) -> Result<Self> {
                Ok(Self {
                    $($field: {
                        // SAFETY: cuda.h declares the function of this name with exactly this type. The
                        // pointer outlives the lookup because `Driver` never unloads the library.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> Code>($symbol)
                        };
                        *found.map_err(|_| MemoryError::CudaSymbol {
                            library: path.to_owned(),
                            symbol: $symbol,
                        })?
                    },)*
                })
            }
        }
    };
}

symbols! {
    init = "cuInit"(c_uint);
    get_error_name = "cuGetErrorName"(Code, *mut *const c_char);
    driver_get_version = "cuDriverGetVersion"(*mut c_int);
    device_get_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut cu::CUdevice, c_int);
    device_get_uuid = "cuDeviceGetUuid_v2"(*mut cu::CUuuid, cu::CUdevice);
    device_get_name = "cuDeviceGetName"(*mut c_char, c_int, cu::CUdevice);
    device_total_mem = "cuDeviceTotalMem_v2"(*mut usize, cu::CUdevice);
    device_get_attribute = "cuDeviceGetAttribute"(*mut c_int, cu::CUdevice_attribute, cu::CUdevice);
    primary_ctx_retain = "cuDevicePrimaryCtxRetain"(*mut cu::CUcontext, cu::CUdevice);
    primary_ctx_release = "cuDevicePrimaryCtxRelease_v2"(cu::CUdevice);
    ctx_push_current = "cuCtxPushCurrent_v2"(cu::CUcontext);
    ctx_pop_current = "cuCtxPopCurrent_v2"(*mut cu::CUcontext);
    ctx_synchronize = "cuCtxSynchronize"();
    mem_get_allocation_granularity = "cuMemGetAllocationGranularity"(
        *mut usize, *const cu::CUmemAllocationProp, cu::CUmemAllocationGranularity_flags);
    mem_create = "cuMemCreate"(
        *mut cu::CUmemGenericAllocationHandle, usize, *const cu::CUmemAllocationProp, c_ulonglong);
    mem_release = "cuMemRelease"(cu::CUmemGenericAllocationHandle);
    mem_export = "cuMemExportToShareableHandle"(
        *mut c_void, cu::CUmemGenericAllocationHandle, cu::CUmemAllocationHandleType, c_ulonglong);
    mem_import = "cuMemImportFromShareableHandle"(
        *mut cu::CUmemGenericAllocationHandle, *mut c_void, cu::CUmemAllocationHandleType);
    mem_retain = "cuMemRetainAllocationHandle"(*mut cu::CUmemGenericAllocationHandle, *mut c_void);
    mem_get_properties = "cuMemGetAllocationPropertiesFromHandle"(
        *mut cu::CUmemAllocationProp, cu::CUmemGenericAllocationHandle);
    mem_address_reserve = "cuMemAddressReserve"(
        *mut cu::CUdeviceptr, usize, usize, cu::CUdeviceptr, c_ulonglong);
    mem_address_free = "cuMemAddressFree"(cu::CUdeviceptr, usize);
    mem_map = "cuMemMap"(
        cu::CUdeviceptr, usize, usize, cu::CUmemGenericAllocationHandle, c_ulonglong);
    mem_unmap = "cuMemUnmap"(cu::CUdeviceptr, usize);
    mem_set_access = "cuMemSetAccess"(cu::CUdeviceptr, usize, *const cu::CUmemAccessDesc, usize);
    mem_get_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    mem_get_address_range = "cuMemGetAddressRange_v2"(
        *mut cu::CUdeviceptr, *mut usize, cu::CUdeviceptr);
    memcpy_htod = "cuMemcpyHtoD_v2"(cu::CUdeviceptr, *const c_void, usize);
    memcpy_dtoh = "cuMemcpyDtoH_v2"(*mut c_void, cu::CUdeviceptr, usize);
    memcpy_htod_async = "cuMemcpyHtoDAsync_v2"(cu::CUdeviceptr, *const c_void, usize, cu::CUstream);
    memcpy_dtoh_async = "cuMemcpyDtoHAsync_v2"(*mut c_void, cu::CUdeviceptr, usize, cu::CUstream);
    memcpy_dtod_async = "cuMemcpyDtoDAsync_v2"(
        cu::CUdeviceptr, cu::CUdeviceptr, usize, cu::CUstream);
    stream_create = "cuStreamCreate"(*mut cu::CUstream, c_uint);
    stream_synchronize = "cuStreamSynchronize"(cu::CUstream);
    stream_destroy = "cuStreamDestroy_v2"(cu::CUstream);
    pointer_get_attribute = "cuPointerGetAttribute"(
        *mut c_void, cu::CUpointer_attribute, cu::CUdeviceptr);
    mem_host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    mem_host_unregister = "cuMemHostUnregister"(*mut c_void);
    mem_alloc_host = "cuMemAllocHost_v2"(*mut *mut c_void, usize);
    mem_free_host = "cuMemFreeHost"(*mut c_void);
}
