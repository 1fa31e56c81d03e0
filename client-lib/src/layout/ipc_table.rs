//! What the metadata of an Arrow IPC file says, checked, with every buffer as a range of the file.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, SchemaRef};

use super::array::{ArrayNode, BodySource, Extent};
use super::assemble::{Walk, dictionary_id};
use super::error::LayoutError;
use super::shape::{self, Shape};

/// How the buffers of a batch are compressed, each on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The codec's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "LZ4",
            Self::Zstd => "ZSTD",
        }
    }
}

/// Length and nulls of one array in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcNode {
    /// Elements.
    pub len: u64,
    /// Nulls, at most `len`.
    pub null_count: u64,
}

/// A message in the file: `meta_len` bytes of metadata at `offset`, then `body_len` bytes of body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcBlock {
    /// First byte of the message, from the file's start; a multiple of 8.
    pub offset: u64,
    /// Bytes of metadata with their prefix and padding.
    pub meta_len: u32,
    /// Bytes of body with padding.
    pub body_len: u64,
}

/// The metadata of one record batch, or of the values of a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpcBatch {
    /// Rows.
    pub rows: u64,
    /// One per array, depth first.
    pub nodes: Vec<IpcNode>,
    /// One per buffer, depth first, as ranges of the file; compressed sizes where `compression` is set.
    pub buffers: Vec<Extent>,
    /// Byte buffers of every view array, depth first.
    pub variadic_counts: Vec<u64>,
    /// Set when the buffers are compressed.
    pub compression: Option<Compression>,
    /// Where the message lies.
    pub block: IpcBlock,
}

/// A dictionary batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpcDictionary {
    /// The id that fields of the schema refer to.
    pub id: i64,
    /// True when the values extend an earlier dictionary of the same id.
    pub is_delta: bool,
    /// The values, a batch of one column.
    pub values: IpcBatch,
}

/// An Arrow IPC file's metadata. Made by [`parse`](super::parse), which has checked all ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct IpcTable {
    /// The schema, with field and table metadata.
    pub schema: SchemaRef,
    /// Dictionaries in file order: inner ones before those that use them.
    pub dictionaries: Vec<IpcDictionary>,
    /// Record batches in order.
    pub batches: Vec<IpcBatch>,
    /// Metadata version 4, where unions still have a validity buffer.
    pub(crate) union_validity: bool,
}

impl IpcTable {
    /// Rows of all batches; saturates at `u64::MAX`.
    pub fn rows(&self) -> u64 {
        self.batches.iter().fold(0, |sum, batch| sum.saturating_add(batch.rows))
    }

    /// The first compression in use, if any: such a file cannot be used in place.
    pub fn compression(&self) -> Option<Compression> {
        let values = self.dictionaries.iter().map(|dictionary| &dictionary.values);
        values.chain(&self.batches).find_map(|batch| batch.compression)
    }

    /// The columns of a batch as trees over ranges of the file, checked against the schema.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchBatch`]; [`LayoutError::UnsupportedFeature`] for compressed bodies and delta
    /// dictionaries; [`LayoutError::Corrupt`] and [`LayoutError::MalformedArray`] for metadata that does not fit the schema.
    pub fn columns(&self, index: usize) -> Result<Vec<ArrayNode<Extent>>, LayoutError> {
        self.in_place_columns(index, &self.dictionary_trees()?)
    }

    /// As [`columns`](Self::columns), with dictionaries assembled once for all batches.
    pub(crate) fn in_place_columns(
        &self,
        index: usize,
        dictionaries: &HashMap<i64, ArrayNode<Extent>>,
    ) -> Result<Vec<ArrayNode<Extent>>, LayoutError> {
        let count = self.batches.len();
        let batch = self.batches.get(index).ok_or(LayoutError::NoSuchBatch { index, count })?;
        self.in_place(batch, &format!("record batch {index}"))?;
        self.batch_trees(index, &batch.buffers, dictionaries)
    }

    /// The values of all dictionaries by id, in place.
    pub(crate) fn dictionary_trees(&self) -> Result<HashMap<i64, ArrayNode<Extent>>, LayoutError> {
        let types = self.dictionary_types();
        let mut trees = HashMap::new();
        for dictionary in &self.dictionaries {
            let what = format!("dictionary {}", dictionary.id);
            self.in_place(&dictionary.values, &what)?;
            if dictionary.is_delta {
                return Err(LayoutError::UnsupportedFeature {
                    what,
                    feature: "delta dictionaries".to_owned(),
                    advice: "put the table again from host memory, which writes one dictionary per column",
                });
            }
            let tree = self.dictionary_tree(dictionary, &dictionary.values.buffers, &types, &trees)?;
            trees.insert(dictionary.id, tree);
        }
        Ok(trees)
    }

    /// One dictionary's values over the given buffers, which stand for the batch's own one by one.
    pub(crate) fn dictionary_tree<B: BodySource>(
        &self,
        dictionary: &IpcDictionary,
        buffers: &[B],
        types: &HashMap<i64, DataType>,
        known: &HashMap<i64, ArrayNode<B>>,
    ) -> Result<ArrayNode<B>, LayoutError> {
        let what = format!("dictionary {}", dictionary.id);
        let Some(data_type) = types.get(&dictionary.id) else {
            return Err(LayoutError::corrupt(what, "no field of the schema has this id"));
        };
        let field = Field::new("", data_type.clone(), true);
        let mut walk = Walk::new(self, &dictionary.values, buffers, known, &what);
        let tree = walk.array(&field, &what, 0)?;
        walk.finish()?;
        shape::check(&tree, &what)?;
        Ok(tree)
    }

    /// The columns of a batch over the given buffers, which stand for the batch's own one by one.
    pub(crate) fn batch_trees<B: BodySource>(
        &self,
        index: usize,
        buffers: &[B],
        dictionaries: &HashMap<i64, ArrayNode<B>>,
    ) -> Result<Vec<ArrayNode<B>>, LayoutError> {
        let batch = &self.batches[index];
        let what = format!("record batch {index}");
        let mut walk = Walk::new(self, batch, buffers, dictionaries, &what);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let column = walk.array(field, field.name(), 0)?;
            if column.len != batch.rows {
                let detail = format!("column '{}' has {} elements in {} rows", field.name(), column.len, batch.rows);
                return Err(LayoutError::corrupt(what, detail));
            }
            shape::check(&column, field.name())?;
            columns.push(column);
        }
        walk.finish()?;
        Ok(columns)
    }

    /// Value types of the schema's dictionaries by id.
    pub(crate) fn dictionary_types(&self) -> HashMap<i64, DataType> {
        fn visit(field: &Field, types: &mut HashMap<i64, DataType>) {
            if let (Some(id), DataType::Dictionary(_, values)) = (dictionary_id(field), field.data_type()) {
                types.entry(id).or_insert_with(|| values.as_ref().clone());
            }
            visit_type(field.data_type(), types);
        }
        fn visit_type(data_type: &DataType, types: &mut HashMap<i64, DataType>) {
            if let DataType::Dictionary(_, values) = data_type {
                visit_type(values, types);
            } else if let Ok(shape) = Shape::of(data_type, "") {
                for child in shape.children {
                    visit(child, types);
                }
            }
        }
        let mut types = HashMap::new();
        for field in self.schema.fields() {
            visit(field, &mut types);
        }
        types
    }

    fn in_place(&self, batch: &IpcBatch, what: &str) -> Result<(), LayoutError> {
        match batch.compression {
            None => Ok(()),
            Some(codec) => Err(LayoutError::UnsupportedFeature {
                what: what.to_owned(),
                feature: format!("{} compression", codec.name()),
                advice: "read it into host memory, or put the table again uncompressed",
            }),
        }
    }
}
