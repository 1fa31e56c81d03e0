# A small crate is built, changed, built again and run in the volume.
# deadline: 180
command -v cargo > /dev/null || { echo "skip: cargo is missing"; exit 77; }
cd "$HERE"
mkdir -p crate/src
cat > crate/Cargo.toml <<X
[package]
name = "small"
version = "0.1.0"
edition = "2021"
[workspace]
X
echo 'pub mod part; fn main() { println!("{}", part::word()); }' > crate/src/main.rs
echo 'pub fn word() -> &'"'"'static str { "first" }' > crate/src/part.rs
echo 'fn main() { println!("cargo:rerun-if-changed=build.rs"); }' > crate/build.rs
cd crate
export CARGO_TARGET_DIR=$HERE/target CARGO_BUILD_JOBS=2
cargo build -q --offline
[[ $("$HERE/target/debug/small") == first ]]
# Nothing changed: the times are kept, so nothing is built.
cargo build --offline 2>&1 | tee ../log; ! grep -q Compiling ../log
sleep 0.05
sed -i s/first/second/ src/part.rs
cargo build -q --offline
[[ $("$HERE/target/debug/small") == second ]]
cargo test -q --offline > /dev/null
