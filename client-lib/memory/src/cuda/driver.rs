//! libcuda at run time: loaded once a process, each call a `Result`.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use cudarc::driver::sys as cu;
use libloading::Library;

use super::sys::{Code, Symbols};
use crate::error::{CudaFailure, DeviceUuid, MemoryError, Result};

/// Names a library to use instead of the system's driver (a path).
pub const LIBRARY_VARIABLE: &str = "GPUVOL_LIBCUDA";

/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: Code = 100;

type Call<T> = std::result::Result<T, CudaFailure>;

static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();

/// The driver library and its functions. It is never unloaded, so that its function pointers stay good.
#[derive(Debug)]
pub struct Driver {
    symbols: Symbols,
    path: OsString,
    initialised: Code,
    _library: Library,
}

/// The driver of this process, loaded at the first call: the library that `GPUVOL_LIBCUDA` names, or
/// `libcuda.so.1`, or `libcuda.so`. What the first call found, every later one finds, failure included.
pub fn driver() -> Result<&'static Driver> {
    DRIVER.get_or_init(load_default).as_ref().map_err(MemoryError::clone)
}

/// Chooses the driver library by path, for a process that cannot set its own environment; only before the
/// first use of CUDA in this crate.
pub fn use_library(path: impl AsRef<OsStr>) -> Result<()> {
    let path = path.as_ref();
    match DRIVER.get_or_init(|| load_first(&[path.to_owned()])) {
        Ok(driver) if driver.path == path => Ok(()),
        Ok(_) => Err(MemoryError::CudaAlreadyLoaded { library: path.to_string_lossy().into_owned() }),
        Err(error) => Err(error.clone()),
    }
}

fn load_default() -> Result<Driver> {
    match std::env::var_os(LIBRARY_VARIABLE) {
        Some(path) if !path.is_empty() => load_first(&[path]),
        _ => load_first(&["libcuda.so.1".into(), "libcuda.so".into()]),
    }
}

fn load_first(paths: &[OsString]) -> Result<Driver> {
    let mut tried = Vec::new();
    for path in paths {
        // SAFETY: loading runs the library's initialisers. The path is the system's driver or one that the
        // owner of this process chose; it is trusted as the program itself is.
        match unsafe { Library::new(path) } {
            Ok(library) => {
                let symbols = Symbols::find(&library, &path.to_string_lossy())?;
                // SAFETY: cuInit takes flags, which must be 0.
                let initialised = unsafe { (symbols.init)(0) };
                return Ok(Driver { symbols, path: path.clone(), initialised, _library: library });
            }
            Err(error) => tried.push(format!("{} ({error})", path.to_string_lossy())),
        }
    }
    Err(MemoryError::CudaLibrary { tried: tried.join(", ") })
}

impl CudaFailure {
    /// Adds what only the caller of the call knows.
    pub(crate) fn on(mut self, device: DeviceUuid, len: Option<u64>) -> MemoryError {
        self.device = Some(device);
        self.len = len;
        MemoryError::Cuda(self)
    }
}

impl From<CudaFailure> for MemoryError {
    fn from(failure: CudaFailure) -> Self {
        Self::Cuda(failure)
    }
}

// The result layer. Wrappers that take raw addresses are `unsafe` only where the driver would write or read
// *host* memory on their word; wrong device addresses are the driver's to refuse, or fault on the device.
impl Driver {
    /// `cuInit` went well when the library was loaded; [`MemoryError::NoDevice`] when it saw none.
    pub(crate) fn ready(&self) -> Result<()> {
        match self.initialised {
            NO_DEVICE => Err(MemoryError::NoDevice),
            code => Ok(self.check("cuInit", code)?),
        }
    }

    fn check(&self, call: &'static str, code: Code) -> Call<()> {
        if code == 0 {
            return Ok(());
        }
        Err(CudaFailure { call, code, name: self.name_of(code), device: None, len: None })
    }

    fn name_of(&self, code: Code) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the driver stores a pointer to a string of its own, which lives as long as the library.
        let known = unsafe { (self.symbols.get_error_name)(code, &raw mut name) };
        if known != 0 || name.is_null() {
            return "unrecognised error".to_owned();
        }
        // SAFETY: as above: a constant, zero-ended string inside the library, which is never unloaded.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The driver's CUDA version, such as 12080.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the driver writes one int into our local.
        let code = unsafe { (self.symbols.driver_get_version)(&raw mut version) };
        self.check("cuDriverGetVersion", code)?;
        Ok(version)
    }

    pub(crate) fn device_count(&self) -> Call<i32> {
        let mut count = 0;
        // SAFETY: the driver writes one int into our local.
        let code = unsafe { (self.symbols.device_get_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code).map(|()| count)
    }

    pub(crate) fn device_get(&self, ordinal: i32) -> Call<cu::CUdevice> {
        let mut device = 0;
        // SAFETY: the driver writes one device number into our local.
        let code = unsafe { (self.symbols.device_get)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", code).map(|()| device)
    }

    pub(crate) fn device_uuid(&self, device: cu::CUdevice) -> Call<DeviceUuid> {
        let mut uuid = cu::CUuuid { bytes: [0; 16] };
        // SAFETY: the driver writes 16 bytes into our local.
        let code = unsafe { (self.symbols.device_get_uuid)(&raw mut uuid, device) };
        self.check("cuDeviceGetUuid_v2", code).map(|()| DeviceUuid(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])))
    }

    pub(crate) fn device_name(&self, device: cu::CUdevice) -> Call<String> {
        const CAPACITY: i32 = 256;
        let mut name = [0; CAPACITY as usize];
        // SAFETY: the driver writes at most CAPACITY bytes, the end mark included, into our local.
        let code = unsafe { (self.symbols.device_get_name)(name.as_mut_ptr(), CAPACITY, device) };
        self.check("cuDeviceGetName", code)?;
        let bytes = name.map(|byte| byte.to_ne_bytes()[0]);
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    pub(crate) fn device_total(&self, device: cu::CUdevice) -> Call<u64> {
        let mut total = 0;
        // SAFETY: the driver writes one size into our local.
        let code = unsafe { (self.symbols.device_total_mem)(&raw mut total, device) };
        self.check("cuDeviceTotalMem_v2", code).map(|()| total as u64)
    }

    pub(crate) fn device_attribute(&self, attribute: cu::CUdevice_attribute, device: cu::CUdevice) -> Call<i32> {
        let mut value = 0;
        // SAFETY: the driver writes one int into our local.
        let code = unsafe { (self.symbols.device_get_attribute)(&raw mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", code).map(|()| value)
    }

    pub(crate) fn primary_retain(&self, device: cu::CUdevice) -> Call<cu::CUcontext> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes one context pointer, which it keeps alive until the matching release.
        let code = unsafe { (self.symbols.primary_ctx_retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code).map(|()| context)
    }

    pub(crate) fn primary_release(&self, device: cu::CUdevice) -> Call<()> {
        // SAFETY: gives back one retain; the driver keeps count.
        self.check("cuDevicePrimaryCtxRelease_v2", unsafe { (self.symbols.primary_ctx_release)(device) })
    }

    pub(crate) fn push(&self, context: cu::CUcontext) -> Call<()> {
        // SAFETY: only `context::Device` calls this, with the primary context that it retains.
        self.check("cuCtxPushCurrent_v2", unsafe { (self.symbols.ctx_push_current)(context) })
    }

    pub(crate) fn pop(&self) -> Call<()> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes the popped context into our local; it stays its owner's.
        self.check("cuCtxPopCurrent_v2", unsafe { (self.symbols.ctx_pop_current)(&raw mut context) })
    }

    pub(crate) fn context_synchronize(&self) -> Call<()> {
        // SAFETY: takes nothing.
        self.check("cuCtxSynchronize", unsafe { (self.symbols.ctx_synchronize)() })
    }

    pub(crate) fn granularity(&self, properties: &cu::CUmemAllocationProp) -> Call<u64> {
        let option = cu::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut bytes = 0;
        // SAFETY: both pointers are to values that outlive the call.
        let code = unsafe { (self.symbols.mem_get_allocation_granularity)(&raw mut bytes, properties, option) };
        self.check("cuMemGetAllocationGranularity", code).map(|()| bytes as u64)
    }

    pub(crate) fn mem_create(
        &self,
        size: usize,
        properties: &cu::CUmemAllocationProp,
    ) -> Call<cu::CUmemGenericAllocationHandle> {
        let mut handle = 0;
        // SAFETY: both pointers are to values that outlive the call.
        let code = unsafe { (self.symbols.mem_create)(&raw mut handle, size, properties, 0) };
        self.check("cuMemCreate", code).map(|()| handle)
    }

    pub(crate) fn mem_release(&self, handle: cu::CUmemGenericAllocationHandle) -> Call<()> {
        // SAFETY: only `vmm::Handle` calls this, once, for the handle that it owns.
        self.check("cuMemRelease", unsafe { (self.symbols.mem_release)(handle) })
    }

    pub(crate) fn mem_export(&self, handle: cu::CUmemGenericAllocationHandle) -> Call<OwnedFd> {
        let kind = cu::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let mut fd: i32 = -1;
        // SAFETY: for this handle type the driver writes one int, the descriptor, into our local.
        let code = unsafe { (self.symbols.mem_export)((&raw mut fd).cast(), handle, kind, 0) };
        self.check("cuMemExportToShareableHandle", code)?;
        // SAFETY: on success the descriptor is open and the caller's own (cuda.h).
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The driver makes its own copy of the descriptor; the caller's may be closed afterwards.
    pub(crate) fn mem_import(&self, fd: BorrowedFd<'_>) -> Call<cu::CUmemGenericAllocationHandle> {
        let kind = cu::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let number = std::ptr::without_provenance_mut(usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX));
        let mut handle = 0;
        // SAFETY: for this handle type the pointer argument *is* the descriptor's number, which the borrow
        // keeps open during the call.
        let code = unsafe { (self.symbols.mem_import)(&raw mut handle, number, kind) };
        self.check("cuMemImportFromShareableHandle", code).map(|()| handle)
    }

    /// The handle behind a mapped address; the caller owns one more reference to it.
    pub(crate) fn mem_retain(&self, address: u64) -> Call<cu::CUmemGenericAllocationHandle> {
        let pointer = std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(usize::MAX));
        let mut handle = 0;
        // SAFETY: the address is looked up in the driver's tables, never dereferenced.
        let code = unsafe { (self.symbols.mem_retain)(&raw mut handle, pointer) };
        self.check("cuMemRetainAllocationHandle", code).map(|()| handle)
    }

    pub(crate) fn mem_properties(&self, handle: cu::CUmemGenericAllocationHandle) -> Call<AllocationProperties> {
        let mut properties = std::mem::MaybeUninit::<RawProperties>::zeroed();
        // SAFETY: RawProperties has cuda.h's layout with numbers for enums, so that whatever the driver
        // writes is a valid value.
        let code = unsafe { (self.symbols.mem_get_properties)(properties.as_mut_ptr().cast(), handle) };
        self.check("cuMemGetAllocationPropertiesFromHandle", code)?;
        // SAFETY: all zeroes is a valid value, and the driver has overwritten it with numbers.
        let properties = unsafe { properties.assume_init() };
        Ok(AllocationProperties { location_type: properties.location_type, location_id: properties.location_id })
    }

    pub(crate) fn address_reserve(&self, size: usize) -> Call<u64> {
        let mut address = 0;
        // SAFETY: the driver writes one address into our local; alignment 0 and address 0 leave both to it.
        let code = unsafe { (self.symbols.mem_address_reserve)(&raw mut address, size, 0, 0, 0) };
        self.check("cuMemAddressReserve", code).map(|()| address)
    }

    pub(crate) fn address_free(&self, address: u64, size: usize) -> Call<()> {
        // SAFETY: only `vmm::Range` calls this, once, for the range that it reserved.
        self.check("cuMemAddressFree", unsafe { (self.symbols.mem_address_free)(address, size) })
    }

    pub(crate) fn mem_map(&self, address: u64, size: usize, handle: cu::CUmemGenericAllocationHandle) -> Call<()> {
        // SAFETY: only `vmm::Range` calls this, for the range that it reserved; the driver refuses sizes that
        // the allocation does not have.
        self.check("cuMemMap", unsafe { (self.symbols.mem_map)(address, size, 0, handle, 0) })
    }

    pub(crate) fn mem_unmap(&self, address: u64, size: usize) -> Call<()> {
        // SAFETY: only `vmm::Range` calls this, once, for the range that it mapped.
        self.check("cuMemUnmap", unsafe { (self.symbols.mem_unmap)(address, size) })
    }

    pub(crate) fn set_access(&self, address: u64, size: usize, description: &cu::CUmemAccessDesc) -> Call<()> {
        // SAFETY: one description, which outlives the call; the range is `vmm::Range`'s own.
        self.check("cuMemSetAccess", unsafe { (self.symbols.mem_set_access)(address, size, description, 1) })
    }

    /// (free, total) bytes of the current context's device.
    pub(crate) fn mem_info(&self) -> Call<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes two sizes into our locals.
        let code = unsafe { (self.symbols.mem_get_info)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo_v2", code).map(|()| (free as u64, total as u64))
    }

    /// (base, size) of the allocation or mapping that holds `address`.
    pub(crate) fn address_range(&self, address: u64) -> Call<(u64, u64)> {
        let (mut base, mut size) = (0, 0);
        // SAFETY: the driver writes two numbers into our locals.
        let code = unsafe { (self.symbols.mem_get_address_range)(&raw mut base, &raw mut size, address) };
        self.check("cuMemGetAddressRange_v2", code).map(|()| (base, size as u64))
    }

    /// # Safety
    /// `host` is readable for `len` bytes until this returns.
    pub(crate) unsafe fn copy_htod(&self, device: u64, host: NonNull<u8>, len: usize) -> Call<()> {
        // SAFETY: the caller keeps the host bytes alive; the call returns when they have been read.
        self.check("cuMemcpyHtoD_v2", unsafe {
            (self.symbols.memcpy_htod)(device, host.as_ptr().cast_const().cast(), len)
        })
    }

    /// # Safety
    /// `host` is writable for `len` bytes until this returns, and nobody else uses them meanwhile.
    pub(crate) unsafe fn copy_dtoh(&self, host: NonNull<u8>, device: u64, len: usize) -> Call<()> {
        // SAFETY: the caller keeps the host bytes alive; the call returns when they have been written.
        self.check("cuMemcpyDtoH_v2", unsafe { (self.symbols.memcpy_dtoh)(host.as_ptr().cast(), device, len) })
    }

    /// # Safety
    /// `host` is readable for `len` bytes until the stream has been synchronised.
    pub(crate) unsafe fn copy_htod_async(&self, device: u64, host: NonNull<u8>, len: usize, stream: u64) -> Call<()> {
        // SAFETY: the caller keeps the host bytes alive until it has synchronised the stream.
        self.check("cuMemcpyHtoDAsync_v2", unsafe {
            (self.symbols.memcpy_htod_async)(device, host.as_ptr().cast_const().cast(), len, stream_pointer(stream))
        })
    }

    /// # Safety
    /// `host` is writable for `len` bytes, and nobody else uses them, until the stream has been synchronised.
    pub(crate) unsafe fn copy_dtoh_async(&self, host: NonNull<u8>, device: u64, len: usize, stream: u64) -> Call<()> {
        // SAFETY: the caller keeps the host bytes alive until it has synchronised the stream.
        self.check("cuMemcpyDtoHAsync_v2", unsafe {
            (self.symbols.memcpy_dtoh_async)(host.as_ptr().cast(), device, len, stream_pointer(stream))
        })
    }

    pub(crate) fn copy_dtod_async(&self, destination: u64, source: u64, len: usize, stream: u64) -> Call<()> {
        // SAFETY: both addresses are the device's; `copy` has made sure that they are not host memory.
        self.check("cuMemcpyDtoDAsync_v2", unsafe {
            (self.symbols.memcpy_dtod_async)(destination, source, len, stream_pointer(stream))
        })
    }

    /// A stream that waits for the legacy default stream's earlier work, as a synchronous copy would.
    pub(crate) fn stream_create(&self) -> Call<u64> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the driver writes one stream pointer into our local; flag 0 is CU_STREAM_DEFAULT.
        let code = unsafe { (self.symbols.stream_create)(&raw mut stream, 0) };
        self.check("cuStreamCreate", code).map(|()| stream.expose_provenance() as u64)
    }

    /// `stream` 0 is the legacy default stream.
    pub(crate) fn stream_synchronize(&self, stream: u64) -> Call<()> {
        // SAFETY: the stream is ours, or one that its owner lent for this operation and keeps alive.
        self.check("cuStreamSynchronize", unsafe { (self.symbols.stream_synchronize)(stream_pointer(stream)) })
    }

    pub(crate) fn stream_destroy(&self, stream: u64) -> Call<()> {
        // SAFETY: only `lanes` and `stage` call this, once, for a stream that they made.
        self.check("cuStreamDestroy_v2", unsafe { (self.symbols.stream_destroy)(stream_pointer(stream)) })
    }

    /// A pointer attribute whose value is at most eight bytes; shorter ones fill the low bytes.
    pub(crate) fn pointer_attribute(&self, attribute: cu::CUpointer_attribute, address: u64) -> Call<u64> {
        let mut value = 0_u64;
        // SAFETY: the attributes asked for here have values of four or eight bytes, for which our local has
        // room and alignment; the address is looked up, never dereferenced.
        let code = unsafe { (self.symbols.pointer_get_attribute)((&raw mut value).cast(), attribute, address) };
        self.check("cuPointerGetAttribute", code).map(|()| value)
    }

    /// # Safety
    /// The `len` bytes at `host` stay mapped until [`Self::host_unregister`].
    pub(crate) unsafe fn host_register(&self, host: NonNull<u8>, len: usize, flags: u32) -> Call<()> {
        // SAFETY: the caller keeps the bytes mapped until they are unregistered.
        self.check("cuMemHostRegister_v2", unsafe {
            (self.symbols.mem_host_register)(host.as_ptr().cast(), len, flags)
        })
    }

    pub(crate) fn host_unregister(&self, host: NonNull<u8>) -> Call<()> {
        // SAFETY: only `pinned` calls this, once, for the range that it registered.
        self.check("cuMemHostUnregister", unsafe { (self.symbols.mem_host_unregister)(host.as_ptr().cast()) })
    }

    /// Page-locked host memory of the current context.
    pub(crate) fn alloc_host(&self, len: usize) -> Call<NonNull<u8>> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer into our local.
        let code = unsafe { (self.symbols.mem_alloc_host)(&raw mut pointer, len) };
        self.check("cuMemAllocHost_v2", code)?;
        match NonNull::new(pointer.cast()) {
            Some(pointer) => Ok(pointer),
            None => self.check("cuMemAllocHost_v2", 2).map(|()| NonNull::dangling()),
        }
    }

    pub(crate) fn free_host(&self, host: NonNull<u8>) -> Call<()> {
        // SAFETY: only `lanes` and `stage` call this, once, for a buffer that they allocated.
        self.check("cuMemFreeHost", unsafe { (self.symbols.mem_free_host)(host.as_ptr().cast()) })
    }
}

fn stream_pointer(stream: u64) -> cu::CUstream {
    std::ptr::with_exposed_provenance_mut(usize::try_from(stream).unwrap_or(0))
}

/// Where an allocation is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocationProperties {
    /// A `CUmemLocationType`; 1 is a device.
    pub(crate) location_type: u32,
    /// For a device its number.
    pub(crate) location_id: i32,
}

/// `CUmemAllocationProp` with numbers in place of enums, for values that come from the driver.
#[repr(C)]
struct RawProperties {
    kind: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
    win32: usize,
    flags: [u8; 8],
}

const _: () = assert!(size_of::<RawProperties>() == size_of::<cu::CUmemAllocationProp>());
