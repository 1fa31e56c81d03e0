//! How large a compressed buffer says it becomes, believed only as far as its codec can go.

use arrow_buffer::Buffer;

use super::array::Extent;
use super::error::LayoutError;
use super::ipc_table::Compression;

/// Bytes before each compressed buffer: its size uncompressed, as a little-endian i64.
const PREFIX: u64 = 8;
/// Says that what follows is not compressed after all.
const STORED: i64 = -1;

/// The buffer's extent with its size once decompressed.
///
/// arrow-ipc reserves what the prefix claims before it decompresses anything, so a claim is refused that the codec
/// cannot reach from so few bytes, or that memory cannot hold.
pub(crate) fn size(bytes: &Buffer, extent: Extent, codec: Compression, what: &str) -> Result<Extent, LayoutError> {
    if extent.len == 0 {
        return Ok(extent);
    }
    let corrupt = |detail: String| LayoutError::corrupt(what, detail);
    let start = usize::try_from(extent.offset).ok();
    let prefix = start.and_then(|start| bytes.as_slice().get(start..)).and_then(|rest| rest.first_chunk::<8>());
    let (Some(prefix), Some(payload)) = (prefix, extent.len.checked_sub(PREFIX)) else {
        return Err(corrupt(format!("a compressed buffer of {} bytes has no size before it", extent.len)));
    };
    let claim = i64::from_le_bytes(*prefix);
    if claim == STORED {
        return Ok(Extent { len: payload, ..extent });
    }
    let len = u64::try_from(claim).map_err(|_| corrupt(format!("a buffer of {claim} bytes")))?;
    if len > payload.saturating_mul(best_ratio(codec)).saturating_add(64) {
        let name = codec.name();
        return Err(corrupt(format!("{payload} bytes of {name} cannot become {len}")));
    }
    let mut probe: Vec<u8> = Vec::new();
    match usize::try_from(len).map(|len| probe.try_reserve_exact(len)) {
        Ok(Ok(())) => Ok(Extent { len, ..extent }),
        _ => Err(LayoutError::TooLarge {
            what: what.to_owned(),
            detail: format!("a buffer decompresses to {len} bytes, more than this process can allocate"),
        }),
    }
}

/// Output bytes that one input byte can stand for at most.
fn best_ratio(codec: Compression) -> u64 {
    match codec {
        // A match-length byte of 255 adds 255 bytes.
        Compression::Lz4 => 255,
        // A run-length block of 3 + 1 bytes yields one block of at most 128 KiB.
        Compression::Zstd => 128 * 1024 / 4,
    }
}
