"""Where compiled kernels are kept.

Numba keeps them beside the source, or where that cannot be written, in the user's folder for caches. An executor on a
cluster often has neither: a package that belongs to somebody else, and no home. Numba then refuses to import anything.
So there they are kept in a folder of Spark's, or a temporary one, that belongs to this user alone, for what lies in it
is run. `NUMBA_CACHE_DIR` goes before all of this.

Several processes may compile at once. Numba reads, changes and writes the list of a kernel's files, so of two that do
so at the same time one's file would be lost, or even taken for the other's: here they take turns.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import IndexDataCacheFile

_VARIABLE = "NUMBA_CACHE_DIR"


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


_save = IndexDataCacheFile.save


def _save_in_turn(self: Any, key: Any, data: Any) -> None:
    try:
        folder = os.open(os.path.dirname(self._index_path), os.O_RDONLY)
    except OSError:  # it is for Numba to make the folder, or to say that it cannot
        return _save(self, key, data)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        _save(self, key, data)
    finally:
        os.close(folder)


place()
IndexDataCacheFile.save = _save_in_turn  # type: ignore[method-assign]
