//! Compiles `proto/*.proto` in Rust, so that no protoc is needed, and keeps the descriptors for
//! `tests/csi/proto-check.sh`.

use std::path::PathBuf;
use std::{env, error, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/csi.proto", "proto/registration.proto"], ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("csi.descriptors"), descriptors.encode_to_vec())?;

    // A message without Debug cannot be logged, so its credentials cannot either.
    let secret: Vec<String> = descriptors
        .file
        .iter()
        .flat_map(|file| file.message_type.iter().map(move |message| (file.package(), message)))
        .filter(|(_, message)| message.field.iter().any(|field| field.name() == "secrets"))
        .map(|(package, message)| format!(".{package}.{}", message.name()))
        .collect();
    if secret.is_empty() {
        return Err("csi.proto has no message with secrets, which cannot be right".into());
    }
    tonic_prost_build::configure().generate_default_stubs(true).skip_debug(secret).compile_fds(descriptors)?;
    Ok(())
}
