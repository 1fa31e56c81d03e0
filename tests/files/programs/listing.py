"""10,000 names: find, du, df, ls -l; and listings that go on while names come and go."""

# deadline: 120
import ctypes
import os
import subprocess
import time

import mounted

COUNT = 10_000
here = mounted.enter()
os.mkdir("many")
for n in range(COUNT):
    with open(f"many/{n:05}", "w") as file:
        if n % 100 == 0:
            file.write("x" * n)


def output(*command):
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, f"{command}: {done.returncode} {done.stderr[:500]}"
    print(f"{command[0]}: {time.monotonic() - began:.2f} s")
    return done.stdout


assert len(output("ls", "-l", "many").splitlines()) == COUNT + 1
assert len(output("find", "many", "-type", "f").splitlines()) == COUNT
assert len(output("find", "many", "-type", "f", "-size", "+0").splitlines()) == COUNT // 100 - 1
apparent = int(output("du", "-s", "--apparent-size", "--block-size=1", "many").split()[0])
content = sum(n for n in range(0, COUNT, 100))
assert content <= apparent <= content + COUNT * 100, f"du: {apparent} for {content} bytes"
fields = output("df", "--block-size=1", "--output=size,used,avail,target", ".").splitlines()[1].split()
assert int(fields[0]) >= int(fields[1]) and int(fields[0]) > 0, fields
output("df", "-i", ".")
assert sum(entry.is_file() for entry in os.scandir("many")) == COUNT

# Names that are there all the time come once each, whatever comes and goes meanwhile.
libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.c_void_p
for name in ("readdir", "closedir", "telldir"):
    getattr(libc, name).argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


def names(stream, most=10**9):
    """The next names of a directory stream, each with the position after it."""
    found = []
    while len(found) < most:
        entry = libc.readdir(stream)
        if not entry:
            break
        # d_ino, d_off, d_reclen, d_type: the name begins at 19.
        found.append((ctypes.string_at(entry + 19), libc.telldir(stream)))
    return found


stream = libc.opendir(b"many")
seen = names(stream, 500)
passed = {name for name, _ in seen}
gone = set()
for n in range(0, COUNT, 2):
    name = f"{n:05}"
    if name.encode() not in passed:
        os.unlink(f"many/{name}")
        gone.add(name.encode())
for n in range(1000):
    open(f"many/new-{n}", "w").close()
rest = names(stream)
libc.closedir(stream)
listed = [name for name, _ in seen + rest]
assert len(listed) == len(set(listed)), "a name was listed twice"
staying = {f"{n:05}".encode() for n in range(COUNT)} - gone
missing = staying - set(listed)
assert not missing, f"{len(missing)} names that were there all the time were not listed: {sorted(missing)[:5]}"

# A position that was told is gone back to.
stream = libc.opendir(b"many")
whole = names(stream)
for at in (10, 700, len(whole) - 5):
    libc.seekdir(stream, whole[at][1])
    again = [name for name, _ in names(stream, 20)]
    assert again == [name for name, _ in whole[at + 1 : at + 21]], f"seekdir to {at}: other names"
libc.closedir(stream)

# As rm -r does it: names are taken away as they are listed.
stream = libc.opendir(b"many")
while batch := names(stream, 100):
    for name, _ in batch:
        if name not in (b".", b".."):
            os.unlink(b"many/" + name)
libc.closedir(stream)
assert os.listdir("many") == []
os.rmdir("many")
