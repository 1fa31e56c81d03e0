//! The device half, with offsets of the file standing in for device addresses.

use std::ops::Range;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use gpuvol_client::layout::{
    DeviceArray, DeviceBatch, DeviceBuffer, DeviceTable, IpcTable, LayoutError, parse, plan_device,
};
use std::sync::Arc;

use super::bytes::{concatenate, write, write_with_arrow};
use super::{cases, generate};

/// Where the pretended device memory begins.
const BASE: u64 = 0x7f00_0000_0000;

pub fn metadata(file: &[u8]) -> Result<IpcTable, LayoutError> {
    let whole = Bytes::copy_from_slice(file);
    parse(file.len() as u64, &mut |range: Range<u64>| {
        Ok(whole.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()))
    })
}

fn on_device(file: &[u8], columns: Option<&[&str]>) -> Result<DeviceTable, LayoutError> {
    DeviceTable::from_ipc(&metadata(file)?, &|offset, len| Ok(DeviceBuffer { address: BASE + offset, len }), columns)
}

fn fetch(file: &[u8], buffer: &DeviceBuffer) -> Vec<u8> {
    let start = usize::try_from(buffer.address - BASE).unwrap();
    file[start..start + usize::try_from(buffer.len).unwrap()].to_vec()
}

/// The array that a device consumer would see.
fn array_data(file: &[u8], array: &DeviceArray) -> ArrayData {
    let len = usize::try_from(array.len).unwrap();
    let mut buffers = array.buffers.iter();
    let bare = matches!(array.data_type, DataType::Null | DataType::Union(_, _) | DataType::RunEndEncoded(_, _));
    let read = |buffer: &Option<DeviceBuffer>| buffer.map_or(Buffer::default(), |b| Buffer::from(fetch(file, &b)));
    let validity = if bare { None } else { buffers.next().unwrap().as_ref() };
    let nulls = validity.map(|bits| {
        let bits = Buffer::from(fetch(file, bits));
        NullBuffer::new(arrow_buffer::BooleanBuffer::new(bits, 0, len))
    });
    assert_eq!(nulls.as_ref().map_or(0, NullBuffer::null_count) as u64, if bare { 0 } else { array.null_count });
    let children = array.children.iter().chain(array.dictionary.as_deref()).map(|child| array_data(file, child));
    let data = ArrayData::builder(array.data_type.clone())
        .len(len)
        .nulls(nulls)
        .buffers(buffers.map(read).collect())
        .child_data(children.collect());
    data.align_buffers(true).build().unwrap()
}

fn to_host(file: &[u8], schema: &SchemaRef, batch: &DeviceBatch) -> RecordBatch {
    let columns: Vec<ArrayRef> = batch.columns.iter().map(|column| make_array(array_data(file, column))).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(usize::try_from(batch.rows).unwrap()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap()
}

#[test]
fn a_device_table_is_the_table() {
    for case in cases::all() {
        let file = write(&case.schema, &case.batches);
        let table = on_device(&file, None).unwrap();
        assert_eq!(table.schema, case.schema, "{}", case.name);
        assert_eq!(table.batches.len(), case.batches.len(), "{}", case.name);
        assert_eq!(table.rows, case.batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
        for (found, expected) in table.batches.iter().zip(&case.batches) {
            assert_eq!(&to_host(&file, &case.schema, found), expected, "{}", case.name);
        }
    }
}

#[test]
fn planning_a_device_table_gives_the_same_file() {
    for case in cases::all() {
        let file = write(&case.schema, &case.batches);
        let plan = plan_device(&on_device(&file, None).unwrap()).unwrap();
        let again = concatenate(&plan, &|buffer: &DeviceBuffer| fetch(&file, buffer));
        // Without batches there is nothing that carries a dictionary from one file to the next.
        assert!(again == file, "{}: the file changed", case.name);
    }
}

#[test]
fn files_of_arrow_itself_are_read_in_place() {
    for case in cases::all().into_iter().filter(|case| case.batches.len() == 1) {
        let file = write_with_arrow(&case.schema, &case.batches);
        let table = on_device(&file, None).unwrap();
        assert_eq!(to_host(&file, &case.schema, &table.batches[0]), case.batches[0], "{}", case.name);
    }
}

#[test]
fn projection_takes_only_the_named_columns() {
    let case = cases::all().into_iter().find(|case| case.name == "wide").unwrap();
    let file = write(&case.schema, &case.batches);
    let table = on_device(&file, Some(&["c50", "c1"])).unwrap();
    let indices = [50, 1];
    assert_eq!(*table.schema, case.schema.project(&indices).unwrap());
    assert_eq!(to_host(&file, &table.schema, &table.batches[2]), case.batches[2].project(&indices).unwrap());
    assert!(matches!(on_device(&file, Some(&["zz"])), Err(LayoutError::NoSuchColumn { .. })));
}

fn int_column(len: u64, null_count: u64, buffers: Vec<Option<DeviceBuffer>>) -> DeviceArray {
    DeviceArray { data_type: DataType::Int32, len, null_count, buffers, children: vec![], dictionary: None }
}

fn int_table(column: DeviceArray) -> DeviceTable {
    let schema = Arc::new(Schema::new(vec![Field::new("speed", DataType::Int32, true)]));
    let rows = column.len;
    DeviceTable { schema, rows, batches: vec![DeviceBatch { rows, columns: vec![column] }] }
}

#[test]
fn longer_allocations_are_cut_to_the_array() {
    let buffer = |address| Some(DeviceBuffer { address, len: 4096 });
    let plan = plan_device(&int_table(int_column(10, 1, vec![buffer(BASE), buffer(BASE + 8192)]))).unwrap();
    assert_eq!(plan.body_bytes(), 2 + 40);
    let plan = plan_device(&int_table(int_column(10, 0, vec![buffer(BASE), buffer(BASE + 8192)]))).unwrap();
    assert_eq!(plan.body_bytes(), 40, "no bitmap where there are no nulls");
}

#[test]
fn malformed_device_arrays_are_named() {
    let short = Some(DeviceBuffer { address: BASE, len: 39 });
    let full = Some(DeviceBuffer { address: BASE, len: 40 });
    for (column, expected) in [
        (int_column(10, 0, vec![None, short]), "39 bytes and 10 elements need 40"),
        (int_column(10, 0, vec![None, None]), "0 bytes"),
        (int_column(10, 0, vec![full]), "1 buffers where the type has 2"),
        (int_column(10, 11, vec![full, full]), "null count 11"),
        (int_column(10, 1, vec![None, full]), "validity"),
        (int_column(u64::MAX, 0, vec![None, full]), "out of range"),
    ] {
        let error = plan_device(&int_table(column)).unwrap_err().to_string();
        assert!(error.contains("'speed'") && error.contains(expected), "{error}");
    }
}

#[test]
fn batches_with_other_dictionaries_are_refused() {
    let case = cases::all().into_iter().find(|case| case.name.ends_with("several") && is_dictionary(case)).unwrap();
    let file = write(&case.schema, &case.batches);
    let mut table = on_device(&file, None).unwrap();
    let values = table.batches[1].columns[0].dictionary.as_mut().unwrap();
    values.buffers[1].as_mut().unwrap().address += 64;
    let error = plan_device(&table).unwrap_err();
    assert!(matches!(&error, LayoutError::DictionaryDiffers { batch: 1, column } if column == "c"), "{error}");
}

fn is_dictionary(case: &cases::Case) -> bool {
    matches!(case.schema.field(0).data_type(), DataType::Dictionary(_, values) if **values == DataType::Utf8)
}

#[test]
fn compressed_files_are_not_read_in_place() {
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![generate::counting(1000)]).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(Some(arrow_ipc::CompressionType::ZSTD)).unwrap();
    let mut file = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut file, &schema, options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let error = on_device(&file, None).unwrap_err();
    assert!(error.to_string().contains("ZSTD"), "{error}");
}

#[test]
fn slices_are_folded_into_addresses() {
    let mut folded = 0;
    for case in cases::all().into_iter().filter(|case| case.name.ends_with("no-nulls")) {
        let file = write(&case.schema, &case.batches);
        let column = on_device(&file, None).unwrap().batches[0].columns[0].clone();
        let expected = case.batches[0].column(0);
        for (offset, len) in [(8, 20), (16, 1), (0, 5), (24, 0), (3, 9)] {
            let slice = column.slice(offset, len, None, "c");
            let expected = expected.slice(usize::try_from(offset).unwrap(), usize::try_from(len).unwrap());
            match slice {
                Ok(slice) => {
                    let found = make_array(array_data(&file, &slice));
                    assert_eq!(&found, &expected, "{} at {offset}", case.name);
                    // What was sliced can be written.
                    let table = DeviceTable {
                        schema: case.schema.clone(),
                        rows: len,
                        batches: vec![DeviceBatch { rows: len, columns: vec![slice] }],
                    };
                    plan_device(&table).unwrap();
                    folded += 1;
                }
                Err(LayoutError::UnalignedSlice { .. }) => {}
                // A union's or dictionary's child may have nulls of its own.
                Err(error) => panic!("{} at {offset}: {error}", case.name),
            }
        }
    }
    assert!(folded > 250, "{folded}");
}

#[test]
fn slices_that_cannot_be_folded_say_so() {
    let buffer = Some(DeviceBuffer { address: BASE, len: 400 });
    let column = int_column(100, 5, vec![buffer, buffer]);
    let error = column.slice(8, 16, None, "orders.n").unwrap_err();
    assert!(matches!(&error, LayoutError::UnknownNullCount { .. }), "{error}");
    let error = column.slice(3, 16, Some(1), "orders.n").unwrap_err().to_string();
    assert!(error.contains("orders.n") && error.contains("materialise"), "{error}");
    let slice = column.slice(16, 16, Some(1), "orders.n").unwrap();
    assert_eq!(slice.buffers[0].unwrap(), DeviceBuffer { address: BASE + 2, len: 398 });
    assert_eq!(slice.buffers[1].unwrap(), DeviceBuffer { address: BASE + 64, len: 336 });
    assert_eq!(column.slice(3, 16, Some(0), "orders.n").unwrap().buffers[0], None);
    assert!(matches!(column.slice(90, 11, None, "n"), Err(LayoutError::MalformedArray { .. })));
    assert!(matches!(column.slice(u64::MAX, 2, None, "n"), Err(LayoutError::MalformedArray { .. })));
}
