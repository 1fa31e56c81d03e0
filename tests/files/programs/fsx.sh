# The published fsx (crates.io: fsx), where it is installed: FILES_TOOLS or PATH has it.
# deadline: 120
PATH=${FILES_TOOLS:-/nonexistent}:$PATH
command -v fsx > /dev/null || { echo "skip: fsx is missing (cargo install fsx)"; exit 77; }
cd "$HERE"
for seed in 1 2 3; do
  fsx -q -N "${FILES_OPERATIONS:-3000}" -S $seed -P "$HERE" file || { echo "fsx with seed $seed failed"; exit 1; }
done
