//! A file as a list of pieces, laid end to end: bytes made here, and bodies that lie elsewhere.

use super::array::BodySource;
use super::error::LayoutError;

/// Alignment of every body buffer, in bytes from the file's start: what Arrow recommends for SIMD and GPUs.
pub const ALIGNMENT: u64 = 64;

/// A run of the file's bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece<B> {
    /// Bytes made by the plan: metadata and padding.
    Meta {
        /// Where it starts, in bytes from the file's start.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Bytes of a body buffer.
    Body {
        /// Where it starts, in bytes from the file's start; a multiple of [`ALIGNMENT`].
        offset: u64,
        /// Where the bytes lie now; exactly `len` of them.
        source: B,
        /// Bytes, never 0.
        len: u64,
    },
}

impl<B> Piece<B> {
    /// Where the piece starts, in bytes from the file's start.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Meta { offset, .. } | Self::Body { offset, .. } => *offset,
        }
    }

    /// Size in bytes.
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Meta { bytes, .. } => bytes.len() as u64,
            Self::Body { len, .. } => *len,
        }
    }
}

/// A whole file: its pieces are in order, without gaps or overlap, from 0 to `len`.
///
/// Two `Meta` pieces never follow each other. Padding after a body is zeros in the next `Meta` piece.
#[derive(Debug, Clone, PartialEq)]
pub struct FilePlan<B> {
    /// The pieces in order.
    pub pieces: Vec<Piece<B>>,
    /// Size of the file in bytes.
    pub len: u64,
}

impl<B> FilePlan<B> {
    /// Bytes that lie in bodies: what a device put copies on the device.
    pub fn body_bytes(&self) -> u64 {
        self.pieces.iter().filter(|p| matches!(p, Piece::Body { .. })).map(Piece::byte_len).sum()
    }

    /// Bytes made by the plan: what must be written from the host.
    pub fn meta_bytes(&self) -> u64 {
        self.len - self.body_bytes()
    }
}

/// Lays pieces end to end.
#[derive(Debug)]
pub(crate) struct PlanBuilder<B> {
    pieces: Vec<Piece<B>>,
    len: u64,
}

impl<B: BodySource> PlanBuilder<B> {
    pub(crate) fn new() -> Self {
        Self { pieces: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends bytes, to the last piece where that is `Meta` too.
    pub(crate) fn meta(&mut self, new: &[u8]) -> Result<(), LayoutError> {
        if new.is_empty() {
            return Ok(());
        }
        let offset = self.advance(new.len() as u64)?;
        match self.pieces.last_mut() {
            Some(Piece::Meta { bytes, .. }) => bytes.extend_from_slice(new),
            _ => self.pieces.push(Piece::Meta { offset, bytes: new.to_vec() }),
        }
        Ok(())
    }

    /// Appends zeros up to the next multiple of `alignment`.
    pub(crate) fn pad_to(&mut self, alignment: u64) -> Result<(), LayoutError> {
        const ZEROS: [u8; 64] = [0; 64];
        let padding = self.len.next_multiple_of(alignment) - self.len;
        let padding = usize::try_from(padding).unwrap_or(0).min(ZEROS.len());
        self.meta(&ZEROS[..padding])
    }

    /// Appends a body buffer and its padding.
    pub(crate) fn body(&mut self, source: B) -> Result<(), LayoutError> {
        let len = source.byte_len();
        if len == 0 {
            return Ok(());
        }
        let offset = self.advance(len)?;
        debug_assert_eq!(offset % ALIGNMENT, 0);
        self.pieces.push(Piece::Body { offset, source, len });
        self.pad_to(ALIGNMENT)
    }

    pub(crate) fn finish(self) -> FilePlan<B> {
        FilePlan { pieces: self.pieces, len: self.len }
    }

    /// IPC offsets are signed 64-bit, so a file ends below 2^63.
    fn advance(&mut self, by: u64) -> Result<u64, LayoutError> {
        let start = self.len;
        let limit = i64::MAX as u64 - ALIGNMENT;
        match start.checked_add(by).filter(|end| *end <= limit) {
            Some(end) => {
                self.len = end;
                Ok(start)
            }
            None => Err(LayoutError::TooLarge {
                what: "the table".to_owned(),
                detail: format!("{start} + {by} bytes do not fit in 63 bits"),
            }),
        }
    }
}
