//! A batch's flat lists of nodes and buffers to the trees that the schema says they are.

use std::collections::HashMap;

use arrow_schema::{DataType, Field};

use super::array::{ArrayNode, BodySource};
use super::error::LayoutError;
use super::ipc_table::{IpcBatch, IpcNode, IpcTable};
use super::shape::{MAX_DEPTH, Shape, child_path};

/// The id by which a dictionary field names its values in the file.
pub(crate) fn dictionary_id(field: &Field) -> Option<i64> {
    // The reader half of arrow-rs still keeps file ids on fields, and offers no other way to them.
    #[expect(deprecated)]
    field.dict_id()
}

/// Takes nodes, buffers and counts in the order in which the schema's tree uses them.
pub(crate) struct Walk<'a, B> {
    union_validity: bool,
    nodes: std::slice::Iter<'a, IpcNode>,
    buffers: std::slice::Iter<'a, B>,
    variadic: std::slice::Iter<'a, u64>,
    dictionaries: &'a HashMap<i64, ArrayNode<B>>,
    what: &'a str,
}

impl<'a, B: BodySource> Walk<'a, B> {
    pub(crate) fn new(
        table: &IpcTable,
        batch: &'a IpcBatch,
        buffers: &'a [B],
        dictionaries: &'a HashMap<i64, ArrayNode<B>>,
        what: &'a str,
    ) -> Self {
        Self {
            union_validity: table.union_validity,
            nodes: batch.nodes.iter(),
            buffers: buffers.iter(),
            variadic: batch.variadic_counts.iter(),
            dictionaries,
            what,
        }
    }

    fn corrupt(&self, detail: impl Into<String>) -> LayoutError {
        LayoutError::corrupt(self.what, detail)
    }

    pub(crate) fn array(&mut self, field: &Field, column: &str, depth: usize) -> Result<ArrayNode<B>, LayoutError> {
        let data_type = field.data_type();
        if depth > MAX_DEPTH {
            return Err(self.corrupt(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let shape = Shape::of(data_type, column)?;
        let node = *self.nodes.next().ok_or_else(|| self.corrupt(format!("no node for column '{column}'")))?;
        if self.union_validity && matches!(data_type, DataType::Union(_, _)) {
            self.buffer(column)?;
        }
        let mut buffers = Vec::with_capacity(shape.slots.len());
        for (index, slot) in shape.slots.iter().enumerate() {
            let buffer = self.buffer(column)?;
            // Padding may be counted in, but only whole elements can be addressed, and arrow-rs asserts it.
            if !buffer.byte_len().is_multiple_of(slot.granule()) {
                let (len, width) = (buffer.byte_len(), slot.granule());
                let detail = format!("column '{column}' has a buffer of {len} bytes for elements of {width}");
                return Err(self.corrupt(detail));
            }
            let unused = index == 0 && shape.has_validity() && node.null_count == 0;
            buffers.push((!unused && buffer.byte_len() > 0).then(|| buffer.clone()));
        }
        if shape.variadic {
            let missing = || self.corrupt(format!("no count of buffers for column '{column}'"));
            let count = *self.variadic.clone().next().ok_or_else(missing)?;
            self.variadic.next();
            if count > self.buffers.len() as u64 {
                return Err(self.corrupt(format!("column '{column}' claims {count} buffers")));
            }
            for _ in 0..count {
                let buffer = self.buffer(column)?;
                buffers.push((buffer.byte_len() > 0).then(|| buffer.clone()));
            }
        }
        let mut children = Vec::with_capacity(shape.children.len());
        for child in &shape.children {
            children.push(self.array(child, &child_path(column, child), depth + 1)?);
        }
        let dictionary = match data_type {
            DataType::Dictionary(_, values) => Some(Box::new(self.dictionary(field, values, column)?)),
            _ => None,
        };
        let data_type = data_type.clone();
        Ok(ArrayNode { data_type, len: node.len, null_count: node.null_count, buffers, children, dictionary })
    }

    fn buffer(&mut self, column: &str) -> Result<&'a B, LayoutError> {
        self.buffers.next().ok_or_else(|| self.corrupt(format!("too few buffers for column '{column}'")))
    }

    /// Writers may leave out the dictionary of a column without any value.
    fn dictionary(&self, field: &Field, values: &DataType, column: &str) -> Result<ArrayNode<B>, LayoutError> {
        match dictionary_id(field).and_then(|id| self.dictionaries.get(&id)) {
            // The types are compared before the tree is copied: copies stay as small as the schema.
            Some(tree) if tree.data_type.equals_datatype(values) => Ok(tree.clone()),
            Some(tree) => {
                let found = &tree.data_type;
                Err(self.corrupt(format!("column '{column}' needs a dictionary of {values} and names one of {found}")))
            }
            None => empty(values, column),
        }
    }

    /// Everything must have been used, or metadata and schema disagree.
    pub(crate) fn finish(self) -> Result<(), LayoutError> {
        let left = [self.nodes.len(), self.buffers.len(), self.variadic.len()];
        if left == [0, 0, 0] {
            return Ok(());
        }
        let [nodes, buffers, counts] = left;
        Err(self.corrupt(format!("{nodes} nodes, {buffers} buffers and {counts} counts more than the schema uses")))
    }
}

/// An array of no elements.
fn empty<B>(data_type: &DataType, column: &str) -> Result<ArrayNode<B>, LayoutError> {
    let shape = Shape::of(data_type, column)?;
    let mut children = Vec::with_capacity(shape.children.len());
    for child in &shape.children {
        children.push(empty(child.data_type(), &child_path(column, child))?);
    }
    let dictionary = match data_type {
        DataType::Dictionary(_, values) => Some(Box::new(empty(values, column)?)),
        _ => None,
    };
    let buffers = shape.slots.iter().map(|_| None).collect();
    Ok(ArrayNode { data_type: data_type.clone(), len: 0, null_count: 0, buffers, children, dictionary })
}
