# tail -F follows a log over appends, rotation and truncation.
cd "$HERE"
# On a volume a file that was closed and is written again is a new one, which tail shows from its beginning.
[[ $(stat -f -c %T .) == fuse* ]] && how=(---disable-inotify) again=1 || how=() again=
echo 1 > log
tail -s 0.1 "${how[@]}" -n +1 -F log > /dev/shm/gpuvol-tests-tail-$$ 2> /dev/null & follower=$!
trap 'kill $follower 2> /dev/null || true; rm -f /dev/shm/gpuvol-tests-tail-$$' EXIT
until_seen() {
  for _ in $(seq 100); do [[ $(paste -sd' ' /dev/shm/gpuvol-tests-tail-$$) == "$1" ]] && return; sleep 0.1; done
  echo "tail shows <$(paste -sd' ' /dev/shm/gpuvol-tests-tail-$$)> and not <$1>"; exit 1
}
until_seen 1
one="1 ${again:+1 }2"; echo 2 >> log; until_seen "$one"
# A writer that keeps it open.
two="$one ${again:+1 2 }3"; exec 7>> log; echo 3 >&7; until_seen "$two"; echo 4 >&7; until_seen "$two 4"; exec 7>&-
mv log log.1; echo 5 > log; until_seen "$two 4 5"
echo 6 >> log; until_seen "$two 4 5 ${again:+5 }6"
