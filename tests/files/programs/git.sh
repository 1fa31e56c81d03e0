# A clone, a check, commits in place, garbage collection.
# deadline: 120
cd "$HERE"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
git -c init.defaultBranch=main init -q origin
cd origin
for n in $(seq 30); do
  mkdir -p "d$((n % 5))"; seq $((n * 50)) > "d$((n % 5))/f$n"; git add -A; git commit -qm "commit $n"
done
git fsck --strict --no-progress
cd ..
git clone -q --no-hardlinks origin clone
git clone -q "file://$PWD/origin" packed
for repository in clone packed; do
  cd $repository
  git fsck --strict --no-progress
  [[ -z $(git status --porcelain) ]] || { git status; exit 1; }
  git mv d0 moved; sed -i 's/^1$/one/' d1/f1; ln -s d1/f1 link; chmod +x d1/f6
  git add -A; git commit -qm change; git checkout -q -b side HEAD~5; seq 9 > new; git add new; git commit -qm side
  git merge -q -m merge main; git gc -q --prune=now; git fsck --strict --no-progress
  [[ -z $(git status --porcelain) && $(readlink link) == d1/f1 && -x d1/f6 ]]
  cd ..
done
git -C clone log --oneline | wc -l
