//! Metadata of an Arrow IPC file, read from bytes that nobody vouches for.
//!
//! Every offset, length and count is checked against the file's size before it is used; flatbuffers are verified, with
//! limits that keep what is built from them in proportion to what was read. Bodies are not read.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{
    Block, CompressionType, Endianness, Field as IpcField, Footer, Message, MetadataVersion,
    RecordBatch as IpcRecordBatch, Type, root_as_footer_with_opts, root_as_message_with_opts,
};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use flatbuffers::VerifierOptions;

use super::array::Extent;
use super::error::LayoutError;
use super::ipc_table::{Compression, IpcBatch, IpcBlock, IpcDictionary, IpcNode, IpcTable};
use super::message::{CONTINUATION, MAGIC};
use super::shape::Shape;

/// Footer length and magic at the end of the file, in bytes.
const TRAILER: u64 = 10;
/// Magic and padding at the start, in bytes.
const LEADER: u64 = 8;
/// Largest footer or message metadata that is read, in bytes: some millions of columns.
const MAX_METADATA: u64 = 256 << 20;
/// arrow-rs panics on more children of one union than a type id can name.
const MAX_UNION_FIELDS: usize = 128;

/// Reads the metadata of a file of `len` bytes: trailer, footer, and the metadata of every message it names.
///
/// `read_meta` returns exactly the bytes of the range that it is given; ranges lie inside `0..len`.
///
/// # Errors
/// [`LayoutError::NotRecognised`] when the magic is missing, [`LayoutError::Corrupt`] for anything that breaks the
/// format, [`LayoutError::UnsupportedFeature`] for big-endian files and those of before Arrow 0.8,
/// and what `read_meta` returns.
pub fn parse(
    len: u64,
    read_meta: &mut dyn FnMut(Range<u64>) -> Result<Bytes, LayoutError>,
) -> Result<IpcTable, LayoutError> {
    let mut read = |range: Range<u64>| -> Result<Bytes, LayoutError> {
        let bytes = read_meta(range.clone())?;
        if bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        let detail = format!("reading {}..{} gave {} bytes", range.start, range.end, bytes.len());
        Err(LayoutError::corrupt("object", detail))
    };
    let footer_range = footer_range(len, &mut read)?;
    let body_end = footer_range.start;
    let footer_bytes = read(footer_range)?;
    let footer = root_as_footer_with_opts(&limits(footer_bytes.len()), &footer_bytes)
        .map_err(|error| LayoutError::corrupt("footer", error.to_string()))?;
    let schema = schema(&footer)?;
    // pyarrow's footers say version 5 even where its messages are of version 4: the messages count.
    let mut version = None;

    let mut room = body_end;
    let mut dictionaries = Vec::new();
    let mut seen = HashSet::new();
    for (index, block) in footer.dictionaries().iter().flatten().enumerate() {
        let what = format!("dictionary batch {index}");
        let block = checked_block(block, body_end, &mut room, &what)?;
        let bytes = read(block.offset..block.offset + u64::from(block.meta_len))?;
        let message = message(&bytes, &block, &mut version, &what)?;
        let Some(dictionary) = message.header_as_dictionary_batch() else {
            return Err(LayoutError::corrupt(what, "the message is not a dictionary batch"));
        };
        let (id, is_delta) = (dictionary.id(), dictionary.isDelta());
        if !is_delta && !seen.insert(id) {
            return Err(LayoutError::corrupt(what, format!("dictionary {id} is given twice, which a file must not")));
        }
        let data = dictionary.data().ok_or_else(|| LayoutError::corrupt(&what, "no values"))?;
        dictionaries.push(IpcDictionary { id, is_delta, values: batch(&data, block, &what)? });
    }
    let mut batches = Vec::new();
    for (index, block) in footer.recordBatches().iter().flatten().enumerate() {
        let what = format!("record batch {index}");
        let block = checked_block(block, body_end, &mut room, &what)?;
        let bytes = read(block.offset..block.offset + u64::from(block.meta_len))?;
        let message = message(&bytes, &block, &mut version, &what)?;
        let Some(data) = message.header_as_record_batch() else {
            return Err(LayoutError::corrupt(what, "the message is not a record batch"));
        };
        batches.push(batch(&data, block, &what)?);
    }
    Ok(IpcTable { schema, dictionaries, batches, union_validity: version == Some(MetadataVersion::V4) })
}

fn footer_range(
    len: u64,
    read: &mut dyn FnMut(Range<u64>) -> Result<Bytes, LayoutError>,
) -> Result<Range<u64>, LayoutError> {
    let not_ipc = |detail: String| LayoutError::NotRecognised { expected: "an Arrow IPC file", detail };
    if len < LEADER + TRAILER {
        return Err(not_ipc(format!("{len} bytes are too few")));
    }
    let first = read(0..MAGIC.len() as u64)?;
    let trailer = read(len - TRAILER..len)?;
    let Some((footer_len, magic)) = trailer.split_first_chunk::<4>() else {
        return Err(not_ipc("no trailer".to_owned()));
    };
    if first != MAGIC.as_slice() || magic != MAGIC {
        return Err(not_ipc("the magic ARROW1 is not at both ends".to_owned()));
    }
    let footer_len = i32::from_le_bytes(*footer_len);
    let available = len - LEADER - TRAILER;
    match u64::try_from(footer_len) {
        Ok(size) if size > 0 && size <= available.min(MAX_METADATA) => Ok(len - TRAILER - size..len - TRAILER),
        _ => Err(LayoutError::corrupt("footer", format!("length {footer_len} in a file of {len} bytes"))),
    }
}

/// A table takes at least 4 bytes of its own, and no byte is looked at more than a few times, unless parts are shared
/// to make a small buffer expand into a large tree.
fn limits(len: usize) -> VerifierOptions {
    VerifierOptions {
        max_depth: 64,
        max_tables: (len / 4 + 1).min(1_000_000),
        max_apparent_size: len.saturating_mul(16).saturating_add(1024),
        ignore_missing_null_terminator: false,
    }
}

fn schema(footer: &Footer<'_>) -> Result<SchemaRef, LayoutError> {
    supported(footer.version(), "file")?;
    let schema = footer.schema().ok_or_else(|| LayoutError::corrupt("footer", "no schema"))?;
    if schema.endianness() != Endianness::Little {
        return Err(LayoutError::UnsupportedFeature {
            what: "file".to_owned(),
            feature: "big-endian buffers".to_owned(),
            advice: "rewrite it on a little-endian machine",
        });
    }
    for field in schema.fields().iter().flatten() {
        check_field(&field)?;
    }
    let schema = try_fb_to_schema(schema).map_err(|error| LayoutError::arrow("the file's schema", error))?;
    for field in schema.fields() {
        // Errors name the column before any batch does.
        Shape::of(field.data_type(), field.name())?;
    }
    Ok(Arc::new(schema))
}

fn supported(version: MetadataVersion, what: &str) -> Result<(), LayoutError> {
    if matches!(version, MetadataVersion::V4 | MetadataVersion::V5) {
        return Ok(());
    }
    Err(LayoutError::UnsupportedFeature {
        what: what.to_owned(),
        feature: format!("metadata version {version:?}"),
        advice: "rewrite it with a current Arrow",
    })
}

/// What arrow-rs takes for granted about a field. Depth is bounded by the verifier.
fn check_field(field: &IpcField<'_>) -> Result<(), LayoutError> {
    let children = field.children();
    if field.type_type() == Type::Union && children.is_some_and(|children| children.len() > MAX_UNION_FIELDS) {
        let detail = format!("a union of more than {MAX_UNION_FIELDS} types");
        return Err(LayoutError::corrupt(format!("field '{}'", field.name().unwrap_or_default()), detail));
    }
    for child in children.iter().flatten() {
        check_field(&child)?;
    }
    Ok(())
}

/// `room` is what is left for blocks that lie side by side, as those of every writer do: a footer whose blocks all
/// name one large message would cost its size again for each.
fn checked_block(block: &Block, body_end: u64, room: &mut u64, what: &str) -> Result<IpcBlock, LayoutError> {
    let (offset, meta_len, body_len) = (block.offset(), block.metaDataLength(), block.bodyLength());
    let checked = || {
        let (offset, meta_len, body_len) =
            (u64::try_from(offset).ok()?, u32::try_from(meta_len).ok()?, u64::try_from(body_len).ok()?);
        let end = offset.checked_add(u64::from(meta_len))?.checked_add(body_len)?;
        let sound = offset >= LEADER
            && offset.is_multiple_of(8)
            && meta_len > 8
            && meta_len.is_multiple_of(8)
            && u64::from(meta_len) <= MAX_METADATA
            && end <= body_end;
        sound.then_some(IpcBlock { offset, meta_len, body_len })
    };
    let Some(found) = checked() else {
        let detail = format!("{meta_len} + {body_len} bytes at {offset} do not lie before the footer at {body_end}");
        return Err(LayoutError::corrupt(what, format!("{detail}, in multiples of 8")));
    };
    match room.checked_sub(u64::from(found.meta_len) + found.body_len) {
        Some(left) => *room = left,
        None => return Err(LayoutError::corrupt(what, format!("messages overlap in {body_end} bytes"))),
    }
    Ok(found)
}

fn message<'a>(
    bytes: &'a [u8],
    block: &IpcBlock,
    version: &mut Option<MetadataVersion>,
    what: &str,
) -> Result<Message<'a>, LayoutError> {
    // Files of before Arrow 0.15 have no continuation marker.
    let prefixed = bytes.strip_prefix(CONTINUATION.as_slice()).unwrap_or(bytes);
    let flatbuffer = prefixed.split_first_chunk::<4>().and_then(|(size, rest)| {
        let size = usize::try_from(i32::from_le_bytes(*size)).ok()?;
        rest.get(..size)
    });
    let Some(flatbuffer) = flatbuffer else {
        return Err(LayoutError::corrupt(what, format!("its length does not fit in {} bytes", block.meta_len)));
    };
    let message = root_as_message_with_opts(&limits(flatbuffer.len()), flatbuffer)
        .map_err(|error| LayoutError::corrupt(what, error.to_string()))?;
    supported(message.version(), what)?;
    let expected = *version.get_or_insert(message.version());
    if message.version() != expected {
        let detail = format!("version {:?} after messages of {expected:?}", message.version());
        return Err(LayoutError::corrupt(what, detail));
    }
    if u64::try_from(message.bodyLength()) != Ok(block.body_len) {
        let detail = format!("a body of {} bytes where the footer says {}", message.bodyLength(), block.body_len);
        return Err(LayoutError::corrupt(what, detail));
    }
    Ok(message)
}

fn batch(data: &IpcRecordBatch<'_>, block: IpcBlock, what: &str) -> Result<IpcBatch, LayoutError> {
    let corrupt = |detail: String| LayoutError::corrupt(what, detail);
    let rows = u64::try_from(data.length()).map_err(|_| corrupt(format!("{} rows", data.length())))?;
    let (Some(nodes), Some(buffers)) = (data.nodes(), data.buffers()) else {
        return Err(corrupt("no nodes or no buffers".to_owned()));
    };
    let node = |node: &arrow_ipc::FieldNode| match (u64::try_from(node.length()), u64::try_from(node.null_count())) {
        (Ok(len), Ok(null_count)) if null_count <= len => Ok(IpcNode { len, null_count }),
        _ => Err(corrupt(format!("{} elements with {} nulls", node.length(), node.null_count()))),
    };
    let body = block.offset + u64::from(block.meta_len);
    let extent = |buffer: &arrow_ipc::Buffer| {
        let (offset, len) = (buffer.offset(), buffer.length());
        let checked = || {
            let (offset, len) = (u64::try_from(offset).ok()?, u64::try_from(len).ok()?);
            let inside = offset.checked_add(len)? <= block.body_len;
            (inside && (len == 0 || offset.is_multiple_of(8))).then_some(Extent { offset: body + offset, len })
        };
        checked().ok_or_else(|| {
            corrupt(format!("a buffer of {len} bytes at {offset}, in a body of {} aligned to 8", block.body_len))
        })
    };
    let count = |count: i64| u64::try_from(count).map_err(|_| corrupt(format!("{count} view buffers")));
    let extents: Vec<Extent> = buffers.iter().map(extent).collect::<Result<_, _>>()?;
    let compression = data.compression().map(|compression| codec(compression.codec(), what)).transpose()?;
    let total = extents.iter().fold(0_u64, |sum, extent| sum.saturating_add(extent.len));
    if compression.is_some() && total > block.body_len {
        // Each would be decompressed on its own.
        return Err(corrupt(format!("compressed buffers of {total} bytes in a body of {}", block.body_len)));
    }
    Ok(IpcBatch {
        rows,
        nodes: nodes.iter().map(node).collect::<Result<_, _>>()?,
        buffers: extents,
        variadic_counts: data.variadicBufferCounts().iter().flatten().map(count).collect::<Result<_, _>>()?,
        compression,
        block,
    })
}

fn codec(codec: CompressionType, what: &str) -> Result<Compression, LayoutError> {
    match codec {
        CompressionType::LZ4_FRAME => Ok(Compression::Lz4),
        CompressionType::ZSTD => Ok(Compression::Zstd),
        other => Err(LayoutError::UnsupportedFeature {
            what: what.to_owned(),
            feature: format!("compression {other:?}"),
            advice: "rewrite it uncompressed, or with LZ4 or ZSTD",
        }),
    }
}
