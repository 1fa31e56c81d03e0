//! The flatbuffers of an Arrow IPC file: schema message, batch messages, footer.
//!
//! Only metadata is made here; bodies are never touched.

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::DictionaryTracker;
use arrow_ipc::{
    Block, Buffer as IpcBuffer, DictionaryBatchBuilder, FieldNode, FooterBuilder, MessageBuilder, MessageHeader,
    MetadataVersion, RecordBatch as IpcRecordBatch, RecordBatchBuilder,
};
use arrow_schema::Schema;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

/// First and last bytes of every Arrow IPC file.
pub(crate) const MAGIC: &[u8; 6] = b"ARROW1";
/// Starts every message since Arrow 0.15, so that its length is 8-byte aligned.
pub(crate) const CONTINUATION: [u8; 4] = [0xff; 4];
/// The only metadata version written here.
const VERSION: MetadataVersion = MetadataVersion::V5;

/// What a batch message says about its body.
#[derive(Debug, Default)]
pub(crate) struct BatchMeta {
    /// Rows of the batch, or values of the dictionary.
    pub(crate) rows: i64,
    /// (length, null count) of every array, depth first.
    pub(crate) nodes: Vec<(i64, i64)>,
    /// (offset in the body, length) of every buffer, depth first.
    pub(crate) buffers: Vec<(i64, i64)>,
    /// Byte buffers of every view array, depth first.
    pub(crate) variadic: Vec<i64>,
    /// Bytes of the body, padding included.
    pub(crate) body_len: i64,
}

/// Where a message lies in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) offset: i64,
    /// With the 8 bytes of continuation and length, and padding.
    pub(crate) meta_len: i32,
    pub(crate) body_len: i64,
}

/// The schema's message; dictionary ids are numbered from 0, children before parents.
pub(crate) fn schema_message(schema: &Schema) -> Vec<u8> {
    let mut fbb = FlatBufferBuilder::new();
    let mut tracker = DictionaryTracker::new(true);
    let header = IpcSchemaEncoder::new()
        .with_dictionary_tracker(&mut tracker)
        .schema_to_fb_offset(&mut fbb, schema)
        .as_union_value();
    finish_message(fbb, MessageHeader::Schema, header, 0)
}

/// The message of a record batch.
pub(crate) fn batch_message(meta: &BatchMeta) -> Vec<u8> {
    let mut fbb = FlatBufferBuilder::new();
    let header = record_batch(&mut fbb, meta).as_union_value();
    finish_message(fbb, MessageHeader::RecordBatch, header, meta.body_len)
}

/// The message of a whole (never delta) dictionary.
pub(crate) fn dictionary_message(id: i64, meta: &BatchMeta) -> Vec<u8> {
    let mut fbb = FlatBufferBuilder::new();
    let data = record_batch(&mut fbb, meta);
    let mut builder = DictionaryBatchBuilder::new(&mut fbb);
    builder.add_id(id);
    builder.add_data(data);
    builder.add_isDelta(false);
    let header = builder.finish().as_union_value();
    finish_message(fbb, MessageHeader::DictionaryBatch, header, meta.body_len)
}

/// The footer's flatbuffer, without its length and magic.
pub(crate) fn footer(schema: &Schema, dictionaries: &[Placed], batches: &[Placed]) -> Vec<u8> {
    let blocks = |placed: &[Placed]| -> Vec<Block> {
        placed.iter().map(|p| Block::new(p.offset, p.meta_len, p.body_len)).collect()
    };
    let mut fbb = FlatBufferBuilder::new();
    let dictionaries = fbb.create_vector(&blocks(dictionaries));
    let batches = fbb.create_vector(&blocks(batches));
    let mut tracker = DictionaryTracker::new(true);
    let schema = IpcSchemaEncoder::new().with_dictionary_tracker(&mut tracker).schema_to_fb_offset(&mut fbb, schema);
    let mut builder = FooterBuilder::new(&mut fbb);
    builder.add_version(VERSION);
    builder.add_schema(schema);
    builder.add_dictionaries(dictionaries);
    builder.add_recordBatches(batches);
    let root = builder.finish();
    fbb.finish(root, None);
    fbb.finished_data().to_vec()
}

fn record_batch<'a>(fbb: &mut FlatBufferBuilder<'a>, meta: &BatchMeta) -> WIPOffset<IpcRecordBatch<'a>> {
    let nodes: Vec<FieldNode> = meta.nodes.iter().map(|(len, nulls)| FieldNode::new(*len, *nulls)).collect();
    let buffers: Vec<IpcBuffer> = meta.buffers.iter().map(|(offset, len)| IpcBuffer::new(*offset, *len)).collect();
    let nodes = fbb.create_vector(&nodes);
    let buffers = fbb.create_vector(&buffers);
    let variadic = (!meta.variadic.is_empty()).then(|| fbb.create_vector(&meta.variadic));
    let mut builder = RecordBatchBuilder::new(fbb);
    builder.add_length(meta.rows);
    builder.add_nodes(nodes);
    builder.add_buffers(buffers);
    if let Some(variadic) = variadic {
        builder.add_variadicBufferCounts(variadic);
    }
    builder.finish()
}

fn finish_message(
    mut fbb: FlatBufferBuilder<'_>,
    kind: MessageHeader,
    header: WIPOffset<UnionWIPOffset>,
    body_len: i64,
) -> Vec<u8> {
    let mut builder = MessageBuilder::new(&mut fbb);
    builder.add_version(VERSION);
    builder.add_header_type(kind);
    builder.add_bodyLength(body_len);
    builder.add_header(header);
    let root = builder.finish();
    fbb.finish(root, None);
    fbb.finished_data().to_vec()
}
