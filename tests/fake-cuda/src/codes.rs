//! `CUresult` numbers and names, as in cuda.h.

use std::ffi::CStr;

use crate::abi::Out;

/// A `CUresult`.
pub type Code = u32;

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(pub const $name: Code = $number;)*

        /// (number, name, description) of every code in use.
        const TABLE: &[(Code, &CStr, &str)] = &[
            $(($number, {
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!("CUDA_", codes!(@prefix $name), stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                NAME
            }, concat!($text, "\0")),)*
        ];
    };
    (@prefix SUCCESS) => { "" };
    (@prefix $other:ident) => { "ERROR_" };
}

codes! {
    SUCCESS = 0, "no error";
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_CONTEXT = 201, "invalid device context";
    OPERATING_SYSTEM = 304, "OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    UNKNOWN = 999, "unknown error";
}

/// After these, the context is lost.
pub fn is_sticky(code: Code) -> bool {
    matches!(code, ILLEGAL_ADDRESS | LAUNCH_FAILED)
}

fn entry(code: Code) -> Option<&'static (Code, &'static CStr, &'static str)> {
    TABLE.iter().find(|(number, ..)| *number == code)
}

fn answer(code: Code, text: Option<*const u8>, place: Out<*const u8>) -> Code {
    let known = text.is_some() && entry(code).is_some();
    match place.set(text.unwrap_or(std::ptr::null())) {
        Ok(()) if known => SUCCESS,
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorName(code: Code, name: Out<*const u8>) -> Code {
    answer(code, entry(code).map(|(_, name, _)| name.as_ptr().cast()), name)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorString(code: Code, text: Out<*const u8>) -> Code {
    answer(code, entry(code).map(|(_, _, text)| text.as_ptr()), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cuda_hs() {
        let name = |code| entry(code).map(|(_, name, _)| name.to_str().unwrap());
        assert_eq!(name(0), Some("CUDA_SUCCESS"));
        assert_eq!(name(2), Some("CUDA_ERROR_OUT_OF_MEMORY"));
        assert_eq!(name(700), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_eq!(name(12_345), None);
    }
}
