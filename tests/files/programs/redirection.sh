# What shells do with files: >, >>, here-documents, descriptors that subshells and children share.
cd "$HERE"
equal() { [[ $(cat "$1") == "$2" ]] || { echo "$1: expected <$2>, got <$(cat "$1")>"; exit 1; }; }

echo one > f; equal f one
echo two > f; equal f two
echo three >> f; equal f $'two\nthree'
: > f; [[ ! -s f ]]
cat > doc <<X
line $((1 + 1))
X
equal doc 'line 2'
# Both write to one description, by turns.
{ echo a; (echo b); sh -c 'echo c'; echo d; } > turns; equal turns $'a\nb\nc\nd'
# A description that stays open over other programs' closes.
exec 7> kept; echo 1 >&7; ls / > /dev/null; (echo 2 >&7); sleep 0.1; echo 3 >&7; equal kept $'1\n2\n3'; exec 7>&-
equal kept $'1\n2\n3'
# Background writers with O_APPEND.
for n in $(seq 20); do (for m in $(seq 10); do echo "$n $m" >> appended; done) & done; wait
[[ $(wc -l < appended) == 200 && $(sort -u appended | wc -l) == 200 ]] || { echo "appended: $(wc -l < appended) lines"; exit 1; }
# Output and errors to one file, and by its names in /dev and /proc.
sh -c 'echo out; echo err >&2' > both 2>&1; equal both $'out\nerr'
sh -c 'echo out; echo again >> /dev/stdout; echo more > /proc/self/fd/2' >> dev 2>> dev; grep -q more dev
sh -c 'echo x > /dev/stdout' > stdout; equal stdout x
# Reading and writing one description.
exec 8<> rw; echo hello >&8; equal rw hello; exec 8>&-
# noclobber, and its override.
set -o noclobber; ! (echo no > f) 2> /dev/null; echo yes >| f; set +o noclobber; equal f yes
# A pipe in between, tee, and process substitution.
seq 1000 | tee copy | wc -l > count; equal count 1000; cmp copy <(seq 1000)
# A file that is truncated by its reader's own redirection is empty: as everywhere.
echo gone > self; cat self > self 2> /dev/null || true; [[ ! -s self ]] || { echo "self: $(cat self)"; exit 1; }
# A read while the writer goes on sees what was written so far.
(echo early; sleep 0.5; echo late) > slow & sleep 0.2; equal slow early; wait; equal slow $'early\nlate'
