"""Where compiled kernels are kept.

Numba keeps them beside the source, or where that cannot be written, in the user's folder for caches. An executor on a
cluster often has neither: a package that belongs to somebody else, and no home. Numba then refuses to import anything.
So there they are kept in a folder of Spark's, or a temporary one, that belongs to this user alone, for what lies in it
is run. `NUMBA_CACHE_DIR` goes before all of this.

Several processes may compile at once. Numba reads, changes and writes the list of a kernel's files, and then the file,
so of two that do so at the same time one's would be lost, or even taken for the other's: here they take turns.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from functools import wraps
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import IndexDataCacheFile

_VARIABLE = "NUMBA_CACHE_DIR"
_LOCK = "watersmeet.lock"


def place(package: Path = Path(__file__).parent) -> None:
    """Decide; kernels that are imported later are kept there."""
    if os.environ.get(_VARIABLE) or os.access(package, os.W_OK) or _can_be_made(_of_user()):
        return
    folder = str(_of_our_own())
    os.environ[_VARIABLE] = folder
    numba.config.CACHE_DIR = folder  # type: ignore[attr-defined]  # it has read its settings already


def _of_user() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "numba")


def _can_be_made(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _of_our_own() -> Path:
    """A folder that the processes of this user share; one for this process alone where somebody else has its name."""
    for root in [*filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")), tempfile.gettempdir()]:
        folder = Path(root, f"watersmeet-kernels-{os.getuid()}")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        about = folder.lstat()
        if folder.is_dir() and not folder.is_symlink() and about.st_uid == os.getuid() and not about.st_mode & 0o022:
            return folder
    return Path(tempfile.mkdtemp(prefix="watersmeet-kernels-"))




def _in_turn(method: Any, kind: int) -> Any:
    """The same, one process at a time (or several that only read), by a lock on a file in the folder."""
    method = getattr(method, "__wrapped__", method)  # of a module that is loaded again

    @wraps(method)
    def locked(self: Any, *given: Any) -> Any:
        try:
            lock = os.open(os.path.join(os.path.dirname(self._index_path), _LOCK), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # no folder yet, or one that cannot be written: for Numba to make it, or to say so
            return method(self, *given)
        try:
            try:
                fcntl.flock(lock, kind)
            except OSError:  # a file system without locks
                pass
            return method(self, *given)
        finally:
            try:
                fcntl.flock(lock, fcntl.LOCK_UN)  # said: a child that was forked meanwhile has the lock open, too
            except OSError:
                pass
            os.close(lock)

    return locked


place()
IndexDataCacheFile.save = _in_turn(IndexDataCacheFile.save, fcntl.LOCK_EX)  # type: ignore[method-assign]
IndexDataCacheFile.load = _in_turn(IndexDataCacheFile.load, fcntl.LOCK_SH)  # type: ignore[method-assign]
