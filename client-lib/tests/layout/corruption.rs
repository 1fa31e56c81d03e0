//! Damaged files: the readers refuse them or give valid arrays, and never panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::Array;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use gpuvol_client::layout::{DeviceBuffer, DeviceTable};

use super::bytes::{open, read_with_host_table, write};
use super::cases;
use super::device::metadata;
use super::generate::Random;

/// Peak address space of this process in KiB: reserved memory counts here even when nobody touches it.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn read_everything(file: &[u8]) -> bool {
    let mut sound = true;
    if let Ok(table) = metadata(file) {
        let resolve = |offset: u64, len: u64| {
            assert!(offset.checked_add(len).unwrap() <= file.len() as u64, "a range outside the object");
            Ok(DeviceBuffer { address: 1 << 40 | offset, len })
        };
        sound &= DeviceTable::from_ipc(&table, &resolve, None).is_ok();
    }
    match open(file) {
        Err(_) => sound = false,
        Ok(table) => {
            for batch in table.batches() {
                match batch {
                    Err(_) => sound = false,
                    Ok(batch) => batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap()),
                }
            }
        }
    }
    sound
}

fn check(file: &[u8], what: &str) -> bool {
    match catch_unwind(AssertUnwindSafe(|| read_everything(file))) {
        Ok(sound) => sound,
        Err(_) => {
            let kept = std::env::temp_dir().join("gpuvol-layout-panic.arrow");
            std::fs::write(&kept, file).unwrap();
            panic!("a reader panicked on {what}; the file is kept as {}", kept.display());
        }
    }
}

/// Small files of every type, plain and compressed.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for case in cases::all().into_iter().filter(|case| case.name.ends_with("several") || case.name == "ordered") {
        let file = write(&case.schema, &case.batches);
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let (_, batches) = read_with_host_table(&file);
            let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
            let mut compressed = Vec::new();
            let mut writer = FileWriter::try_new_with_options(&mut compressed, &case.schema, options).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
            drop(writer);
            files.push((format!("{} {codec:?}", case.name), compressed));
        }
        files.push((case.name, file));
    }
    files
}

#[test]
fn flipped_bytes() {
    let random = &mut Random::new(99);
    let before = peak_kib();
    let (mut damaged, mut refused) = (0, 0);
    for (name, file) in files() {
        for round in 0..60 {
            let mut file = file.clone();
            // Metadata is where lengths and offsets are: one half of the flips falls into the file's last part.
            let from = if round % 2 == 0 { 0 } else { file.len() - file.len().min(700) };
            for _ in 0..1 + random.below(3) {
                let at = from + random.below(file.len() - from);
                file[at] = match random.below(3) {
                    0 => 0xff,
                    1 => file[at] ^ (1 << random.below(8)),
                    _ => u8::try_from(random.below(256)).unwrap(),
                };
            }
            damaged += 1;
            refused += usize::from(!check(&file, &format!("{name}, round {round}")));
        }
    }
    assert!(damaged > 5_000 && refused > damaged / 4, "{refused} of {damaged} refused");
    let grown = peak_kib() - before;
    // The files have a few KiB. Zstandard may honestly turn one into 32 768 times as much.
    assert!(grown < 4 << 20, "address space grew by {grown} KiB");
}

/// Every aligned 4-byte word of the metadata replaced by the numbers that overflow things.
#[test]
fn extreme_numbers() {
    for (name, file) in files().into_iter().step_by(5) {
        for at in (0..file.len() - 4).step_by(4) {
            for number in [-1_i32, i32::MIN, i32::MAX, 1 << 20] {
                let mut file = file.clone();
                file[at..at + 4].copy_from_slice(&number.to_le_bytes());
                check(&file, &format!("{name}, {number} at {at}"));
            }
        }
    }
}

#[test]
fn truncated_files() {
    for (name, file) in files() {
        for len in (0..file.len()).step_by(61) {
            assert!(!check(&file[..len], &format!("{name} cut to {len}")), "{name} cut to {len} was read");
            assert!(!check(&file[len + 1..], &format!("{name} from {len}")), "{name} from {len} was read");
        }
    }
}

#[test]
fn foreign_bytes_are_not_recognised() {
    for bytes in [&b""[..], b"ARROW1", b"ARROW1\0\0ARROW1", b"PAR1 and more than eighteen bytes PAR1"] {
        assert!(metadata(bytes).is_err());
        assert!(open(bytes).is_err());
    }
}

#[test]
fn sizes_that_no_codec_reaches_are_not_allocated() {
    let mut lied = 0;
    for (name, file) in files().into_iter().filter(|(name, _)| name.contains("LZ4") || name.contains("ZSTD")) {
        let table = metadata(&file).unwrap();
        for extent in table.batches.iter().flat_map(|batch| &batch.buffers).filter(|extent| extent.len > 0) {
            for claim in [i64::MAX, 1 << 44, -2, 0x7fff_ffff_ffff] {
                let mut file = file.clone();
                let at = usize::try_from(extent.offset).unwrap();
                file[at..at + 8].copy_from_slice(&claim.to_le_bytes());
                assert!(!check(&file, &format!("{name}, {claim} at {at}")), "{name}: {claim} bytes were believed");
                lied += 1;
            }
        }
    }
    assert!(lied > 500, "{lied}");
}
