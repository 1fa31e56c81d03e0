#!/usr/bin/env bash
# Judges directories: run.sh DIR... with mounts of one volume (or any directory, to judge the tests).
#
# Short, for `make test`: about two minutes. FILES_LONG=1: everything, thousands of cases, 64 processes for a minute, the
# bench.
#   FILES_SEED=N         the seed of all that is random (printed)
#   FILES_REFERENCE=DIR  a directory on tmpfs, for the model and the bench [/dev/shm]
#   FILES_BIN=DIR        where the programs of this crate are [target/release, else target/debug]
#   FILES_PYTHON=PROGRAM a Python with pytest, pyarrow, pandas, polars [.venv/bin/python]
#   FILES_TOOLS=DIR      where fsx and pjdfstest are, if they are
#   FILES_KILL=COMMAND   a shell command that kills what serves the directories: the model and the load are then run
#                        again with it at random times
# Nothing here waits for ever: what does not answer fails the test, and is named.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
(($#)) || { sed -n '2,/^set/s/^# \?//p' "${BASH_SOURCE[0]}" | head -n -1 >&2; exit 2; }
mounts=("$@")
subject=$1
bin=${FILES_BIN:-$root/target/release}
[[ -x $bin/gpuvol-files-model ]] || bin=$root/target/debug
[[ -x $bin/gpuvol-files-model ]] || { echo "run.sh: gpuvol-files-model is missing; run: cargo build -p gpuvol-files-tests" >&2; exit 2; }
python=${FILES_PYTHON:-$root/.venv/bin/python}
export FILES_SEED=${FILES_SEED:-$((RANDOM * 32768 + RANDOM))}
reference=$(mktemp -d "${FILES_REFERENCE:-/dev/shm}/gpuvol-tests-XXXXXX")
trap 'rm -rf "$reference"' EXIT
echo "file tests: seed $FILES_SEED"
failed=()
# Every part is run, so that one run tells all.
part() {
  local name=$1 began=$SECONDS
  shift
  echo "== $name"
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - began)) s"
}
kill=()
model() { "$bin/gpuvol-files-model" --subject "$subject" --reference "$reference" "${kill[@]}" "$@"; }
exerciser() { "$bin/gpuvol-files-exerciser" --directory "$subject" "${kill[@]}" "$@"; }
load() { "$bin/gpuvol-files-load" --retry-stale --mounts "${mounts[@]}" "${kill[@]}" "$@"; }
programs() { GPUVOL_TEST_DIR=$subject "$python" -m pytest -q -rs -p no:cacheprovider "$here/programs" "$@"; }

if [[ -n ${FILES_LONG:-} ]]; then
  part model model --cases "${FILES_CASES:-3000}"
  part exerciser exerciser --operations 10000 --files 4
  part 'exerciser, O_DIRECT' exerciser --operations 3000 --direct
  part programs programs
  part load load --processes 64 --seconds 60
  if [[ -n ${FILES_KILL:-} ]]; then
    kill=(--kill-command "$FILES_KILL" --kill-every-ms 300..3000)
    part 'model, killed' model --cases 1000000 --seconds 120
    part 'exerciser, killed' exerciser --operations 10000
    part 'load, killed' load --processes 16 --seconds 60
    kill=()
  fi
  part bench "$bin/gpuvol-files-bench" --subject "$subject" --reference "$reference" ${FILES_DEMAND:+--demand}
else
  part model model --cases "${FILES_CASES:-150}" --seconds 12
  part exerciser exerciser --operations 300 --largest 262144
  part load load --processes 8 --seconds 5
  # locks and redirection open for writing in races, which may be ESTALE once in a thousand (docs/files.md): long form.
  part programs programs -k 'not locks and not redirection and not cargo and not git and not listing and not posix and not fsx and not fio and not frames'
fi
if ((${#failed[@]})); then
  echo "file tests: FAILED: ${failed[*]} (seed $FILES_SEED)"
  exit 1
fi
echo "file tests: everything passed"
