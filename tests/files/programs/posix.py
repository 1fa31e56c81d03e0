"""pjdfstest (crates.io: pjdfstest), where it is installed: FILES_TOOLS or PATH has it. Needs root.

What is left out, and why, is EXCLUDED; a test that is not there must pass.
"""

# deadline: 300
import os
import re
import shutil
import subprocess

import mounted

# Patterns of names, for a volume only: by design it has neither hard links nor device nodes.
EXCLUDED = {
    r"^link::": "hard links are refused",
    r"::(block|char)$": "device nodes are refused",
    r"::fifo$|^mkfifo::|^open::fifo_|^mknod::(permission_bits_from_mode|changed_time_fields_success|uid_gid_eq_euid_egid)$": (
        "named pipes are refused"
    ),
    r"::socket$|^open::socket_error$": "sockets but the volume's own are refused",
    r"^(unlink::(unchanged_ctime_failed|update_ctime_success)|rename::(preserve_metadata|to_multiply_linked))::regular$": (
        "they make hard links to look at"
    ),
    r"^open::etxtbsy$": "a program that runs is another version than the one that is written",
}
CONFIGURATION = """
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
stat_st_birthtime = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [
  ["nobody", "nogroup"],
  ["daemon", "daemon"],
  ["bin", "bin"],
]
"""

tool = shutil.which("pjdfstest", path=f"{os.environ.get('FILES_TOOLS', '/nonexistent')}:{os.environ['PATH']}")
here = mounted.enter()
if not tool:
    mounted.skip("pjdfstest is missing (cargo install pjdfstest)")
if os.geteuid() != 0:
    mounted.skip("pjdfstest needs root")
with open("/proc/self/uid_map") as ranges:
    if all(int(line.split()[2]) < 65535 for line in ranges):
        mounted.skip("pjdfstest needs several users, this user namespace has one")
os.chmod(here, 0o755)
with open("/dev/shm/gpuvol-tests-pjd-%d" % os.getpid(), "w") as configuration:
    configuration.write(CONFIGURATION)
done = subprocess.run([tool, "-c", configuration.name, "-p", here], capture_output=True, text=True, timeout=280)
os.unlink(configuration.name)
results = dict(re.findall(r"^(\S+)\s+(ok|FAILED|skipped|success|error)\b", done.stdout, re.M))
excluded = EXCLUDED if mounted.is_volume() else {}
failed = [name for name, result in results.items() if result not in ("ok", "skipped")]
wrong = [name for name in failed if not any(re.search(pattern, name) for pattern in excluded)]
needless = [pattern for pattern in excluded if not any(re.search(pattern, name) for name in failed)]
print(done.stdout.strip().splitlines()[-1], f"{len(failed) - len(wrong)} of the failures are excluded")
assert "Summary" in done.stdout and len(results) > 300, (done.stdout[-2000:], done.stderr[-1000:])
for name in wrong:
    words = re.search(rf"^{re.escape(name)}\s.*?(?=^\S+::)", done.stdout, re.M | re.S)
    print(words[0] if words else name)
assert not wrong, f"{len(wrong)} failed: {wrong}"
assert not needless, f"nothing fails any more that these leave out: {needless}"
