# tail -F follows a log over appends and rotation. In a volume each time that a closed log is opened for writing again is
# a new version with an inode number of its own, by design: tail takes that for a rotation and shows the log again from
# its beginning. What counts there is that each line comes.
cd "$HERE"
[[ $(stat -f -c %T .) == fuse* ]] && volume=1 || volume=
echo 1 > log
tail -s 0.1 -n +1 -F log > /dev/shm/gpuvol-tests-tail-$$ 2> /dev/null & follower=$!
trap 'kill $follower 2> /dev/null || true; rm -f /dev/shm/gpuvol-tests-tail-$$' EXIT
until_seen() {
  for _ in $(seq 100); do
    shown=$(paste -sd' ' /dev/shm/gpuvol-tests-tail-$$)
    [[ $shown == "$1" || -n $volume && $(tr ' ' '\n' <<< "$shown" | sort -u | paste -sd' ') == "$1" ]] && return
    sleep 0.1
  done
  echo "tail shows <$(paste -sd' ' /dev/shm/gpuvol-tests-tail-$$)> and not <$1>"; exit 1
}
until_seen 1
echo 2 >> log; until_seen '1 2'
# A writer that keeps it open.
exec 7>> log; echo 3 >&7; until_seen '1 2 3'; echo 4 >&7; until_seen '1 2 3 4'; exec 7>&-
mv log log.1; echo 5 > log; until_seen '1 2 3 4 5'
echo 6 >> log; until_seen '1 2 3 4 5 6'
