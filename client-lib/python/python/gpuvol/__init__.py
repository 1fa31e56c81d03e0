"""Hand tables, arrays and bytes from one process to the next without a copy.

    import gpuvol
    gpuvol.put("/data/flights.arrow", table)     # in one process
    table = gpuvol.get("/data/flights.arrow")    # in another, also after the first has ended

Where a path is on no gpu-volume, the same calls write and read ordinary files.
"""

from gpuvol._errors import (
    AlreadyExists,
    BadMemory,
    ContentLost,
    DeadlineExceeded,
    DeviceMismatch,
    DeviceUnknown,
    GpuvolError,
    InternalError,
    InUse,
    InvalidArgument,
    IsADirectory,
    LeaseEnded,
    LimitExceeded,
    NoData,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotPermitted,
    OutOfMemory,
    PermissionDenied,
    ProtocolError,
    QuotaExceeded,
    ReadOnly,
    Stale,
    Unavailable,
    Unsupported,
)
from gpuvol._get import Object, get, open
from gpuvol._native import VERSION as __version__
from gpuvol._paths import Entry, Usage, df, exists, ls, stat, unlink
from gpuvol._put import PutResult, put

__all__ = [
    "AlreadyExists",
    "BadMemory",
    "ContentLost",
    "DeadlineExceeded",
    "DeviceMismatch",
    "DeviceUnknown",
    "Entry",
    "GpuvolError",
    "InUse",
    "InternalError",
    "InvalidArgument",
    "IsADirectory",
    "LeaseEnded",
    "LimitExceeded",
    "NoData",
    "NotADirectory",
    "NotEmpty",
    "NotFound",
    "NotPermitted",
    "Object",
    "OutOfMemory",
    "PermissionDenied",
    "ProtocolError",
    "PutResult",
    "QuotaExceeded",
    "ReadOnly",
    "Stale",
    "Unavailable",
    "Unsupported",
    "Usage",
    "__version__",
    "df",
    "exists",
    "get",
    "ls",
    "open",
    "put",
    "stat",
    "unlink",
]
