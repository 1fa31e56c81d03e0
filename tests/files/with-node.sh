#!/usr/bin/env bash
# Judges the mount of a node of its own: with-node.sh BIN, where BIN holds the programs. What run.sh reads from the
# environment applies.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "$1" && pwd)
base=$(mktemp -d /tmp/gpuvol-files-XXXXXX)
end() {
  timeout 60 "$bin/gpuvol" dev down --mount "$base/m" || true
  rm -rf "$base"
}
trap end EXIT
timeout 60 "$bin/gpuvol" dev up --mount "$base/m" --state "$base/s" --capacity 2GiB
if [[ $(stat -f -c %T "$base/m") != fuse* ]]; then
  echo "file tests: NOT RUN: no FUSE mount can be made here (see above)"
  exit 0
fi
export FILES_BIN=$bin
# The short form is the same every time; the long one looks further.
[[ -n ${FILES_LONG:-} ]] || export FILES_SEED=${FILES_SEED:-1062334634}
"$here/run.sh" "$base/m"
