//! Trees of arrays to the plan of an Arrow IPC file. One walk for host and device memory.
//!
//! Layout: magic and padding to 8; schema message; dictionary messages, inner ones first; record batch messages;
//! end-of-stream; footer; its length; magic. Every body starts at a multiple of [`ALIGNMENT`] because each
//! message's metadata is padded so that it ends at one. The schema message starts at byte 8, as the format
//! says, so that the file without its first 8 bytes is also a valid IPC stream.

use arrow_schema::{Schema, SchemaRef};

use super::array::{ArrayNode, Batch, BodySource};
use super::error::LayoutError;
use super::message::{self, BatchMeta, CONTINUATION, MAGIC, Placed};
use super::plan::{ALIGNMENT, FilePlan, PlanBuilder};
use super::shape::{self, Shape, Slot, child_path};

/// Plans the file of a table. Buffer contents are not read.
///
/// # Errors
/// A column whose tree does not fit its type, batches whose dictionaries differ, sizes past 63 bits.
pub(crate) fn plan_file<B: BodySource>(schema: &SchemaRef, batches: &[Batch<B>]) -> Result<FilePlan<B>, LayoutError> {
    for (index, batch) in batches.iter().enumerate() {
        check_batch(schema, index, batch)?;
    }
    let mut plan = PlanBuilder::new();
    plan.meta(MAGIC)?;
    plan.pad_to(8)?;
    metadata(&mut plan, &message::schema_message(schema))?;

    let mut placed_dictionaries = Vec::new();
    for (id, values) in dictionaries(schema, batches)?.into_iter().enumerate() {
        let mut body = Body::default();
        body.add(values)?;
        body.meta.rows = signed(values.len)?;
        let message = message::dictionary_message(signed(id as u64)?, &body.meta);
        placed_dictionaries.push(place(&mut plan, &message, body)?);
    }
    let mut placed_batches = Vec::with_capacity(batches.len());
    for batch in batches {
        let mut body = Body::default();
        for column in &batch.columns {
            body.add(column)?;
        }
        body.meta.rows = signed(batch.rows)?;
        let message = message::batch_message(&body.meta);
        placed_batches.push(place(&mut plan, &message, body)?);
    }

    plan.meta(&CONTINUATION)?;
    plan.meta(&[0; 4])?;
    let footer = message::footer(schema, &placed_dictionaries, &placed_batches);
    let footer_len = i32::try_from(footer.len()).map_err(|_| too_large("the footer", footer.len()))?;
    plan.meta(&footer)?;
    plan.meta(&footer_len.to_le_bytes())?;
    plan.meta(MAGIC)?;
    Ok(plan.finish())
}

fn check_batch<B: BodySource>(schema: &Schema, index: usize, batch: &Batch<B>) -> Result<(), LayoutError> {
    let mismatch = |detail: String| LayoutError::SchemaMismatch { batch: index, detail };
    if batch.columns.len() != schema.fields().len() {
        let (found, expected) = (batch.columns.len(), schema.fields().len());
        return Err(mismatch(format!("{found} columns instead of {expected}")));
    }
    for (field, column) in schema.fields().iter().zip(&batch.columns) {
        let (name, expected) = (field.name(), field.data_type());
        if !column.data_type.equals_datatype(expected) {
            return Err(mismatch(format!("column '{name}' has type {} instead of {expected}", column.data_type)));
        }
        if column.len != batch.rows {
            return Err(mismatch(format!("column '{name}' has {} elements in {} rows", column.len, batch.rows)));
        }
        shape::check(column, name)?;
    }
    Ok(())
}

/// The dictionaries of a table by id: depth first, inner before outer, as the schema encoder numbers them.
fn dictionaries<'a, B: BodySource>(
    schema: &Schema,
    batches: &'a [Batch<B>],
) -> Result<Vec<&'a ArrayNode<B>>, LayoutError> {
    let mut known: Vec<&ArrayNode<B>> = Vec::new();
    for (index, batch) in batches.iter().enumerate() {
        let mut found = Vec::new();
        for (field, column) in schema.fields().iter().zip(&batch.columns) {
            collect_dictionaries(column, field.name(), &mut found)?;
        }
        if index == 0 {
            known = found.into_iter().map(|(_, values)| values).collect();
            continue;
        }
        for (first, (column, values)) in known.iter().zip(&found) {
            if !first.same(values) {
                return Err(LayoutError::DictionaryDiffers { column: column.clone(), batch: index });
            }
        }
    }
    Ok(known)
}

fn collect_dictionaries<'a, B: BodySource>(
    node: &'a ArrayNode<B>,
    column: &str,
    found: &mut Vec<(String, &'a ArrayNode<B>)>,
) -> Result<(), LayoutError> {
    let shape = Shape::of(&node.data_type, column)?;
    for (child, field) in node.children.iter().zip(&shape.children) {
        collect_dictionaries(child, &child_path(column, field), found)?;
    }
    if let Some(values) = &node.dictionary {
        collect_dictionaries(values, column, found)?;
        found.push((column.to_owned(), values.as_ref()));
    }
    Ok(())
}

/// The metadata of a batch and its buffers in the same order.
#[derive(Debug)]
struct Body<B> {
    meta: BatchMeta,
    sources: Vec<B>,
}

impl<B> Default for Body<B> {
    fn default() -> Self {
        Self { meta: BatchMeta::default(), sources: Vec::new() }
    }
}

impl<B: BodySource> Body<B> {
    fn add(&mut self, node: &ArrayNode<B>) -> Result<(), LayoutError> {
        let shape = Shape::of(&node.data_type, "")?;
        self.meta.nodes.push((signed(node.len)?, signed(node.null_count)?));
        for (slot, buffer) in shape.slots.iter().zip(&node.buffers) {
            let wanted = match slot {
                Slot::Validity if node.null_count == 0 => Some(0),
                other => other.exact(node.len),
            };
            self.add_buffer(buffer.as_ref(), wanted)?;
        }
        if shape.variadic {
            let blocks = &node.buffers[shape.slots.len()..];
            self.meta.variadic.push(signed(blocks.len() as u64)?);
            for block in blocks {
                self.add_buffer(block.as_ref(), None)?;
            }
        }
        for child in &node.children {
            self.add(child)?;
        }
        Ok(())
    }

    /// At most `wanted` bytes of the buffer: an allocation is often longer than its array.
    fn add_buffer(&mut self, buffer: Option<&B>, wanted: Option<u64>) -> Result<(), LayoutError> {
        let start = self.meta.body_len;
        let Some(buffer) = buffer else {
            self.meta.buffers.push((start, 0));
            return Ok(());
        };
        let len = wanted.unwrap_or(u64::MAX).min(buffer.byte_len());
        let padded = len.checked_next_multiple_of(ALIGNMENT).ok_or_else(|| too_large("a buffer", len))?;
        self.meta.buffers.push((start, signed(len)?));
        let end = start.checked_add(signed(padded)?);
        self.meta.body_len = end.ok_or_else(|| too_large("a batch's body", padded))?;
        if len > 0 {
            self.sources.push(buffer.prefix(len));
        }
        Ok(())
    }
}

fn place<B: BodySource>(plan: &mut PlanBuilder<B>, message: &[u8], body: Body<B>) -> Result<Placed, LayoutError> {
    let offset = signed(plan.len())?;
    let meta_len = metadata(plan, message)?;
    let body_len = body.meta.body_len;
    for source in body.sources {
        plan.body(source)?;
    }
    Ok(Placed { offset, meta_len, body_len })
}

/// Continuation, length, flatbuffer, padding up to the body's alignment. Returns all of their bytes.
fn metadata<B: BodySource>(plan: &mut PlanBuilder<B>, message: &[u8]) -> Result<i32, LayoutError> {
    let start = plan.len();
    let end = (start + 8 + message.len() as u64).next_multiple_of(ALIGNMENT);
    let total = i32::try_from(end - start).map_err(|_| too_large("a message's metadata", end - start))?;
    plan.meta(&CONTINUATION)?;
    plan.meta(&(total - 8).to_le_bytes())?;
    plan.meta(message)?;
    plan.pad_to(ALIGNMENT)?;
    Ok(total)
}

fn signed(value: u64) -> Result<i64, LayoutError> {
    i64::try_from(value).map_err(|_| too_large("a length", value))
}

fn too_large(what: &str, value: impl std::fmt::Display) -> LayoutError {
    LayoutError::TooLarge { what: what.to_owned(), detail: format!("{value} is past the format's limit") }
}
