# fio writes with checksums and verifies: sequential and random, by write, by mapping, and O_DIRECT.
# deadline: 120
command -v fio > /dev/null || { echo "skip: fio is missing (apt-get install fio)"; exit 77; }
cd "$HERE"
run() {
  fio --name=v --directory="$HERE" --size=32m --verify=crc32c --verify_fatal=1 --verify_dump=0 --do_verify=1 --group_reporting \
    --minimal --output=/dev/null --fallocate=none "$@" || { echo "fio $*: $?"; exit 1; }
  rm -f v.*
}
run --rw=write --bs=1m --ioengine=psync
run --rw=randwrite --bs=4k --ioengine=psync --numjobs=2 --size=16m
run --rw=randrw --bs=512-16k --bs_unaligned --ioengine=psync --size=8m
run --rw=randwrite --bs=4k --ioengine=mmap --size=16m
run --rw=randwrite --bs=8k --ioengine=libaio --iodepth=16 --size=16m
run --rw=randwrite --bs=4k --ioengine=psync --direct=1 --size=8m
