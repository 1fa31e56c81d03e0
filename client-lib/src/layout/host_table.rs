//! A table in host memory, read without a copy from the object's bytes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, MetadataVersion};
use arrow_schema::SchemaRef;
use bytes::Bytes;

use super::array::{ArrayNode, Extent};
use super::compressed;
use super::error::LayoutError;
use super::ipc_table::{IpcBatch, IpcBlock, IpcTable};
use super::parse::parse;
use super::project::project;

/// A table over one object's bytes. Arrays share those bytes and keep them alive.
///
/// Batches are decoded and fully validated (offsets, UTF-8, dictionary keys) each time they are asked for: the bytes
/// may come from anyone. Buffers are copied only where they are compressed or lie at an address their type cannot use.
#[derive(Debug)]
pub struct HostTable {
    bytes: Buffer,
    table: IpcTable,
    schema: SchemaRef,
    decoder: FileDecoder,
    dictionaries: Arc<DictionaryTrees>,
}

/// The dictionaries' trees by id, with decompressed sizes.
type DictionaryTrees = HashMap<i64, ArrayNode<Extent>>;

impl HostTable {
    /// Opens a whole Arrow IPC file. Dictionaries are decoded now, batches later.
    ///
    /// The bytes should start at a multiple of 64 in memory, as a mapping does; at an address that is not a multiple
    /// of 8 the object is copied once.
    ///
    /// # Errors
    /// Those of [`parse`], and [`LayoutError::Arrow`] when a dictionary's contents are not valid.
    pub fn open(bytes: Bytes) -> Result<Self, LayoutError> {
        let bytes = aligned(bytes);
        let table = parse_buffer(&bytes)?;
        let schema = table.schema.clone();
        let dictionaries = Arc::new(dictionary_trees(&bytes, &table)?);
        let decoder = decoder(&bytes, &table)?;
        Ok(Self { bytes, table, schema, decoder, dictionaries })
    }

    /// The same table with only these columns, in this order.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchColumn`] for a name that is not there exactly once.
    pub fn project(&self, columns: &[&str]) -> Result<Self, LayoutError> {
        let (indices, schema) = project(&self.table.schema, columns)?;
        let decoder = decoder(&self.bytes, &self.table)?.with_projection(indices);
        let (bytes, table, dictionaries) = (self.bytes.clone(), self.table.clone(), self.dictionaries.clone());
        Ok(Self { bytes, table, schema, decoder, dictionaries })
    }

    /// The schema of the columns that batches have.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The file's metadata, of all columns.
    pub fn metadata(&self) -> &IpcTable {
        &self.table
    }

    /// Batches in the file.
    pub fn num_batches(&self) -> usize {
        self.table.batches.len()
    }

    /// Rows of all batches.
    pub fn num_rows(&self) -> u64 {
        self.table.rows()
    }

    /// Decodes and validates one batch.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchBatch`], or what is wrong with the batch's metadata or contents.
    pub fn batch(&self, index: usize) -> Result<RecordBatch, LayoutError> {
        let count = self.num_batches();
        let batch = self.table.batches.get(index).ok_or(LayoutError::NoSuchBatch { index, count })?;
        let what = format!("record batch {index}");
        let sizes = sizes(&self.bytes, batch, &what)?;
        // The decoder slices buffers without looking at their sizes; the tree check has looked.
        self.table.batch_trees(index, &sizes, &self.dictionaries)?;
        let (block, bytes) = message(&self.bytes, &batch.block, &what)?;
        let decoded = self.decoder.read_record_batch(&block, &bytes);
        let decoded = decoded.map_err(|error| LayoutError::arrow(&what, error))?;
        decoded.ok_or_else(|| LayoutError::corrupt(what, "the message is empty"))
    }

    /// All batches in order.
    pub fn batches(&self) -> impl Iterator<Item = Result<RecordBatch, LayoutError>> + '_ {
        (0..self.num_batches()).map(|index| self.batch(index))
    }
}

fn aligned(bytes: Bytes) -> Buffer {
    if (bytes.as_ptr() as usize).is_multiple_of(8) {
        return Buffer::from(bytes);
    }
    let mut copy = MutableBuffer::new(bytes.len());
    copy.extend_from_slice(&bytes);
    copy.into()
}

fn parse_buffer(bytes: &Buffer) -> Result<IpcTable, LayoutError> {
    let whole = Bytes::from_owner(bytes.clone());
    parse(whole.len() as u64, &mut |range| {
        let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        match bounds {
            Some((start, end)) if start <= end && end <= whole.len() => Ok(whole.slice(start..end)),
            _ => Err(LayoutError::corrupt("object", format!("no bytes {}..{}", range.start, range.end))),
        }
    })
}

/// The trees of `table`'s dictionaries must have been checked: the decoder slices buffers without looking.
fn decoder(bytes: &Buffer, table: &IpcTable) -> Result<FileDecoder, LayoutError> {
    let version = if table.union_validity { MetadataVersion::V4 } else { MetadataVersion::V5 };
    let mut decoder = FileDecoder::new(table.schema.clone(), version);
    for dictionary in &table.dictionaries {
        let what = format!("dictionary {}", dictionary.id);
        let (block, bytes) = message(bytes, &dictionary.values.block, &what)?;
        decoder.read_dictionary(&block, &bytes).map_err(|error| LayoutError::arrow(what, error))?;
    }
    Ok(decoder)
}

fn dictionary_trees(bytes: &Buffer, table: &IpcTable) -> Result<DictionaryTrees, LayoutError> {
    let types = table.dictionary_types();
    let mut trees = HashMap::new();
    for dictionary in &table.dictionaries {
        let sizes = sizes(bytes, &dictionary.values, &format!("dictionary {}", dictionary.id))?;
        let tree = table.dictionary_tree(dictionary, &sizes, &types, &trees)?;
        trees.insert(dictionary.id, tree);
    }
    Ok(trees)
}

/// The buffers of a batch with the sizes they have once decompressed.
fn sizes(bytes: &Buffer, batch: &IpcBatch, what: &str) -> Result<Vec<Extent>, LayoutError> {
    match batch.compression {
        None => Ok(batch.buffers.clone()),
        Some(codec) => batch.buffers.iter().map(|extent| compressed::size(bytes, *extent, codec, what)).collect(),
    }
}

fn message(bytes: &Buffer, block: &IpcBlock, what: &str) -> Result<(Block, Buffer), LayoutError> {
    let parts = || {
        let start = usize::try_from(block.offset).ok()?;
        let len = usize::try_from(u64::from(block.meta_len) + block.body_len).ok()?;
        let end = start.checked_add(len)?;
        let ipc = Block::new(
            i64::try_from(block.offset).ok()?,
            i32::try_from(block.meta_len).ok()?,
            i64::try_from(block.body_len).ok()?,
        );
        (end <= bytes.len()).then(|| (ipc, bytes.slice_with_length(start, len)))
    };
    parts().ok_or_else(|| LayoutError::corrupt(what, format!("block {block:?} is outside the object")))
}
