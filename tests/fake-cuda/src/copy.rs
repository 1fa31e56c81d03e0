//! Copies and fills. Everything is done when the call returns, on a stream or not.

use std::sync::Arc;

use rustix::io::{Errno, pread, pwrite};

use crate::abi::Host;
use crate::codes::{Code, INVALID_HANDLE, INVALID_VALUE, OPERATING_SYSTEM, SUCCESS};
use crate::world::{Physical, World, call};

/// Bytes of device-to-device copies and fills that are in hand at a time.
const STEP: usize = 1 << 20;

/// Part of one memfd.
struct Piece {
    physical: Arc<Physical>,
    offset: u64,
    len: usize,
}

/// The memory behind `len` bytes from `address` on: all mapped, all with the access asked for. A real driver
/// refuses the whole copy otherwise.
fn resolve(world: &World, address: u64, len: usize, write: bool) -> Result<Vec<Piece>, Code> {
    let needed = if write { 3 } else { 1 };
    let end = address.checked_add(len as u64).ok_or(INVALID_VALUE)?;
    let mut pieces = Vec::new();
    let mut cursor = address;
    while cursor < end {
        let (start, range) = world.range_at(cursor)?;
        if range.access & needed != needed {
            return Err(INVALID_VALUE);
        }
        let until = end.min(start + range.size);
        let len = usize::try_from(until - cursor).map_err(|_| INVALID_VALUE)?;
        pieces.push(Piece { physical: range.physical.clone(), offset: cursor - start, len });
        cursor = until;
    }
    Ok(pieces)
}

/// Looks the addresses up under the lock, as `call` does for every function, and returns what to copy.
fn prepare(group: &str, stream: u64, find: impl FnOnce(&World) -> Result<(), Code>) -> Result<(), Code> {
    let code = call(group, |world| {
        world.current()?;
        // 0, 1 and 2 are the default streams.
        if stream > 2 && !world.streams.contains(&stream) {
            return Err(INVALID_HANDLE);
        }
        find(world)
    });
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

fn write_pieces(pieces: &[Piece], mut bytes: &[u8]) -> Result<(), Code> {
    for piece in pieces {
        let (mut now, rest) = bytes.split_at(piece.len);
        let mut offset = piece.offset;
        while !now.is_empty() {
            match pwrite(&piece.physical.fd, now, offset) {
                Ok(count) => {
                    offset += count as u64;
                    now = &now[count..];
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(OPERATING_SYSTEM),
            }
        }
        bytes = rest;
    }
    Ok(())
}

fn read_pieces(pieces: &[Piece], mut bytes: &mut [u8]) -> Result<(), Code> {
    for piece in pieces {
        let (mut now, rest) = bytes.split_at_mut(piece.len);
        let mut offset = piece.offset;
        while !now.is_empty() {
            match pread(&piece.physical.fd, &mut *now, offset) {
                Ok(0) => return Err(OPERATING_SYSTEM),
                Ok(count) => {
                    offset += count as u64;
                    now = &mut now[count..];
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(OPERATING_SYSTEM),
            }
        }
        bytes = rest;
    }
    Ok(())
}

fn host_to_device(device: u64, host: Host, len: usize, stream: u64) -> Result<(), Code> {
    let mut pieces = Vec::new();
    prepare("memcpy", stream, |world| {
        pieces = resolve(world, device, len, true)?;
        Ok(())
    })?;
    if len == 0 { Ok(()) } else { write_pieces(&pieces, host.bytes(len)?) }
}

fn device_to_host(host: Host, device: u64, len: usize, stream: u64) -> Result<(), Code> {
    let mut pieces = Vec::new();
    prepare("memcpy", stream, |world| {
        pieces = resolve(world, device, len, false)?;
        Ok(())
    })?;
    if len == 0 { Ok(()) } else { read_pieces(&pieces, host.bytes_mut(len)?) }
}

fn device_to_device(destination: u64, source: u64, len: usize, stream: u64) -> Result<(), Code> {
    // The whole ranges are looked up first: a copy is refused as a whole or done as a whole.
    let mut steps = Vec::new();
    prepare("memcpy", stream, |world| {
        for start in (0..len).step_by(STEP) {
            let now = STEP.min(len - start);
            let from = resolve(world, source + start as u64, now, false)?;
            let to = resolve(world, destination + start as u64, now, true)?;
            steps.push((from, to, now));
        }
        Ok(())
    })?;
    let mut buffer = vec![0; STEP.min(len)];
    steps.iter().try_for_each(|(from, to, now)| {
        read_pieces(from, &mut buffer[..*now])?;
        write_pieces(to, &buffer[..*now])
    })
}

fn fill(device: u64, pattern: &[u8], count: usize, stream: u64) -> Result<(), Code> {
    let len = count.checked_mul(pattern.len()).ok_or(INVALID_VALUE)?;
    let mut pieces = Vec::new();
    prepare("memset", stream, |world| {
        pieces = resolve(world, device, len, true)?;
        Ok(())
    })?;
    write_pieces(&pieces, &pattern.repeat(count))
}

fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoD_v2(device: u64, host: Host, len: usize) -> Code {
    code(host_to_device(device, host, len, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(device: u64, host: Host, len: usize, stream: u64) -> Code {
    code(host_to_device(device, host, len, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoH_v2(host: Host, device: u64, len: usize) -> Code {
    code(device_to_host(host, device, len, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(host: Host, device: u64, len: usize, stream: u64) -> Code {
    code(device_to_host(host, device, len, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoD_v2(destination: u64, source: u64, len: usize) -> Code {
    code(device_to_device(destination, source, len, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(destination: u64, source: u64, len: usize, stream: u64) -> Code {
    code(device_to_device(destination, source, len, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(device: u64, value: u8, count: usize) -> Code {
    code(fill(device, &[value], count, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32_v2(device: u64, value: u32, count: usize) -> Code {
    code(fill(device, &value.to_ne_bytes(), count, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(device: u64, value: u8, count: usize, stream: u64) -> Code {
    code(fill(device, &[value], count, stream))
}
