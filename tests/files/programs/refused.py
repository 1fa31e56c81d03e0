"""What a volume refuses, each with its errno and none with a hang."""

import errno
import os
import socket
import stat
import subprocess

import mounted
from mounted import expect_errno

here = mounted.enter()
open("f", "w").write("content")
os.mkdir("d")
expect_errno(errno.EEXIST, os.mkdir, "f")
expect_errno(errno.ENOTDIR, os.listdir, "f")
expect_errno(errno.EISDIR, os.open, "d", os.O_WRONLY)
expect_errno(errno.ENOTEMPTY, os.rmdir, "..")
expect_errno(errno.ENAMETOOLONG, open, "x" * 256, "w")
open("x" * 255, "w").close()
assert "x" * 255 in os.listdir()
expect_errno(errno.ENAMETOOLONG, os.symlink, "y" * 5000, "link")
os.symlink("y" * 4000, "link")
assert os.readlink("link") == "y" * 4000
deep = "/".join(["deep"] * 300)
os.makedirs(deep)
open(f"{deep}/f", "w").write("down")
assert open(f"{deep}/f").read() == "down"
descriptor = os.open("f", os.O_RDWR)
expect_errno(errno.EINVAL, os.ftruncate, descriptor, -1)
expect_errno(errno.EINVAL, os.pread, descriptor, 10, -1)
for call in (os.setxattr,):
    expect_errno(errno.E2BIG, call, "f", "user.big", b"x" * 70_000)
    expect_errno(errno.ERANGE, call, "f", "user." + "n" * 300, b"x")
expect_errno(errno.ENODATA, os.getxattr, "f", "user.none")
os.close(descriptor)
try:
    os.mkfifo("fifo")
except OSError as error:
    assert error.errno == errno.EPERM, error
else:
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)

if mounted.is_volume():
    expect_errno(errno.EPERM, os.link, "f", "hard")
    assert not os.path.exists("hard") and os.stat("f").st_nlink == 1
    if os.geteuid() == 0:
        expect_errno(errno.EPERM, os.mknod, "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        expect_errno(errno.EPERM, os.mknod, "device", 0o600 | stat.S_IFBLK, os.makedev(7, 0))
    # Another's socket is refused or works as any; it never becomes a way to the store.
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind("other.sock")
    except OSError as error:
        assert error.errno in (errno.EPERM, errno.EACCES), error
    # The volume's own is there in every directory, is never listed, and stays.
    for directory in (".", "d", deep):
        name = f"{directory}/.gpuvol.sock"
        assert stat.S_ISSOCK(os.lstat(name).st_mode), f"{name} is not a socket"
        assert ".gpuvol.sock" not in os.listdir(directory)
        for call in (
            lambda: os.unlink(name),
            lambda: os.rename(name, f"{directory}/moved"),
            lambda: os.rename("f", name),
            lambda: os.mkdir(name),
            lambda: os.rmdir(name),
            lambda: os.symlink("f", name),
            lambda: os.close(os.open(name, os.O_RDWR | os.O_CREAT)),
            lambda: os.truncate(name, 0),
            lambda: os.setxattr(name, "user.a", b"x"),
        ):
            try:
                call()
            except OSError as error:
                assert error.errno in (
                    errno.EPERM, errno.EACCES, errno.EEXIST, errno.EBUSY, errno.ENXIO, errno.ENOTDIR, errno.EINVAL, errno.EOPNOTSUPP,
                ), error
            else:
                raise AssertionError(f"something changed {name}")
        assert stat.S_ISSOCK(os.lstat(name).st_mode)
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    os.chdir("d")
    client.connect(".gpuvol.sock")
    os.chdir("..")
    assert open("f").read() == "content"
    # Its directory can be taken away all the same.
    os.rmdir("d")
    # The volume's own attributes are told and not changed.
    told = [name for name in ("kind", "tier", "version") if os.getxattr("f", f"user.gpuvol.{name}")]
    assert told == ["kind", "tier", "version"]
    for call in (lambda: os.setxattr("f", "user.gpuvol.kind", b"x"), lambda: os.removexattr("f", "user.gpuvol.kind")):
        try:
            call()
        except OSError as error:
            assert error.errno in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP), error
        else:
            raise AssertionError("user.gpuvol.kind was changed")
    # A program that copies all attributes of a file does not stumble over them.
    subprocess.run(["cp", "--preserve=all", "f", "g"], check=True)
