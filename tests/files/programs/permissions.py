"""Modes are kept to: another user, and one without rights, see what they may and nothing more."""

import errno
import os
import traceback

import mounted
from mounted import expect_errno

SOMEBODY = 65534
mounted.enter()


def somebody():
    """The part of the one who has no rights."""
    expect_errno(errno.EACCES, open, "private")
    expect_errno(errno.EACCES, open, "readable", "w")
    assert open("readable").read() == "text"
    expect_errno(errno.EACCES, os.listdir, "closed")
    expect_errno(errno.EACCES, os.stat, "closed/f")
    expect_errno(errno.EACCES, open, "new", "w")
    expect_errno(errno.EACCES, os.unlink, "readable")
    expect_errno(errno.EACCES, os.truncate, "readable", 0)
    expect_errno(errno.EPERM, os.chmod, "readable", 0o777)
    expect_errno(errno.EPERM, os.chown, "readable", SOMEBODY, SOMEBODY)
    expect_errno(errno.EPERM, os.utime, "readable", (1, 1))
    expect_errno(errno.EACCES, os.setxattr, "readable", "user.a", b"x")
    expect_errno(errno.EPERM, os.unlink, "sticky/other")
    open("sticky/own", "w").write("own")
    os.unlink("sticky/own")
    with open("open/mine", "w") as file:
        file.write("mine")
    assert os.stat("open/mine").st_uid == SOMEBODY and os.stat("open/mine").st_gid == SOMEBODY
    os.chmod("open/mine", 0o4755)
    assert os.stat("open/mine").st_mode & 0o7777 == 0o4755
    # A write by one who is not root takes the set-id bit away.
    with open("open/mine", "a") as file:
        file.write("more")
    # On a volume it has no effect anyway: it is mounted nosuid.
    if not mounted.is_volume():
        assert os.stat("open/mine").st_mode & 0o7777 == 0o755, oct(os.stat("open/mine").st_mode)
    os.unlink("open/roots")
    assert os.access("readable", os.R_OK) and not os.access("readable", os.W_OK)


if os.geteuid() != 0:
    mounted.skip("needs root to be somebody else")
try:
    with open("/proc/self/uid_map") as ranges:
        assert any(int(first) <= SOMEBODY < int(first) + int(count) for first, _, count in map(str.split, ranges))
except AssertionError:
    mounted.skip("this user namespace has only one user")
os.chmod(".", 0o755)
for name, mode in (("private", 0o600), ("readable", 0o644)):
    with open(name, "w") as file:
        file.write("text")
    os.chmod(name, mode)
os.mkdir("closed")
open("closed/f", "w").close()
os.chmod("closed", 0o700)
os.mkdir("sticky")
os.chmod("sticky", 0o1777)
open("sticky/other", "w").close()
os.mkdir("open")
os.chmod("open", 0o777)
open("open/roots", "w").close()
child = os.fork()
if child == 0:
    try:
        os.setgroups([])
        os.setgid(SOMEBODY)
        os.setuid(SOMEBODY)
        somebody()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
# Set-group-id directories hand their group on.
os.mkdir("group")
os.chown("group", 0, 1234)
os.chmod("group", 0o2775)
open("group/f", "w").close()
os.mkdir("group/d")
assert os.stat("group/f").st_gid == 1234 and os.stat("group/d").st_gid == 1234
assert os.stat("group/d").st_mode & 0o2000
