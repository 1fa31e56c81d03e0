//! What can go wrong between Arrow arrays, tensors and an object's bytes.

use arrow_schema::{ArrowError, DataType};
use thiserror::Error;

/// An error of the layout code. `column` is always the path from the table's top, such as `orders.items.sku`.
///
/// Display says what is wrong and what to do; the cause, where there is one, is in `source()`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The batch does not have the columns that the schema names.
    #[error("batch {batch} does not match the schema: {detail}; make every batch with the table's schema")]
    SchemaMismatch {
        /// Index of the batch.
        batch: usize,
        /// What differs.
        detail: String,
    },

    /// The type has no form in an Arrow IPC file.
    #[error("column '{column}' of type {data_type} cannot be stored: {detail}")]
    UnsupportedType {
        /// Path of the column.
        column: String,
        /// Its Arrow type.
        data_type: Box<DataType>,
        /// Why, and what to convert it to.
        detail: String,
    },

    /// The array's buffers or children do not fit its type and length.
    #[error("column '{column}' of type {data_type} is malformed: {detail}")]
    MalformedArray {
        /// Path of the column.
        column: String,
        /// Its Arrow type.
        data_type: Box<DataType>,
        /// Which buffer or child, with the sizes found and needed.
        detail: String,
    },

    /// A device array starts inside a byte or inside a run; IPC has no array offset and the CPU cannot shift device bits.
    #[error(
        "column '{column}' of type {data_type} starts at element {offset}, which is not a byte boundary of its {part}; \
         materialise the slice on the device first (copy it, or slice at a multiple of 8)"
    )]
    UnalignedSlice {
        /// Path of the column.
        column: String,
        /// Its Arrow type.
        data_type: Box<DataType>,
        /// Elements skipped.
        offset: u64,
        /// The part that cannot be addressed.
        part: &'static str,
    },

    /// A slice of a device array with nulls: the number of nulls inside it is not known to the CPU.
    #[error(
        "column '{column}' is a slice of an array with nulls and its own null count is unknown; \
         IPC needs it exactly: count it on the device, or materialise the slice"
    )]
    UnknownNullCount {
        /// Path of the column.
        column: String,
    },

    /// Two batches carry different dictionaries for one column; a file holds one.
    #[error(
        "column '{column}': batch {batch} has another dictionary than batch 0, and an Arrow file holds one per column; \
         concatenate the batches on the device (or unify the categories) before the put"
    )]
    DictionaryDiffers {
        /// Path of the column.
        column: String,
        /// The first batch that differs.
        batch: usize,
    },

    /// The unified dictionary has more values than the column's key type can number.
    #[error(
        "column '{column}': the batches' dictionaries together have {values} values, more than {key_type} keys can number; \
         cast the column to a dictionary with wider keys"
    )]
    DictionaryOverflow {
        /// Path of the column.
        column: String,
        /// Values after unification.
        values: usize,
        /// The Arrow key type.
        key_type: Box<DataType>,
    },

    /// The bytes are not an Arrow IPC file (or not a `.npy` file).
    #[error("not {expected}: {detail}")]
    NotRecognised {
        /// `an Arrow IPC file` or `a .npy file`.
        expected: &'static str,
        /// What was found.
        detail: String,
    },

    /// The bytes claim to be of the format and break its rules.
    #[error("damaged {what}: {detail}")]
    Corrupt {
        /// The part of the file, for example `footer` or `record batch 3`.
        what: String,
        /// The rule that is broken, with numbers.
        detail: String,
    },

    /// The file is valid and uses a feature that this reader cannot serve in place.
    #[error("{what} uses {feature}: {advice}")]
    UnsupportedFeature {
        /// The part of the file.
        what: String,
        /// The feature.
        feature: String,
        /// What to do.
        advice: &'static str,
    },

    /// The projection names a column that the table does not have, or has twice.
    #[error("no single column '{name}' in this table; it has: {available}")]
    NoSuchColumn {
        /// The name asked for.
        name: String,
        /// Names of the table's columns.
        available: String,
    },

    /// There is no batch of this index.
    #[error("no batch {index}: the table has {count}")]
    NoSuchBatch {
        /// Index asked for.
        index: usize,
        /// Batches in the table.
        count: usize,
    },

    /// The object would be larger than the format can express.
    #[error("{what} is too large for the format: {detail}; split it")]
    TooLarge {
        /// The part.
        what: String,
        /// The limit and the size found.
        detail: String,
    },

    /// The tensor's description is not usable.
    #[error("tensor: {0}")]
    Tensor(String),

    /// The bytes of the object could not be read, or a buffer of it not be resolved.
    #[error("cannot read the object's bytes {start}..{end}")]
    Read {
        /// First byte, from the object's start.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The reader's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// Arrow refused the data.
    #[error("Arrow refused {what}: {source}")]
    Arrow {
        /// What was being done to what.
        what: String,
        /// Arrow's own error.
        #[source]
        source: ArrowError,
    },
}

impl LayoutError {
    pub(crate) fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.into() }
    }

    pub(crate) fn malformed(column: &str, data_type: &DataType, detail: impl Into<String>) -> Self {
        Self::MalformedArray {
            column: column.to_owned(),
            data_type: Box::new(data_type.clone()),
            detail: detail.into(),
        }
    }

    pub(crate) fn unsupported(column: &str, data_type: &DataType, detail: impl Into<String>) -> Self {
        Self::UnsupportedType {
            column: column.to_owned(),
            data_type: Box::new(data_type.clone()),
            detail: detail.into(),
        }
    }

    pub(crate) fn arrow(what: impl Into<String>, source: ArrowError) -> Self {
        Self::Arrow { what: what.into(), source }
    }
}
