"""Where kernels are kept when neither the package nor the user's folder can be written."""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import pytest
from numba.core.caching import IndexDataCacheFile

from watersmeet import machine_code

PACKAGE = Path(machine_code.__file__).parent


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A package that cannot be written, and a home that is a file."""
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    yield tmp_path
    os.environ.pop("NUMBA_CACHE_DIR", None)


def placed(monkeypatch) -> str | None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != PACKAGE and access(path, mode))
    machine_code.place()
    return os.environ.get("NUMBA_CACHE_DIR")


def test_beside_the_source_where_that_can_be_written(nowhere):
    machine_code.place()
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_in_the_users_folder_where_there_is_one(nowhere, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere / "cache"))
    assert placed(monkeypatch) is None and (nowhere / "cache" / "numba").is_dir()


def test_what_the_user_says_goes_before_all(nowhere, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/elsewhere")
    assert placed(monkeypatch) == "/elsewhere"


@pytest.mark.parametrize("on_spark", [False, True])
def test_else_in_a_folder_of_this_user_alone(nowhere, monkeypatch, on_spark):
    root = nowhere
    if on_spark:
        root = nowhere / "blocks"
        root.mkdir()
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{nowhere / 'gone'},{root}")
    found = placed(monkeypatch)
    assert found == str(root / f"watersmeet-kernels-{os.getuid()}") == numba.config.CACHE_DIR
    assert Path(found).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("whose", ["others may write", "a link"])
def test_not_in_a_folder_that_somebody_else_may_write(nowhere, monkeypatch, whose):
    taken = nowhere / f"watersmeet-kernels-{os.getuid()}"
    if whose == "a link":
        (nowhere / "theirs").mkdir()
        taken.symlink_to(nowhere / "theirs")
    else:
        taken.mkdir()
        taken.chmod(0o777)
    found = placed(monkeypatch)
    assert found is not None and Path(found) != taken and Path(found).stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_nobody_with_a_package_of_somebody_else_can_import_it(tmp_path):
    """For real: as another user, without a home."""
    python = Path(sys.executable)  # in an environment, which leads to another place
    if not all(os.stat(p).st_mode & 0o001 for p in [*python.parents, *python.resolve().parents]):
        pytest.skip("this Python lies where only its owner may go")
    shutil.copytree(PACKAGE, tmp_path / "watersmeet", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [tmp_path, *tmp_path.parents][:-1]:
        folder.chmod(folder.stat().st_mode | 0o055)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    subprocess.run(
        [sys.executable, "-c", "import watersmeet"], check=True, user=65534, cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "HOME": "/nowhere", "TMPDIR": str(scratch)},
    )  # fmt: skip


def test_kernels_that_are_saved_at_the_same_time_are_all_kept(tmp_path):
    """As by several processes: the list of files is read, changed and written by one at a time."""

    def save(first: int) -> None:
        file = IndexDataCacheFile(str(tmp_path), "kernel", 1)
        for number in range(first, first + 25):
            file.save(number, f"machine code {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(0, 100, 25)))
    importlib.reload(machine_code)  # which must not have it wait for itself
    found = IndexDataCacheFile(str(tmp_path), "kernel", 1)
    found.save(100, "one more")
    assert [found.load(number) for number in range(100)] == [f"machine code {number}" for number in range(100)]


def test_a_process_that_is_forked_while_a_kernel_is_saved_does_not_hold_up_others(tmp_path):
    file = IndexDataCacheFile(str(tmp_path), "kernel", 1)
    children = []

    class Forking:
        def __reduce__(self):  # in the midst of saving
            children.append(os.fork())
            if children[-1] == 0:
                signal.pause()
            return str, ("machine code",)

    file.save(1, Forking())
    try:
        lock = os.open(tmp_path / machine_code._LOCK, os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(lock)
        assert file.load(1) == "machine code"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
