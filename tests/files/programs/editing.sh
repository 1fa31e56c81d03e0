# Programs that change files in place, each in its own way.
cd "$HERE"
seq 1000 > f; chmod 640 f
sed -i 's/^5$/five/' f; grep -qx five f; [[ $(wc -l < f) == 1000 && $(stat -c %a f) == 640 ]]
sed -i.bak 's/^6$/six/' f; ! cmp -s f f.bak; grep -qx six f
sort -rn -o f.bak f.bak; [[ $(head -n 1 f.bak) == 1000 ]]
truncate -s 10 f; [[ $(stat -c %s f) == 10 ]]; truncate -s 5000 f; [[ $(stat -c %s f) == 5000 ]]
[[ $(tail -c +11 f | tr -d '\0' | wc -c) == 0 ]]
printf 'XY' | dd of=f bs=1 seek=4 conv=notrunc status=none; [[ $(dd if=f bs=1 skip=4 count=2 status=none) == XY ]]
[[ $(stat -c %s f) == 5000 ]]
dd if=/dev/zero of=zeros bs=64k count=16 conv=fsync status=none; [[ $(stat -c %s zeros) == 1048576 ]]
dd if=zeros of=again bs=1M oflag=append conv=notrunc status=none; cmp zeros again
if command -v perl > /dev/null; then perl -pi -e 's/^7$/seven/' f.bak; grep -qx seven f.bak; fi
"$GPUVOL_TEST_PYTHON" - <<'P'
with open("f.bak", "r+") as f:
    text = f.read()
    f.seek(0)
    f.write(text.replace("seven", "7"))
    f.truncate()
P
grep -qx 7 f.bak
patch --version > /dev/null 2>&1 && { seq 10 > a; seq 10 | sed 's/3/three/' > b; diff a b > p || true; patch -s a p; cmp a b; }
install -m 755 b installed; [[ $(stat -c %a installed) == 755 ]]; cmp b installed
split -l 100 f.bak part-; cat part-* | cmp - f.bak
gzip -k f.bak; gzip -dc f.bak.gz | cmp - f.bak
