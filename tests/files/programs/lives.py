"""Many small files: create, close, open, read, unlink, by four processes in one directory."""

import os
import subprocess
import sys
import time

import mounted

EACH = 1500


def lives(number):
    for n in range(EACH):
        name, content = f"s-{number}-{n}", f"{number} {n} ".encode() * (n % 300)
        with open(name, "xb") as file:
            file.write(content)
        with open(name, "rb") as file:
            got = file.read()
        assert got == content, f"{name}: {len(got)} bytes for {len(content)}"
        assert os.stat(name).st_size == len(content)
        if n % 7 == 0:
            with open(name, "ab") as file:
                file.write(b"more")
            assert open(name, "rb").read() == content + b"more"
        os.unlink(name)
        assert not os.path.exists(name)


mounted.enter()
if len(sys.argv) == 2:
    lives(int(sys.argv[1]))
else:
    began = time.monotonic()
    children = [subprocess.Popen([sys.executable, __file__, str(n)]) for n in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert os.listdir() == []
    print(f"{4 * EACH / (time.monotonic() - began) * 60:.0f} lives a minute")
