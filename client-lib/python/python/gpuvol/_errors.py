"""What can go wrong. Each class is also the builtin exception that says the same.

``except FileNotFoundError`` and ``except gpuvol.NotFound`` both catch a path with nothing at it;
``except gpuvol.GpuvolError`` catches all of these, and so does ``except OSError``.
"""

import io


class GpuvolError(OSError):
    """An error of a volume. ``errno`` is what a file system would answer, ``filename`` the path."""

    need: int = 0
    """Bytes asked for, where the error is about room."""
    free: int = 0
    """Bytes free when it failed, where the error is about room."""
    limit: int = 0
    """The limit in bytes, where the error is about room."""

    def __str__(self) -> str:
        # The message names the path already.
        return str(self.strerror)


class InternalError(GpuvolError):
    """A bug, or an error code of a newer store."""


class InvalidArgument(GpuvolError, ValueError):
    """The request cannot work; repeating it cannot help."""


class NotFound(GpuvolError, FileNotFoundError):
    """Nothing is at the path."""


class AlreadyExists(GpuvolError, FileExistsError):
    """Something is at the path, and ``exclusive=True`` asked for nothing to be there."""


class NotADirectory(GpuvolError, NotADirectoryError):
    """Something above the path is an object."""


class IsADirectory(GpuvolError, IsADirectoryError):
    """The path is a directory."""


class NotEmpty(GpuvolError):
    """The directory is not empty."""


class ReadOnly(GpuvolError, PermissionError):
    """The volume is mounted read-only here."""


class PermissionDenied(GpuvolError, PermissionError):
    """An ordinary file that this user may not use so."""


class QuotaExceeded(GpuvolError):
    """The volume's capacity does not hold it (ENOSPC); see ``need``, ``free`` and ``limit``."""


class OutOfMemory(GpuvolError, MemoryError):
    """The node or the GPU has not the memory, whatever the volume's capacity."""


class LimitExceeded(GpuvolError):
    """A limit of this connection, lease or volume was reached."""


class DeadlineExceeded(GpuvolError, TimeoutError):
    """What was waited for did not happen in time."""


class BadMemory(GpuvolError):
    """A descriptor is not the memory that it was said to be."""


class DeviceUnknown(GpuvolError):
    """There is no such GPU."""


class DeviceMismatch(GpuvolError):
    """The object is on a GPU that this process does not see."""


class ProtocolError(GpuvolError):
    """Client and store do not understand each other."""


class InUse(GpuvolError):
    """The volume is still in use."""


class ContentLost(GpuvolError):
    """The volume's content is gone, by a reboot for example."""


class Unavailable(GpuvolError, ConnectionRefusedError):
    """No store answered in time."""


class Unsupported(GpuvolError, io.UnsupportedOperation):
    """Known, and not offered."""


class NoData(GpuvolError):
    """No such attribute."""


class NotPermitted(GpuvolError, PermissionError):
    """The volume does not do this, for anybody."""


class Stale(GpuvolError):
    """The file is at another version now; open it again."""


class LeaseEnded(GpuvolError):
    """This process's hold on its open objects has ended."""
