"""Temporary files and the usual ways to replace a file safely."""

import os
import shutil
import tempfile

import mounted

here = mounted.enter()
with tempfile.TemporaryFile(dir=here) as file:
    file.write(b"x" * 100_000)
    file.seek(0)
    assert file.read() == b"x" * 100_000
assert os.listdir() == [], "a file without a name is left behind"
with tempfile.NamedTemporaryFile(dir=here, delete=False) as file:
    file.write(b"named")
    file.flush()
    assert open(file.name, "rb").read() == b"named"
    os.unlink(file.name)
    file.write(b" and gone")
    file.seek(0)
    assert file.read() == b"named and gone" and os.fstat(file.fileno()).st_nlink == 0
with tempfile.TemporaryDirectory(dir=here) as directory:
    for n in range(20):
        open(f"{directory}/{n}", "w").write(str(n))
    shutil.copytree(directory, "copied")
assert len(os.listdir("copied")) == 20 and not os.path.exists(directory)
shutil.rmtree("copied")


def replace(path, content):
    """Beside, synchronised, renamed, and the directory synchronised."""
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


for n in range(50):
    replace(f"{here}/config", f"version {n}".encode() * 100)
    assert open("config", "rb").read() == f"version {n}".encode() * 100
assert os.listdir() == ["config"]

# Unlinked while open for reading and writing, then a new file of the name.
old = open("config", "r+b")
os.unlink("config")
open("config", "wb").write(b"new")
old.seek(0)
old.write(b"OLD")
old.flush()
old.seek(0)
assert old.read(3) == b"OLD" and open("config", "rb").read() == b"new"
old.close()
assert open("config", "rb").read() == b"new"
