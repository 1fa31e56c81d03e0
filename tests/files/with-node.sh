#!/usr/bin/env bash
# Judges mounts of a node of its own: with-node.sh BIN, where BIN holds the programs. What run.sh reads from the
# environment applies.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "$1" && pwd)
base=$(mktemp -d /tmp/gpuvol-files-XXXXXX)
end() {
  exec {to[1]}>&- 2> /dev/null || true
  [[ -z ${publish:-} ]] || wait "$publish" || true
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
coproc to { "$bin/gpuvol-files-publish" --state "$base/s" --below "$base" --pods 4 --mib 1024; }
publish=$to_PID
mounts=("$base/m")
others=()
while read -r -t 60 line <&"${to[0]}" && [[ -n $line ]]; do others+=("$line"); done
"$here/run.sh" "${mounts[@]}"
if ((${#others[@]})); then
  echo "== load on ${#others[@]} mounts of one volume"
  "$bin/gpuvol-files-load" --retry-stale --mounts "${others[@]}" --processes 8 --seconds 5
fi
