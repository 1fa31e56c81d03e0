#!/usr/bin/env bash
# Runs csi-sanity against the real keeper, store, mounter and plugin of target/debug (or $BIN). Needs Go for the first
# run. Arguments go to csi-sanity, for example: --ginkgo.focus NodePublish. Nothing stays: processes are ended by their
# pid, and mounts are made in a mount namespace of their own where that is permitted (else the plugin mounts nothing).
# Volumes are file systems where /dev/fuse can be used; GPUVOL_SANITY_MOUNT=bind or none forces another form.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${BIN:-$root/target/debug}

get_sanity() {
  local version
  version=$(sha256sum "$here/sanity/go.sum" | cut -c1-16)
  sanity=$root/target/tools/csi-sanity-$version
  if [[ ! -x $sanity ]]; then
    mkdir -p "$root/target/tools"
    echo "building csi-sanity" >&2
    (cd "$here/sanity" && go build -o "$sanity.new" github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity)
    mv "$sanity.new" "$sanity"
  fi
}

if [[ -z ${GPUVOL_SANITY_INSIDE:-} ]]; then
  get_sanity
  for program in gpuvol-keeper gpuvol-store gpuvol-mounter gpuvol-csi; do
    [[ -x $bin/$program ]] || { echo "sanity: $bin/$program is missing; run: cargo build" >&2; exit 2; }
  done
  namespace=(unshare --mount --propagation private)
  [[ $(id -u) == 0 ]] || namespace+=(--user --map-root-user)
  export GPUVOL_SANITY_INSIDE=$sanity
  if "${namespace[@]}" true 2>/dev/null; then
    form=bind
    if [[ -r /dev/fuse && -w /dev/fuse ]]; then form=view; fi
    GPUVOL_SANITY_MOUNT=${GPUVOL_SANITY_MOUNT:-$form} exec "${namespace[@]}" "${BASH_SOURCE[0]}" "$@"
  fi
  echo "sanity: no mount namespace to be had, so the plugin runs with --mount none" >&2
  GPUVOL_SANITY_MOUNT=none exec "${BASH_SOURCE[0]}" "$@"
fi

sanity=$GPUVOL_SANITY_INSIDE
work=$(mktemp -d /tmp/gpuvol-sanity.XXXXXX)
started=()

finish() {
  local status=$? pid
  # The plugin first, the keeper last.
  for ((i = ${#started[@]} - 1; i >= 0; i--)); do
    pid=${started[i]}
    kill -TERM "$pid" 2>/dev/null || continue
    for _ in {1..50}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  if [[ $status != 0 ]]; then
    for log in "$work"/*.log; do echo "--- ${log##*/}"; tail -n 40 "$log"; done >&2
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

start() {
  local name=$1
  shift
  "$bin/$name" "$@" >"$work/$name.log" 2>&1 &
  started+=($!)
}

await() {
  local what=$1 socket=$2
  for _ in {1..200}; do
    if [[ -S $socket ]]; then return; fi
    sleep 0.05
  done
  echo "sanity: $what did not appear at $socket" >&2
  exit 1
}

state=$work/state
mkdir -p "$state" "$work/kubelet"
start gpuvol-keeper --state "$state"
start gpuvol-store --state "$state" --host-budget 40GiB
await "the store" "$state/store/admin.sock"
if [[ $GPUVOL_SANITY_MOUNT == view ]]; then start gpuvol-mounter --state "$state"; fi
start gpuvol-csi --endpoint "unix://$work/csi.sock" --state "$state" --node-name sanity-node \
  --kubelet-dir "$work/kubelet" --mount "$GPUVOL_SANITY_MOUNT" --log debug
await "the plugin" "$work/csi.sock"

# 10 GiB volumes are promises: host memory is taken when something is written.
echo 'gpuvol.dev/tier: host' >"$work/parameters.yaml"
{
  for secret in CreateVolumeSecret DeleteVolumeSecret NodePublishVolumeSecret NodeExpandVolumeSecret; do
    printf '%s:\n  token: do-not-log-me\n' "$secret"
  done
} >"$work/secrets.yaml"

"$sanity" --csi.endpoint "unix://$work/csi.sock" \
  --csi.mountdir "$work/kubelet/mount" --csi.stagingdir "$work/kubelet/staging" \
  --csi.testvolumeparameters "$work/parameters.yaml" --csi.secrets "$work/secrets.yaml" \
  --ginkgo.no-color "$@"

left=$(grep -F "$work" /proc/self/mountinfo || true; find "$state/publish" "$work/kubelet" -mindepth 1 2>/dev/null || true)
if [[ -n $left ]]; then
  echo "sanity: left behind:" >&2
  echo "$left" >&2
  exit 1
fi
if grep -qF do-not-log-me "$work"/*.log; then
  echo "sanity: a secret is in a log" >&2
  exit 1
fi
