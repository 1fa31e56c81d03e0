"""What the programs ask about the directory they are in: $HERE is theirs."""

import os
import sys


def enter():
    """Goes to the program's directory and returns its path."""
    os.chdir(os.environ["HERE"])
    return os.getcwd()


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


def is_volume():
    """Whether this is a mount of gpuvol, with its differences by design, or an ordinary directory."""
    return file_system().startswith("fuse")


def file_system():
    device = os.stat(".").st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            fields, _, after = line.partition(" - ")
            if fields.split()[2] == wanted:
                return after.split()[0]
    return ""


def expect_errno(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number, f"{call.__name__}{arguments}: expected {os.strerror(number)}, got {error}"
    else:
        raise AssertionError(f"{call.__name__}{arguments}: expected {os.strerror(number)}, it succeeded")
