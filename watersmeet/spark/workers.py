"""What a cluster's workers need to join, as one archive: `watersmeet pack`.

Spark brings archives to all executors and unpacks them where these work (`spark.archives`). Python on the workers must
be of the same version and on the same kind of machine as here, and needs nothing of its own: the archive has Watersmeet
and what it imports, as they are installed here, but for PySpark, which is part of Spark.

Kernels travel along, compiled: each application unpacks the archive anew, and would compile them again otherwise. Numba
takes them for those of another source if its time has changed, and archives keep whole seconds; so they are compiled in
a copy of the package whose times are whole seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import watersmeet

#: Under which name the archive is unpacked.
NAME = "watersmeet_workers"
_PACKAGE = Path(watersmeet.__file__).parent
_PART_OF_SPARK = {"pyspark", "py4j", "pyspark-client"}


def settings(archive: Path) -> dict[str, str]:
    """What to tell Spark."""
    return {"spark.archives": f"{archive}#{NAME}", "spark.executorEnv.PYTHONPATH": f"./{NAME}"}


def pack(archive: Path, compiled: bool = True, say: Callable[[str], None] = lambda text: None) -> None:
    """Write the archive, whole or not at all."""
    unfinished = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory(prefix="watersmeet-pack-") as folder:
            say("copying the package")
            _copied(Path(folder))
            if compiled:
                say("compiling kernels")
                _compile(Path(folder))
            with tarfile.open(unfinished, "w:gz", compresslevel=3) as tar:
                tar.add(Path(folder, "watersmeet"), "watersmeet")
                for name, source in _installed():
                    say(name)
                    for path, inside in source:
                        tar.add(path, inside, recursive=False)
        unfinished.replace(archive)
    finally:
        unfinished.unlink(missing_ok=True)


def _copied(folder: Path) -> None:
    shutil.copytree(_PACKAGE, folder / "watersmeet", ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.rglob("*"):
        second = int(path.stat().st_mtime)
        os.utime(path, (second, second))


def _compile(folder: Path) -> None:
    own = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", "from watersmeet.warm import warm; warm()"]
    done = subprocess.run(command, env=own | {"PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the kernels could not be compiled: {done.stderr.strip().splitlines()[-1]}")


def _installed() -> Iterator[tuple[str, Iterator[tuple[Path, str]]]]:
    """Of each distribution that a worker needs, its name and its files, each with its place in the archive."""
    for name, found in sorted(_needed().items()):
        yield f"{name} {found.version}", _files(found)


def _needed() -> dict[str, Distribution]:
    """Watersmeet's requirements and theirs, with those of Spark's Python; without what is part of Spark."""
    needed: dict[str, Distribution] = {}
    open_ones = [*_requirements(distribution("watersmeet"), "spark")]
    while open_ones:
        name = open_ones.pop()
        if name in needed or name in _PART_OF_SPARK:
            continue
        try:
            needed[name] = distribution(name)
        except PackageNotFoundError:  # for another system, or another version of Python
            continue
        open_ones += _requirements(needed[name], None)
    return needed


def _requirements(of: Distribution, extra: str | None) -> Iterator[str]:
    for text in of.requires or ():
        wanted, _, condition = text.partition(";")
        asked = re.search(r"extra\s*==\s*['\"]([^'\"]+)", condition)
        if asked is None or asked[1] == extra:
            match = re.match(r"[A-Za-z0-9._-]+", wanted.strip())
            assert match is not None
            yield re.sub(r"[-_.]+", "-", match[0]).lower()


def _files(found: Distribution) -> Iterator[tuple[Path, str]]:
    """Without scripts, tests and what Python compiles."""
    for file in found.files or ():
        parts = file.parts
        if ".." not in parts and "__pycache__" not in parts and "tests" not in parts:
            path = Path(str(found.locate_file(file)))
            if path.is_file():
                yield path, str(file)
