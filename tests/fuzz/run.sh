#!/usr/bin/env bash
# Coverage-guided fuzzing for a bounded time: run.sh [SECONDS for each target]. Found inputs are left in target/fuzz.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
seconds=${1:-20}
out=$root/target/fuzz
mkdir -p "$out"
# libFuzzer's instrumentation, as any stable compiler takes it.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
# With --target, build scripts and macros are not instrumented.
target=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --manifest-path "$here/Cargo.toml" --target-dir "$out/build" --target "$target"
for name in frame layout; do
  corpus=$out/corpus-$name
  mkdir -p "$corpus"
  echo "fuzzing $name for $seconds s"
  if ! "$out/build/$target/release/$name" "$corpus" "$here/seeds/$name" -max_total_time="$seconds" \
    -rss_limit_mb=2048 -timeout=10 -artifact_prefix="$out/$name-" -verbosity=0 -print_final_stats=1 >"$out/$name.log" 2>&1
  then
    tail -n 30 "$out/$name.log" >&2
    echo "fuzzing $name found something: see $out/$name-*" >&2
    exit 1
  fi
  grep -E 'number_of_executed_units|new_units_added' "$out/$name.log"
done
