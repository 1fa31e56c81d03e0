#!/usr/bin/env bash
# What must hold on a real GPU: the memory conformance suite and the processes. Builds nothing.
# Usage: run.sh BIN    where BIN holds the binaries that `make gpu-bundle` made.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd)
export GPUVOL_BIN=$bin
chmod +x "$bin"/*
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
status=0
echo "== memory conformance on the real GPU"
"$bin/cuda_real" --test-threads=1 || status=1
echo "== processes"
"$bin/gpuvol-gpu-suite" || status=1
exit $status
