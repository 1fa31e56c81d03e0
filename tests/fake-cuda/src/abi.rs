//! Pointers as they come from C. The contract of every exported function is cuda.h's: a pointer is null or
//! good for the value that the function reads or writes; null is refused here.

use crate::codes::{Code, INVALID_VALUE};

/// A place that the caller wants a value written to.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub fn set(self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, so by cuda.h the caller keeps it good for one `T` during this call. Unaligned,
        // because attribute values may be packed by the caller.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// The same place, for a value of another type; for functions whose value's type depends on an argument.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Element `index` of an array that the caller gave.
    pub fn element(self, index: usize) -> Self {
        // Wrapping, so that nothing is claimed about the array until it is used.
        Self(self.0.wrapping_add(index))
    }
}

impl Out<u8> {
    /// Text with its end mark, cut to `capacity` bytes.
    pub fn set_text(self, text: &str, capacity: usize) -> Result<(), Code> {
        let Some(room) = capacity.checked_sub(1) else {
            return Err(INVALID_VALUE);
        };
        let cut = &text.as_bytes()[..text.len().min(room)];
        for (index, byte) in cut.iter().chain(&[0]).enumerate() {
            self.element(index).set(*byte)?;
        }
        Ok(())
    }
}

/// A value that the caller gave by pointer.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub fn get(self) -> Result<T, Code> {
        self.nth(0)
    }

    /// Element `index` of an array that the caller gave.
    pub fn nth(self, index: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, so by cuda.h the caller keeps it good for the elements that the call is about.
        // Every `T` used here is made of numbers, for which any bytes are a value.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }
}

/// Host memory to copy from or to.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Host(*mut u8);

impl Host {
    pub fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// `len` bytes to read.
    pub fn bytes<'a>(self, len: usize) -> Result<&'a [u8], Code> {
        if self.0.is_null() || isize::try_from(len).is_err() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: by cuda.h the caller keeps `len` readable bytes here during the copy.
        Ok(unsafe { std::slice::from_raw_parts(self.0, len) })
    }

    /// `len` bytes to write.
    pub fn bytes_mut<'a>(self, len: usize) -> Result<&'a mut [u8], Code> {
        if self.0.is_null() || isize::try_from(len).is_err() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: by cuda.h the caller keeps `len` writable bytes here during the copy and uses none of them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, len) })
    }
}

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AllocationProp {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub win32: usize,
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AccessDesc {
    pub location: Location,
    pub flags: u32,
}
