//! Every case through the plan and back through arrow-rs and `HostTable`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray, UInt8Array};
use arrow_data::ArrayData;
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use gpuvol_client::layout::{Compression, LayoutError, Piece, is_ipc_file, plan_host};

use super::bytes::{open, read_with_arrow, read_with_host_table, try_write, write};
use super::{cases, generate};

fn assert_same(case: &cases::Case, reader: &str, schema: &SchemaRef, batches: &[RecordBatch]) {
    assert_eq!(*schema, case.schema, "{} schema by {reader}", case.name);
    assert_eq!(batches.len(), case.batches.len(), "{} batches by {reader}", case.name);
    for (index, (found, expected)) in batches.iter().zip(&case.batches).enumerate() {
        assert_eq!(found, expected, "{} batch {index} by {reader}", case.name);
        for (found, expected) in found.columns().iter().zip(expected.columns()) {
            assert_eq!(found.null_count(), expected.null_count(), "{} batch {index} nulls by {reader}", case.name);
            found.to_data().validate_full().unwrap();
        }
    }
}

#[test]
fn arrow_reads_what_the_plan_wrote() {
    for case in cases::all() {
        let (schema, batches) = read_with_arrow(&write(&case.schema, &case.batches));
        assert_same(&case, "arrow-ipc", &schema, &batches);
    }
}

#[test]
fn the_host_table_reads_what_the_plan_wrote() {
    for case in cases::all() {
        let file = write(&case.schema, &case.batches);
        assert!(is_ipc_file(&file[..8], &file[file.len() - 8..]));
        let (schema, batches) = read_with_host_table(&file);
        assert_same(&case, "HostTable", &schema, &batches);
        let table = open(&file).unwrap();
        assert_eq!(table.num_rows(), case.batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
    }
}

#[test]
fn the_file_without_its_magic_is_a_stream() {
    for case in cases::all() {
        let file = write(&case.schema, &case.batches);
        let stream = StreamReader::try_new(&file[8..], None).unwrap();
        let (schema, batches) = (stream.schema(), stream.map(Result::unwrap).collect::<Vec<_>>());
        assert_same(&case, "StreamReader", &schema, &batches);
    }
}

#[test]
fn writing_what_was_read_gives_the_same_bytes() {
    for case in cases::all() {
        let file = write(&case.schema, &case.batches);
        let (schema, batches) = read_with_host_table(&file);
        assert!(file == write(&schema, &batches), "{}: the file changed", case.name);
    }
}

fn pointers(data: &ArrayData, found: &mut Vec<(usize, usize)>) {
    let nulls = data.nulls().map(arrow_buffer::NullBuffer::buffer);
    for buffer in data.buffers().iter().chain(nulls).filter(|buffer| !buffer.is_empty()) {
        found.push((buffer.as_ptr() as usize, buffer.len()));
    }
    for child in data.child_data() {
        pointers(child, found);
    }
}

#[test]
fn the_host_table_copies_nothing() {
    for case in cases::all() {
        let file = arrow_buffer::Buffer::from(write(&case.schema, &case.batches).as_slice());
        let (start, end) = (file.as_ptr() as usize, file.as_ptr() as usize + file.len());
        let table = gpuvol_client::layout::HostTable::open(bytes::Bytes::from_owner(file)).unwrap();
        for batch in table.batches() {
            let mut found = Vec::new();
            for column in batch.unwrap().columns() {
                pointers(&column.to_data(), &mut found);
            }
            for (pointer, len) in found {
                assert!(pointer >= start && pointer + len <= end, "{}: a buffer of {len} bytes was copied", case.name);
            }
        }
    }
}

#[test]
fn the_plan_shares_the_memory_of_aligned_slices() {
    let array = generate::counting(1000).slice(8, 900);
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("c", DataType::Int32, false)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![array.clone()]).unwrap();
    let plan = plan_host(&schema, &[batch]).unwrap();
    let bodies: Vec<_> = plan
        .pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Body { source, .. } => Some(source.as_ptr() as usize),
            Piece::Meta { .. } => None,
        })
        .collect();
    assert_eq!(bodies, [array.to_data().buffers()[0].as_ptr() as usize + array.to_data().offset() * 4]);
}

#[test]
fn an_object_at_an_odd_address_is_still_read() {
    let case = cases::all().into_iter().find(|case| case.name == "wide").unwrap();
    let file = write(&case.schema, &case.batches);
    let mut shifted = vec![0];
    shifted.extend_from_slice(&file);
    let table = gpuvol_client::layout::HostTable::open(bytes::Bytes::from(shifted).slice(1..)).unwrap();
    let batches: Vec<_> = table.batches().map(Result::unwrap).collect();
    assert_same(&case, "HostTable at an odd address", &table.schema(), &batches);
}

#[test]
fn projection_keeps_order_and_names_what_is_missing() {
    let case = cases::all().into_iter().find(|case| case.name == "wide").unwrap();
    let table = open(&write(&case.schema, &case.batches)).unwrap();
    let projected = table.project(&["c40", "c3", "c60"]).unwrap();
    let indices = [40, 3, 60];
    assert_eq!(projected.schema(), Arc::new(case.schema.project(&indices).unwrap()));
    for (found, whole) in projected.batches().zip(&case.batches) {
        assert_eq!(found.unwrap(), whole.project(&indices).unwrap());
    }
    let error = table.project(&["nope"]).unwrap_err();
    assert!(error.to_string().contains("'nope'") && error.to_string().contains("c0, c1"), "{error}");
    assert!(matches!(table.batch(3), Err(LayoutError::NoSuchBatch { index: 3, count: 3 })));
}

#[test]
fn dictionaries_are_unified_without_repeats() {
    let one: DictionaryArray<Int8Type> = ["b", "a", "b"].into_iter().collect();
    let two: DictionaryArray<Int8Type> = [Some("c"), None, Some("a")].into_iter().collect();
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("c", one.data_type().clone(), true)]));
    let batches: Vec<RecordBatch> = [one, two]
        .into_iter()
        .map(|array| RecordBatch::try_new(schema.clone(), vec![Arc::new(array) as ArrayRef]).unwrap())
        .collect();
    let (_, read) = read_with_host_table(&write(&schema, &batches));
    assert_eq!(read, batches);
    for batch in &read {
        let values = batch.column(0).as_dictionary::<Int8Type>().values().clone();
        assert_eq!(values.as_string::<i32>(), &StringArray::from(vec!["b", "a", "c"]));
    }
}

#[test]
fn a_dictionary_too_large_for_its_keys_is_named() {
    let batch_of = |from: usize| {
        let values = StringArray::from_iter_values((from..from + 100).map(|n| n.to_string()));
        let keys = Int8Array::from_iter_values(0..100);
        Arc::new(DictionaryArray::new(keys, Arc::new(values))) as ArrayRef
    };
    let columns = [batch_of(0), batch_of(100)];
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("sku", columns[0].data_type().clone(), true)]));
    let batches = columns.map(|column| RecordBatch::try_new(schema.clone(), vec![column]).unwrap());
    let error = try_write(&schema, &batches).unwrap_err();
    assert!(matches!(&error, LayoutError::DictionaryOverflow { values: 200, .. }), "{error}");
    assert!(error.to_string().contains("'sku'"), "{error}");
}

#[test]
fn batches_of_another_schema_are_refused() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false)]));
    let other: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::UInt8, false)]));
    let batch = RecordBatch::try_new(other, vec![Arc::new(UInt8Array::from(vec![1]))]).unwrap();
    let error = plan_host(&schema, &[batch]).unwrap_err();
    assert!(matches!(error, LayoutError::SchemaMismatch { batch: 0, .. }), "{error}");
}

#[test]
fn compressed_files_of_others_are_read() {
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        for case in cases::all() {
            let (_, unified) = read_with_host_table(&write(&case.schema, &case.batches));
            let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
            let mut file = Vec::new();
            let mut writer = FileWriter::try_new_with_options(&mut file, &case.schema, options).unwrap();
            for batch in &unified {
                writer.write(batch).unwrap();
            }
            writer.finish().unwrap();
            drop(writer);
            let (schema, batches) = read_with_host_table(&file);
            assert_same(&case, "HostTable, compressed", &schema, &batches);
            let expected = if codec == CompressionType::ZSTD { Compression::Zstd } else { Compression::Lz4 };
            let found = open(&file).unwrap().metadata().compression();
            assert!(found == Some(expected) || unified.is_empty(), "{}: {found:?}", case.name);
        }
    }
}
