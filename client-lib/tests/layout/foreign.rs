//! Files written in ways that ours are not: older metadata, smaller alignment, blocks that overlap.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use gpuvol_client::layout::LayoutError;

use super::bytes::{read_with_host_table, write};
use super::device::metadata;
use super::{cases, generate};

fn write_with(case: &cases::Case, batches: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut file, &case.schema, options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    file
}

/// arrow-rs gives run-end arrays a validity buffer in version 4, which its own reader does not expect.
fn has_runs(data_type: &DataType) -> bool {
    data_type.to_string().contains("RunEndEncoded")
}

#[test]
fn older_metadata_and_smaller_alignment() {
    let mut read = 0;
    for case in cases::all() {
        let (_, unified) = read_with_host_table(&write(&case.schema, &case.batches));
        for (alignment, legacy, version) in
            [(8, false, MetadataVersion::V5), (64, false, MetadataVersion::V4), (8, true, MetadataVersion::V4)]
        {
            let runs = case.schema.fields().iter().any(|field| has_runs(field.data_type()));
            if version == MetadataVersion::V4 && runs {
                continue;
            }
            let options = IpcWriteOptions::try_new(alignment, legacy, version).unwrap();
            let file = write_with(&case, &unified, options);
            let (schema, batches) = read_with_host_table(&file);
            assert_eq!((&schema, &batches), (&case.schema, &case.batches), "{} {version:?}", case.name);
            let table = metadata(&file).unwrap();
            (0..table.batches.len()).for_each(|index| assert!(table.columns(index).is_ok(), "{}", case.name));
            read += 1;
        }
    }
    assert!(read > 1000, "{read}");
}

#[test]
fn blocks_that_name_one_message_twice_are_refused() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]));
    let batches = [1000, 1].map(|rows| RecordBatch::try_new(schema.clone(), vec![generate::counting(rows)]).unwrap());
    let mut file = write(&schema, &batches);
    let blocks: Vec<[u8; 24]> = metadata(&file)
        .unwrap()
        .batches
        .iter()
        .map(|batch| {
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&batch.block.offset.to_le_bytes());
            bytes[8..12].copy_from_slice(&batch.block.meta_len.to_le_bytes());
            bytes[16..].copy_from_slice(&batch.block.body_len.to_le_bytes());
            bytes
        })
        .collect();
    let at = file.windows(24).rposition(|window| window == blocks[1]).unwrap();
    file[at..at + 24].copy_from_slice(&blocks[0]);
    let error = metadata(&file).unwrap_err();
    assert!(matches!(&error, LayoutError::Corrupt { .. }) && error.to_string().contains("overlap"), "{error}");
}

#[test]
fn buffers_at_odd_offsets_are_refused() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![generate::counting(1000)]).unwrap();
    let mut file = write(&schema, &[batch]);
    let found = metadata(&file).unwrap().batches.remove(0);
    let entry = |offset: u64, len: u64| [offset.to_le_bytes(), len.to_le_bytes()].concat();
    let values = found.buffers[1];
    let offset = values.offset - found.block.offset - u64::from(found.block.meta_len);
    let at = file.windows(16).rposition(|window| window == entry(offset, values.len)).unwrap();
    file[at..at + 16].copy_from_slice(&entry(offset + 2, values.len));
    let error = metadata(&file).unwrap_err();
    assert!(error.to_string().contains("aligned to 8"), "{error}");
}
