//! Files that pyarrow and numpy read as we do, and theirs read by us.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpuvol_client::layout::{
    Dtype, HostTable, LayoutError, TensorMeta, is_npy_file, parse_tensor, plan_tensor, tensor_header_len,
};

use super::bytes::{open, read_with_host_table, write, write_with_arrow};
use super::cases;
use super::device::metadata;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layout_pyarrow.py")
}

fn works(interpreter: &Path) -> bool {
    let probe = Command::new(interpreter).arg(script()).arg("probe").output();
    probe.is_ok_and(|output| output.status.success())
}

fn interpreter() -> PathBuf {
    let from_environment = std::env::var_os("GPUVOL_TEST_PYTHON").map(PathBuf::from);
    let in_tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(|root| root.join(".venv/bin/python"));
    let candidates: Vec<PathBuf> = from_environment.into_iter().chain(in_tree).collect();
    candidates.iter().find(|candidate| works(candidate)).cloned().unwrap_or_else(|| {
        panic!("none of {candidates:?} has pyarrow, pandas and numpy: run `make venv`, or set GPUVOL_TEST_PYTHON")
    })
}

fn python(action: &str, folder: &Path) -> String {
    let output = Command::new(interpreter()).arg(script()).arg(action).arg(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{action}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

#[test]
fn pyarrow_reads_what_the_plan_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let mut written = 0;
    for case in cases::all().into_iter().filter(|case| case.pyarrow) {
        let ours = write(&case.schema, &case.batches);
        // arrow-rs writes one dictionary per field as well, and cannot unify: it gets the unified batches.
        let (schema, unified) = read_with_host_table(&ours);
        std::fs::write(folder.path().join(format!("{}.ours.arrow", case.name)), &ours).unwrap();
        let theirs = write_with_arrow(&schema, &unified);
        std::fs::write(folder.path().join(format!("{}.theirs.arrow", case.name)), theirs).unwrap();
        written += 1;
    }
    assert_eq!(python("compare", folder.path()), written.to_string());
}

#[test]
fn files_of_pyarrow_are_read_and_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    python("make", folder.path());
    let mut rewritten = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".theirs.arrow").unwrap().to_owned();
        let file = std::fs::read(&path).unwrap();
        let (schema, batches) = read_with_host_table(&file);
        let ours = write(&schema, &batches);
        std::fs::write(folder.path().join(format!("{name}.ours.arrow")), ours).unwrap();
        rewritten += 1;

        let table = metadata(&file).unwrap();
        let in_place: Result<Vec<_>, LayoutError> = (0..table.batches.len()).map(|i| table.columns(i)).collect();
        let compressed = name.ends_with("lz4") || name.ends_with("zstd");
        assert_eq!(compressed && !name.starts_with("empty"), table.compression().is_some(), "{name}");
        assert_eq!(in_place.is_ok(), table.compression().is_none() && name != "delta", "{name}: {in_place:?}");
    }
    assert_eq!(rewritten, 5 * 3 + 3);
    assert_eq!(python("compare", folder.path()), rewritten.to_string());
}

#[test]
fn numpy_and_we_read_each_other() {
    let folder = tempfile::tempdir().unwrap();
    python("make-npy", folder.path());
    let mut rewritten = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".theirs.npy") else { continue };
        let file = std::fs::read(&path).unwrap();
        let data = std::fs::read(folder.path().join(format!("{name}.bin"))).unwrap();
        assert!(is_npy_file(&file));
        let (meta, offset) = parse_tensor(&file, file.len() as u64, "").unwrap();
        assert_eq!(offset, tensor_header_len(&file[..12]).unwrap());
        assert_eq!(file[usize::try_from(offset).unwrap()..], data, "{name}");
        assert_eq!(meta.data_bytes().unwrap(), data.len() as u64, "{name}");
        assert_eq!(meta.fortran_order, name.ends_with("-f"), "{name}");

        let mut ours = plan_tensor(&meta).unwrap();
        assert_eq!(ours.len() % 64, 0);
        ours.extend_from_slice(&data);
        assert_eq!(parse_tensor(&ours, ours.len() as u64, &meta.attributes()).unwrap().0, meta);
        std::fs::write(folder.path().join(format!("{name}.ours.npy")), ours).unwrap();
        rewritten += 1;
    }
    let mut raw = plan_tensor(&TensorMeta::new(Dtype::Bf16, vec![3, 2])).unwrap();
    raw.extend_from_slice(&[0; 12]);
    std::fs::write(folder.path().join("bfloat16.ours.npy"), raw).unwrap();
    assert_eq!(python("compare-npy", folder.path()), rewritten.to_string());
}

#[test]
fn truncated_files_of_pyarrow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    python("make", folder.path());
    let file = std::fs::read(folder.path().join("nested-zstd.theirs.arrow")).unwrap();
    for len in (0..file.len()).step_by(97) {
        assert!(open(&file[..len]).is_err());
        assert!(HostTable::open(bytes::Bytes::copy_from_slice(&file[len + 1..])).is_err());
    }
}
