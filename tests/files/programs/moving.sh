# mv of files and trees, over and across directories.
cd "$HERE"
mkdir -p a/sub b; echo file > a/f; echo deep > a/sub/deep; ln -s f a/link
mv a/f b/f; [[ ! -e a/f && $(cat b/f) == file ]]
echo other > a/f; mv a/f b/f; [[ $(cat b/f) == other ]]
mv a/sub b/; [[ $(cat b/sub/deep) == deep ]]
mv b/sub c; [[ $(cat c/deep) == deep ]]; mkdir full; echo x > full/x
! mv -T c full 2> /dev/null; [[ -e c/deep && -e full/x ]]
mkdir hollow; mv -T c hollow; [[ $(cat hollow/deep) == deep ]]
! mv hollow hollow/inside 2> /dev/null; [[ -e hollow/deep ]]
mv a/link b/link; [[ $(readlink b/link) == f && $(cat b/link) == other ]]
echo new > n; mv -n n b/f; [[ $(cat b/f) == other ]]; mv -f n b/f; [[ $(cat b/f) == new ]]
# An open file keeps its content when its name goes to another, and when its directory moves.
exec 7< b/f; echo newest > n; mv n b/f; [[ $(cat <&7) == new && $(cat b/f) == newest ]]; exec 7<&-
exec 7>> b/f; mv b moved; echo more >&7; exec 7>&-; [[ $(cat moved/f) == $'newest\nmore' ]]
# From another file system and to it.
seq 100000 > /dev/shm/gpuvol-tests-mv-$$; mv /dev/shm/gpuvol-tests-mv-$$ came; seq 100000 | cmp - came
mv came /dev/shm/gpuvol-tests-mv-$$; [[ ! -e came ]]; seq 100000 | cmp - /dev/shm/gpuvol-tests-mv-$$; rm /dev/shm/gpuvol-tests-mv-$$
# A name that many rename onto always has one of the whole contents.
for n in 1 2 3; do (for m in $(seq 60); do printf '%05000d' $n > w$n; mv w$n name; done) & done
for _ in $(seq 100); do [[ ! -e name ]] || { size=$(wc -c < name); [[ $size == 5000 ]] || { echo "name has $size bytes"; exit 1; }; }; done
wait; rm -r moved hollow full; ls
