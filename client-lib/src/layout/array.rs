//! The one tree that writing and reading share: an Arrow array as lengths and buffers, wherever the buffers live.

use arrow_buffer::Buffer;
use arrow_schema::DataType;

/// A buffer whose bytes this module never looks at: it knows the size, and can name a prefix of it.
pub trait BodySource: Clone + std::fmt::Debug {
    /// Size in bytes.
    fn byte_len(&self) -> u64;
    /// The first `len` bytes; `len` is at most [`byte_len`](Self::byte_len).
    #[must_use]
    fn prefix(&self, len: u64) -> Self;
    /// True when both name the same memory (not: equal contents).
    fn same(&self, other: &Self) -> bool;
}

impl BodySource for Buffer {
    fn byte_len(&self) -> u64 {
        self.len() as u64
    }

    fn prefix(&self, len: u64) -> Self {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.len());
        self.slice_with_length(0, len)
    }

    fn same(&self, other: &Self) -> bool {
        self.as_ptr() == other.as_ptr() && self.len() == other.len()
    }
}

/// A range of device memory. Whoever made it keeps the memory alive; this type owns nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceBuffer {
    /// Device address of the first byte; 0 only where `len` is 0.
    pub address: u64,
    /// Size in bytes.
    pub len: u64,
}

impl BodySource for DeviceBuffer {
    fn byte_len(&self) -> u64 {
        self.len
    }

    fn prefix(&self, len: u64) -> Self {
        Self { address: self.address, len: len.min(self.len) }
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

/// A range of an object's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extent {
    /// First byte, from the object's start.
    pub offset: u64,
    /// Size in bytes.
    pub len: u64,
}

impl BodySource for Extent {
    fn byte_len(&self) -> u64 {
        self.len
    }

    fn prefix(&self, len: u64) -> Self {
        Self { offset: self.offset, len: len.min(self.len) }
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

/// An array of offset 0: type, length, exact null count, buffers, children.
///
/// `buffers` are in the order of the Arrow C data interface (validity first, where the type has one), without the
/// trailing buffer of variadic lengths of the view types: here every buffer knows its length. `None` is an absent
/// buffer: validity where there are no nulls, or a buffer of no bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayNode<B> {
    /// The Arrow type.
    pub data_type: DataType,
    /// Elements.
    pub len: u64,
    /// Exact count of nulls in the validity buffer; equal to `len` for the null type, 0 for unions and run-end arrays.
    pub null_count: u64,
    /// Buffers, see above.
    pub buffers: Vec<Option<B>>,
    /// Child arrays in schema order.
    pub children: Vec<ArrayNode<B>>,
    /// The values of a dictionary type; `None` for all others.
    pub dictionary: Option<Box<ArrayNode<B>>>,
}

impl<B: BodySource> ArrayNode<B> {
    /// True when both trees name the same memory with the same lengths.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let dictionaries = match (&self.dictionary, &other.dictionary) {
            (Some(a), Some(b)) => a.same(b),
            (None, None) => true,
            _ => false,
        };
        dictionaries
            && self.len == other.len
            && self.null_count == other.null_count
            && self.buffers.len() == other.buffers.len()
            && self.children.len() == other.children.len()
            && self.buffers.iter().zip(&other.buffers).all(|pair| match pair {
                (Some(a), Some(b)) => a.same(b),
                (None, None) => true,
                _ => false,
            })
            && self.children.iter().zip(&other.children).all(|(a, b)| a.same(b))
    }

    /// The same tree over other buffers; stops at the first error.
    ///
    /// # Errors
    /// Whatever `convert` returns.
    pub fn try_map<C, E>(&self, convert: &mut dyn FnMut(&B) -> Result<C, E>) -> Result<ArrayNode<C>, E> {
        let mut buffers = Vec::with_capacity(self.buffers.len());
        for buffer in &self.buffers {
            buffers.push(buffer.as_ref().map(&mut *convert).transpose()?);
        }
        let mut children = Vec::with_capacity(self.children.len());
        for child in &self.children {
            children.push(child.try_map(convert)?);
        }
        let dictionary = match &self.dictionary {
            Some(values) => Some(Box::new(values.try_map(convert)?)),
            None => None,
        };
        Ok(ArrayNode {
            data_type: self.data_type.clone(),
            len: self.len,
            null_count: self.null_count,
            buffers,
            children,
            dictionary,
        })
    }
}

/// Rows of a table that lie together: one array per top-level column.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch<B> {
    /// Rows; the length of every column.
    pub rows: u64,
    /// One array per field of the schema.
    pub columns: Vec<ArrayNode<B>>,
}
