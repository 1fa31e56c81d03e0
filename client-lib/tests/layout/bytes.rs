//! Plans to bytes, and bytes to batches by every reader.

use std::io::Cursor;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;
use gpuvol_client::layout::{ALIGNMENT, FilePlan, HostTable, LayoutError, Piece, plan_host};

/// Lays the pieces end to end, checking what a plan promises.
pub fn concatenate<B>(plan: &FilePlan<B>, read: &dyn Fn(&B) -> Vec<u8>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut meta_before = false;
    for piece in &plan.pieces {
        assert_eq!(piece.offset(), file.len() as u64, "pieces leave no gap");
        match piece {
            Piece::Meta { bytes, .. } => {
                assert!(!meta_before, "two metadata pieces in a row");
                assert!(!bytes.is_empty());
                file.extend_from_slice(bytes);
                meta_before = true;
            }
            Piece::Body { offset, source, len } => {
                assert_eq!(offset % ALIGNMENT, 0, "bodies are aligned");
                let bytes = read(source);
                assert_eq!(bytes.len() as u64, *len);
                assert_ne!(*len, 0);
                file.extend_from_slice(&bytes);
                meta_before = false;
            }
        }
    }
    assert_eq!(plan.len, file.len() as u64);
    assert_eq!(plan.len, plan.meta_bytes() + plan.body_bytes());
    file
}

pub fn try_write(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, LayoutError> {
    Ok(concatenate(&plan_host(schema, batches)?, &|buffer: &Buffer| buffer.to_vec()))
}

pub fn write(schema: &SchemaRef, batches: &[RecordBatch]) -> Vec<u8> {
    try_write(schema, batches).unwrap()
}

pub fn read_with_arrow(file: &[u8]) -> (SchemaRef, Vec<RecordBatch>) {
    let reader = FileReader::try_new(Cursor::new(file), None).unwrap();
    (reader.schema(), reader.map(Result::unwrap).collect())
}

pub fn read_with_host_table(file: &[u8]) -> (SchemaRef, Vec<RecordBatch>) {
    let table = open(file).unwrap();
    (table.schema(), table.batches().map(Result::unwrap).collect())
}

/// Opens a copy that is aligned as a mapping is.
pub fn open(file: &[u8]) -> Result<HostTable, LayoutError> {
    HostTable::open(bytes::Bytes::from_owner(Buffer::from(file)))
}

pub fn write_with_arrow(schema: &SchemaRef, batches: &[RecordBatch]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = FileWriter::try_new(&mut file, schema).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    file
}
