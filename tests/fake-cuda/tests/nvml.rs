//! The NVML half, through the client that the store uses.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use nvml_wrapper::Nvml;

fn library() -> PathBuf {
    // Cargo puts this package's shared library in target/<profile>, its test programs in target/<profile>/deps.
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().join("libgpuvol_fake_cuda.so")
}

#[test]
fn inventory_and_free_memory() {
    let nvml = Nvml::builder().lib_path(library().as_os_str()).init().unwrap();
    assert_eq!(nvml.device_count().unwrap(), 1);
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.00.00");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12_080);
    assert!(nvml.device_by_index(1).is_err());
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.uuid().unwrap(), "GPU-fa4e0000-0000-4000-8000-000000000001");
    assert_eq!(device.name().unwrap(), "gpuvol fake GPU");
    let memory = device.memory_info().unwrap();
    assert_eq!((memory.total, memory.free, memory.used), (16 << 30, 16 << 30, 0));

    let file = std::env::temp_dir().join(format!("gpuvol-fake-nvml-{}", std::process::id()));
    std::fs::write(&file, "1000\n").unwrap();
    // SAFETY: the only test of this program, so no other thread reads the environment.
    unsafe { std::env::set_var("GPUVOL_FAKE_NVML_FREE", &file) };
    let memory = device.memory_info().unwrap();
    assert_eq!((memory.free, memory.used), (1000, (16 << 30) - 1000));
    std::fs::remove_file(&file).unwrap();
    assert!(device.memory_info().is_err());
}
