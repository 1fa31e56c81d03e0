# cp -a, tar and rsync keep content, modes, times, links and extended attributes: into the volume, within it, out of it.
cd "$HERE"
local=$(mktemp -d /dev/shm/gpuvol-tests-XXXXXX)
trap 'rm -rf "$local"' EXIT
mkdir -p "$local/tree/sub/deep" "$local/tree/empty"
seq 5000 > "$local/tree/text"; head -c 300000 /dev/urandom > "$local/tree/sub/random"; : > "$local/tree/sub/nothing"
truncate -s 1000000 "$local/tree/sub/sparse"
ln -s sub/random "$local/tree/link"; ln -s /nowhere "$local/tree/dangling"
chmod 600 "$local/tree/text"; chmod 751 "$local/tree/sub/random"; chmod 1777 "$local/tree/empty"; chmod 555 "$local/tree/sub/deep"
find "$local/tree" -depth -exec touch -h -d '1999-12-31 23:59:58.123456789' {} +
xattr=$("$GPUVOL_TEST_PYTHON" - "$local/tree/text" <<'P'
import os, sys
try:
    os.setxattr(sys.argv[1], "user.note", b"kept")
    print("yes")
except OSError:
    print("no")
P
)
state() {
  (cd "$1" && find . -printf '%p %y %m %s %T@ %l\n' | sed -E 's/^(\S+ d \S+) [0-9]+ /\1 - /' | sort
    find . -type f -exec sha256sum {} + | sort
    [[ $xattr == no ]] || "$GPUVOL_TEST_PYTHON" -c 'import os; print(os.getxattr("text", "user.note"))')
}
state "$local/tree" > "$local/expected"
same() { state "$1" > "$local/got" || exit 1; diff "$local/expected" "$local/got" || { echo "$2 does not keep everything"; exit 1; }; }
quiet() { "$@" 2> "$local/errors" || { echo "$*: $?"; cat "$local/errors"; exit 1; }; [[ ! -s $local/errors ]] || { echo "$*:"; cat "$local/errors"; exit 1; }; }
quiet cp -a "$local/tree" in; same in 'cp -a into'
quiet cp -a in within; same within 'cp -a within'
quiet cp -a within "$local/out"; same "$local/out" 'cp -a out of'
tar --version > /dev/null && {
  (cd in && quiet tar --xattrs --xattrs-include='user.*' -cf ../tree.tar .); mkdir untarred
  (cd untarred && quiet tar --xattrs --xattrs-include='user.*' -xpf ../tree.tar); same untarred tar
}
command -v rsync > /dev/null && {
  quiet rsync -aX "$local/tree/" synced; same synced rsync
  [[ -z $(rsync -aXin "$local/tree/" synced/) ]] || { echo "rsync sees changes after it synced"; rsync -aXin "$local/tree/" synced/; exit 1; }
  quiet rsync -aX --inplace --checksum in/ synced/; same synced 'rsync --inplace'
}
# Again over what is there.
quiet cp -a --remove-destination in/. within/; same within 'cp -a over'
quiet cp --sparse=always in/sub/sparse thin; cmp in/sub/sparse thin
quiet cp --reflink=auto in/sub/random ref; cmp in/sub/random ref
chmod -R u+w .
