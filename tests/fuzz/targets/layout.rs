//! Bytes that another client may have put, read as a table and as a tensor: typed errors only.
#![no_main]

use bytes::Bytes;
use gpuvol_client::layout::{DeviceBuffer, DeviceTable, HostTable, LayoutError, parse, parse_tensor};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let len = bytes.len() as u64;
    let mut read = |range: std::ops::Range<u64>| {
        let inside = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let slice = inside.and_then(|(start, end)| bytes.get(start..end).map(|_| bytes.slice(start..end)));
        slice.ok_or(LayoutError::Read { start: range.start, end: range.end, source: "outside".into() })
    };
    if let Ok(table) = parse(len, &mut read) {
        let resolve = |offset: u64, size: u64| {
            assert!(offset.checked_add(size).is_some_and(|end| end <= len), "a range outside the object");
            Ok(DeviceBuffer { address: 0x1000 + offset, len: size })
        };
        let _ = DeviceTable::from_ipc(&table, &resolve, None);
    }
    if let Ok(table) = HostTable::open(bytes.clone()) {
        for batch in table.batches().take(16) {
            let _ = batch;
        }
    }
    let _ = parse_tensor(data, len, "");
});
