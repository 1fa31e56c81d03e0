# Programs are run from the volume: scripts, binaries, shared libraries, and what replaces them meanwhile.
cd "$HERE"
printf '#!/bin/sh\necho "ran $1"\n' > script; chmod +x script; [[ $(./script x) == 'ran x' ]]
chmod -x script; ! ./script 2> /dev/null
cp /bin/sleep sleeper; [[ -x sleeper ]]; ./sleeper 1 & runner=$!
sleep 0.2
# Replaced and removed while it runs.
cp /bin/true new; mv new sleeper; ./sleeper; wait $runner
cp /bin/cat gone; (sleep 0.3; echo through) | ./gone > out & sleep 0.1; rm gone; wait; [[ $(cat out) == through ]]
if command -v cc > /dev/null; then
  echo 'int answer(void) { return 42; }' > lib.c; cc -shared -fPIC -o libanswer.so lib.c
  echo 'int answer(void); int main(void) { return answer() == 42 ? 0 : 1; }' > main.c; cc -o main main.c -L. -lanswer -Wl,-rpath,'$ORIGIN'
  ./main
fi
mkdir package; echo 'word = "imported"' > package/part.py
PYTHONDONTWRITEBYTECODE= PYTHONPATH=$PWD/package "$GPUVOL_TEST_PYTHON" -c 'import part; assert part.word == "imported"'
PYTHONDONTWRITEBYTECODE= PYTHONPATH=$PWD/package "$GPUVOL_TEST_PYTHON" -c 'import part; assert part.word == "imported"'
