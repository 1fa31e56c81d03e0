#!/usr/bin/env bash
# Compares driver/proto/csi.proto with the official one, field by field. Needs Go; no protoc.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
descriptors=$(mktemp)
trap 'rm -f "$descriptors"' EXIT

cargo run --quiet --manifest-path "$root/Cargo.toml" -p gpuvol-csi --example csi-descriptors >"$descriptors"
cd "$here/proto-check"
go run . <"$descriptors"
