//! Host batches to trees of buffers, trimmed to the rows they show.
//!
//! IPC has no array offset, so slices are trimmed as arrow-ipc's writer trims them: sub-buffers where a slice starts
//! on a byte (zero copy), a fresh shifted buffer for bits that do not, rebased offsets where they do not start at 0.
//! A column is walked once over all batches side by side, because a file holds one dictionary per field.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Schema, UnionMode};

use super::array::{ArrayNode, Batch};
use super::dictionary;
use super::error::LayoutError;
use super::run_end;
use super::shape::{MAX_DEPTH, Shape, child_path};

/// The batches as trees; dictionaries are unified, so every batch shares one per field.
pub(crate) fn host_batches(schema: &Schema, batches: &[RecordBatch]) -> Result<Vec<Batch<Buffer>>, LayoutError> {
    for (index, batch) in batches.iter().enumerate() {
        check_columns(schema, index, batch)?;
    }
    let mut trees: Vec<Batch<Buffer>> = batches
        .iter()
        .map(|batch| Batch { rows: batch.num_rows() as u64, columns: Vec::with_capacity(batch.num_columns()) })
        .collect();
    if batches.is_empty() {
        return Ok(trees);
    }
    for (index, field) in schema.fields().iter().enumerate() {
        let chunks: Vec<ArrayRef> = batches.iter().map(|batch| batch.column(index).clone()).collect();
        let nodes = column_nodes(field.data_type(), field.name(), &chunks, 0)?;
        for (tree, node) in trees.iter_mut().zip(nodes) {
            tree.columns.push(node);
        }
    }
    Ok(trees)
}

fn check_columns(schema: &Schema, index: usize, batch: &RecordBatch) -> Result<(), LayoutError> {
    let mismatch = |detail: String| LayoutError::SchemaMismatch { batch: index, detail };
    let (found, expected) = (batch.num_columns(), schema.fields().len());
    if found != expected {
        return Err(mismatch(format!("{found} columns instead of {expected}")));
    }
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let (name, expected, found) = (field.name(), field.data_type(), column.data_type());
        if !found.equals_datatype(expected) {
            return Err(mismatch(format!("column '{name}' has type {found} instead of {expected}")));
        }
        if !field.is_nullable() && column.null_count() > 0 {
            return Err(mismatch(format!("column '{name}' has nulls and its field is not nullable")));
        }
    }
    Ok(())
}

/// One array, its children not yet looked at.
#[derive(Debug)]
struct Opened {
    len: usize,
    null_count: usize,
    buffers: Vec<Option<Buffer>>,
    children: Vec<ArrayRef>,
    /// A dictionary's values.
    values: Option<ArrayRef>,
}

fn column_nodes(
    data_type: &DataType,
    column: &str,
    chunks: &[ArrayRef],
    depth: usize,
) -> Result<Vec<ArrayNode<Buffer>>, LayoutError> {
    if depth > MAX_DEPTH {
        return Err(LayoutError::unsupported(column, data_type, format!("nested deeper than {MAX_DEPTH} levels")));
    }
    let shape = Shape::of(data_type, column)?;
    let mut opened = chunks.iter().map(|chunk| open(chunk, column)).collect::<Result<Vec<_>, _>>()?;
    let dictionary = match data_type {
        DataType::Dictionary(_, value_type) => {
            let values = unify_dictionaries(column, chunks, &mut opened)?;
            let path = format!("{column}.[dictionary]");
            column_nodes(value_type, &path, &[values], depth + 1)?.pop().map(Box::new)
        }
        _ => None,
    };
    let mut nodes: Vec<ArrayNode<Buffer>> = Vec::with_capacity(opened.len());
    let mut children: Vec<Vec<ArrayRef>> = Vec::with_capacity(opened.len());
    for array in opened {
        nodes.push(ArrayNode {
            data_type: data_type.clone(),
            len: array.len as u64,
            null_count: array.null_count as u64,
            buffers: array.buffers,
            children: Vec::with_capacity(array.children.len()),
            dictionary: dictionary.clone(),
        });
        children.push(array.children);
    }
    for (index, field) in shape.children.iter().enumerate() {
        let path = child_path(column, field);
        let side_by_side: Vec<ArrayRef> = children.iter().map(|of_chunk| of_chunk[index].clone()).collect();
        for (node, child) in nodes.iter_mut().zip(column_nodes(field.data_type(), &path, &side_by_side, depth + 1)?) {
            node.children.push(child);
        }
    }
    Ok(nodes)
}

/// Replaces the keys of every batch where the dictionaries differ; returns the one dictionary.
fn unify_dictionaries(column: &str, chunks: &[ArrayRef], opened: &mut [Opened]) -> Result<ArrayRef, LayoutError> {
    let values: Vec<ArrayRef> = opened.iter().filter_map(|array| array.values.clone()).collect();
    let unified = dictionary::unify(column, &values)?;
    for ((chunk, array), map) in chunks.iter().zip(opened.iter_mut()).zip(&unified.maps) {
        if let Some(map) = map {
            let keys = chunk.as_any_dictionary().keys();
            array.buffers[1] = Some(dictionary::remap(column, keys, map, unified.values.len())?);
        }
    }
    Ok(unified.values)
}

fn open(array: &ArrayRef, column: &str) -> Result<Opened, LayoutError> {
    let len = array.len();
    let flat = |buffers: Vec<Buffer>| Opened {
        len,
        null_count: array.null_count(),
        buffers: std::iter::once(validity(array)).chain(buffers.into_iter().map(Some)).collect(),
        children: Vec::new(),
        values: None,
    };
    let nested = |buffers: Vec<Buffer>, children: Vec<ArrayRef>| Opened { children, ..flat(buffers) };
    let bare = |buffers: Vec<Buffer>, children: Vec<ArrayRef>| Opened {
        len,
        null_count: 0,
        buffers: buffers.into_iter().map(Some).collect(),
        children,
        values: None,
    };
    Ok(match array.data_type() {
        DataType::Null => Opened { null_count: len, ..bare(Vec::new(), Vec::new()) },
        DataType::Boolean => flat(vec![array.as_boolean().values().sliced()]),
        DataType::Utf8 => flat(bytes_buffers(array.as_string::<i32>().offsets(), array.as_string::<i32>().values())),
        DataType::Binary => flat(bytes_buffers(array.as_binary::<i32>().offsets(), array.as_binary::<i32>().values())),
        DataType::LargeUtf8 => {
            flat(bytes_buffers(array.as_string::<i64>().offsets(), array.as_string::<i64>().values()))
        }
        DataType::LargeBinary => {
            flat(bytes_buffers(array.as_binary::<i64>().offsets(), array.as_binary::<i64>().values()))
        }
        DataType::Utf8View => {
            let views = array.as_string_view();
            flat(views_buffers(views.views().inner(), views.data_buffers()))
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            flat(views_buffers(views.views().inner(), views.data_buffers()))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (offsets, values) = list_parts(list.offsets(), list.values());
            nested(vec![offsets], vec![values])
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let (offsets, values) = list_parts(list.offsets(), list.values());
            nested(vec![offsets], vec![values])
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
            let (offsets, entries) = list_parts(map.offsets(), &entries);
            nested(vec![offsets], vec![entries])
        }
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            list_view(list.offsets().inner(), list.sizes().inner(), list.values(), nested)
        }
        DataType::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            list_view(list.offsets().inner(), list.sizes().inner(), list.values(), nested)
        }
        DataType::FixedSizeList(_, size) => {
            let values = array.as_fixed_size_list().values();
            let used = usize::try_from(*size).unwrap_or(0).saturating_mul(len).min(values.len());
            nested(Vec::new(), vec![values.slice(0, used)])
        }
        DataType::Struct(_) => nested(Vec::new(), array.as_struct().columns().to_vec()),
        DataType::Union(fields, mode) => {
            let union = array.as_union();
            let mut buffers = vec![union.type_ids().inner().clone()];
            if let (UnionMode::Dense, Some(offsets)) = (mode, union.offsets()) {
                buffers.push(offsets.inner().clone());
            }
            bare(buffers, fields.iter().map(|(id, _)| union.child(id).clone()).collect())
        }
        DataType::RunEndEncoded(_, _) => bare(Vec::new(), run_end::rebased(array, column)?.into()),
        DataType::Dictionary(keys, _) => {
            let dictionary = array.as_any_dictionary();
            let width = keys.primitive_width().unwrap_or(0);
            let keys = fixed_width_values(dictionary.keys(), width);
            Opened { values: Some(dictionary.values().clone()), ..flat(vec![keys]) }
        }
        DataType::FixedSizeBinary(width) => flat(vec![fixed_width_values(array, usize::try_from(*width).unwrap_or(0))]),
        other => match other.primitive_width() {
            Some(width) => flat(vec![fixed_width_values(array, width)]),
            None => return Err(LayoutError::unsupported(column, other, "no known buffer layout")),
        },
    })
}

/// The bitmap, starting at bit 0; none where there is no null.
fn validity(array: &ArrayRef) -> Option<Buffer> {
    array.nulls().filter(|nulls| nulls.null_count() > 0).map(|nulls| nulls.inner().sliced())
}

fn fixed_width_values(array: &dyn Array, width: usize) -> Buffer {
    let data = array.to_data();
    match data.buffers().first() {
        Some(values) => values.slice_with_length(data.offset() * width, data.len() * width),
        None => Buffer::default(),
    }
}

fn views_buffers(views: &Buffer, blocks: &[Buffer]) -> Vec<Buffer> {
    // Blocks are kept whole: proving that no view reaches into one costs a pass over all views.
    std::iter::once(views.clone()).chain(blocks.iter().cloned()).collect()
}

fn bytes_buffers<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &Buffer) -> Vec<Buffer> {
    let (rebased, start, end) = rebase(offsets);
    vec![rebased, values.slice_with_length(start, end - start)]
}

fn list_parts<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &ArrayRef) -> (Buffer, ArrayRef) {
    let (rebased, start, end) = rebase(offsets);
    (rebased, values.slice(start, end - start))
}

/// Offsets that start at 0 (the same buffer where they do), and the range of values they cover.
fn rebase<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (Buffer, usize, usize) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let buffer = if first.as_usize() == 0 {
        offsets.inner().inner().clone()
    } else {
        offsets.iter().map(|offset| *offset - first).collect()
    };
    (buffer, first.as_usize(), last.as_usize())
}

/// Views may overlap and run backwards, so the child stays whole unless no list uses it.
fn list_view(
    offsets: &Buffer,
    sizes: &Buffer,
    values: &ArrayRef,
    nested: impl FnOnce(Vec<Buffer>, Vec<ArrayRef>) -> Opened,
) -> Opened {
    let values = if offsets.is_empty() { values.slice(0, 0) } else { values.clone() };
    nested(vec![offsets.clone(), sizes.clone()], vec![values])
}
