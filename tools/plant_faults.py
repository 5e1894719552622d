"""Plant faults, one at a time, and see whether the tests notice.

    python tools/plant_faults.py                           130 faults over all parts
    python tools/plant_faults.py --part index --count 40   over the parts whose name begins so (or: index,query)
    python tools/plant_faults.py --only 'hash.py | _link'  those drawn whose id has this text
    python tools/plant_faults.py --list                    which would be planted, and nothing else

Each is planted into a copy of the package and its tests, with the machine code that Numba keeps beside the modules, so
that only kernels which the fault changes are compiled again. A test that fails, breaks or hangs has caught the fault.
The tests of its part come first, and what all of these miss then meets those of all parts. What survives both is a test
to write; or it changes nothing that can be seen: then it belongs into tools/faults_equivalent.json, with the reason,
and is not drawn again.

Results are kept in a file (`--results`), and what is there already is not run again unless its tests have changed.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fault_parts import EVERY, PARTS
from faults import Fault, drawn

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = ROOT / "tools" / "faults_equivalent.json"
COPIED = ("watersmeet", "tests", "examples", "pyproject.toml")
GIB = 1 << 30


def main() -> int:
    options = _options()
    parts = [name for name in PARTS if name.startswith(tuple(options.part.split(",")))]
    if not parts:
        raise SystemExit(f"--part {options.part!r}: there is none that begins so; parts are {', '.join(PARTS)}")
    equivalent = {one["id"]: one["reason"] for one in json.loads(EQUIVALENT.read_text())}
    todo: list[tuple[str, Fault]] = []
    for number, part in enumerate(parts):
        count = options.count // len(parts) + (number < options.count % len(parts))
        todo += [(part, fault) for fault in drawn(ROOT, PARTS[part].files, count, options.seed, equivalent)]
    todo = [(part, fault) for part, fault in todo if options.only in fault.id]
    if options.list:
        for part, fault in todo:
            print(f"{part}: {fault.id}  ->  {fault.new}")
        return 0
    results = Results(options.results)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        pristine = Path(folder) / "pristine"
        _copy(ROOT, pristine)
        todo = [(part, fault) for part, fault in todo if not results.has(fault, _version(pristine, part))]
        trial = Trial(pristine, options)
        with ThreadPoolExecutor(options.jobs) as pool:
            suites = {part: Suite(part, PARTS[part].tests) for part in {part for part, _ in todo}}
            for ready in [pool.submit(suite.measure, trial) for suite in suites.values()]:
                ready.result()
            missed = trial.run(pool, [(suites[part], part, fault) for part, fault in todo], results.add_caught)
            every = Suite("all parts", EVERY)
            trial.run(pool, [(every, part, fault) for _, part, fault in missed], results.add)
    return results.summary(parts, options.seed, equivalent)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="", help="parts whose name begins so, or so (default: all)")
    parser.add_argument("--count", type=int, default=130, help="faults, over all parts together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="faults tried at a time")
    parser.add_argument("--only", default="", help="faults whose id has this text")
    parser.add_argument("--list", action="store_true", help="show what would be planted")
    parser.add_argument("--patience", type=float, default=4, help="times what the tests take without a fault")
    parser.add_argument("--memory", type=float, default=12, help="GiB of address space for the tests of one fault")
    parser.add_argument("--results", type=Path, default=ROOT / "bench-results" / "faults.json")
    return parser.parse_args()


# -- a fault ---------------------------------------------------------------------------------------------------------


class Trial:
    """Faults that are planted, each into a copy of its own of a tree without any."""

    def __init__(self, pristine: Path, options: argparse.Namespace):
        self.pristine = pristine
        self.options = options

    def run(
        self, pool: ThreadPoolExecutor, todo: list[tuple[Suite, str, Fault]], add: Callable[[dict[str, Any]], None]
    ) -> list[tuple[Suite, str, Fault]]:
        """Plant each, and see whether its tests notice; gives those that survive."""
        survived = []
        running = {pool.submit(self._tried, *one): one for one in todo}
        for done, future in enumerate(as_completed(running), 1):
            outcome = future.result()
            add(outcome)
            print(f"[{done}/{len(todo)}] {outcome['outcome']:8} {outcome['seconds']:5.1f} s  {outcome['id']}")
            sys.stdout.flush()
            if outcome["outcome"] == "survived":
                survived.append(running[future])
        return survived

    def _tried(self, suite: Suite, part: str, fault: Fault) -> dict[str, Any]:
        source = (self.pristine / fault.file).read_text()
        planted = fault.planted(source)
        beside = self.pristine.parent  # where files can be linked
        with tempfile.TemporaryDirectory(prefix="fault-", dir=beside, ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / "tree"
            shutil.copytree(self.pristine, copy, copy_function=os.link)  # all that writes there replaces files
            (copy / fault.file).unlink()
            (copy / fault.file).write_text(planted)
            if fault.kernel:
                _forget_kernels(copy, fault.file)
            else:
                _keep_kernels(copy / fault.file)
            begin = time.monotonic()
            outcome, output = suite.notices(copy, self)
            seconds = time.monotonic() - begin
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        diff = difflib.unified_diff(source.splitlines(), planted.splitlines(), fault.file, fault.file, lineterm="", n=2)
        return {
            "id": fault.id, "part": part, "outcome": outcome, "by": failed[0][:200] if failed else "",
            "seconds": seconds, "tests": _version(self.pristine, part), "diff": "\n".join(diff),
        }  # fmt: skip


class Suite:
    """Some tests, and how long they may take: what they take without a fault, several times, and some to compile."""

    def __init__(self, name: str, tests: tuple[str, ...]):
        self._name = name
        self._tests = tests
        self._lock = Lock()
        self._seconds: float | None = None

    def measure(self, trial: Trial) -> float:
        """Seconds that they take without a fault. Short ones run twice: the first time may compile what the faults find
        compiled."""
        with self._lock:
            for _ in range(2 if self._seconds is None else 0):
                begin = time.monotonic()
                code, output = _pytest(trial.pristine, self._tests, 1800, trial.options.memory, "short")
                self._seconds = time.monotonic() - begin
                if code != 0:
                    raise SystemExit(f"{self._name}: its tests fail without a fault\n{output[-6000:]}")
                print(f"{self._name}: {self._seconds:.1f} s without a fault", flush=True)
                if self._seconds >= 60:
                    break
            assert self._seconds is not None
            return self._seconds

    def notices(self, copy: Path, trial: Trial) -> tuple[str, str]:
        """(what became of the fault in this copy, what the tests said)."""
        limit = trial.options.patience * self.measure(trial) + 90
        code, output = _pytest(copy, self._tests, limit, trial.options.memory)
        return "survived" if code == 0 else "hung" if code is None else "caught", output


def _version(tree: Path, part: str) -> str:
    """Of the tests of a part: another one when any of them has changed."""
    files = sorted({test.split("::")[0] for test in PARTS[part].tests})
    text = "\n".join(PARTS[part].tests) + "".join((tree / file).read_text() for file in files)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _pytest(
    tree: Path, tests: tuple[str, ...], limit: float, memory: float, traceback: str = "no"
) -> tuple[int | None, str]:
    """(exit status, output); None if it did not end in time."""
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", f"--tb={traceback}",
        *tests,
    ]  # fmt: skip
    path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "HYPOTHESIS_PROFILE": "faults"}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (int(memory * GIB),) * 2),
        )  # fmt: skip
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        output.seek(0)
        return code, output.read()


# -- copies and their machine code -----------------------------------------------------------------------------------


def _copy(source: Path, to: Path) -> None:
    to.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, to / name)  # times of change as well: Numba and Python look at them
        else:
            shutil.copy2(source / name, to / name)


def _keep_kernels(module: Path) -> None:
    """Tell Numba that what it has of this module is of the module as it is now: no kernel has changed."""
    stat = module.stat()
    for index in (module.parent / "__pycache__").glob(f"{module.stem}.*.nbi"):
        with index.open("rb") as file:
            version = pickle.load(file)
            _, overloads = pickle.loads(file.read())
        index.unlink()
        with index.open("wb") as file:
            pickle.dump(version, file, protocol=-1)
            file.write(pickle.dumps(((stat.st_mtime, stat.st_size), overloads), protocol=-1))


def _forget_kernels(tree: Path, file: str) -> None:
    """Remove the machine code of all modules that may have a kernel of this one in theirs: Numba does not look."""
    modules = {}
    for path in tree.glob("watersmeet/**/*.py"):
        modules[".".join(path.relative_to(tree).with_suffix("").parts)] = path
    texts = {name: path.read_text() for name, path in modules.items()}
    affected = {".".join(Path(file).with_suffix("").parts)}
    before = 0
    while len(affected) > before:
        before = len(affected)
        affected |= {name for name in texts if any(_imports(name, texts[name], one) for one in affected)}
    for name in affected:
        path = modules[name]
        for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.nb?"):
            cached.unlink()


def _imports(name: str, text: str, other: str) -> bool:
    package, _, module = other.rpartition(".")
    beside = name.rpartition(".")[0] == package
    return f"from {other} import" in text or (beside and f"from .{module} import" in text)


# -- results ---------------------------------------------------------------------------------------------------------


class Results:
    """What became of each fault, in a file that grows with every one."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = Lock()
        self._all: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._all = {one["id"]: one for one in json.loads(path.read_text())}

    def has(self, fault: Fault, tests: str) -> bool:
        """Whether its outcome is known; one that survived is tried again when its tests have changed."""
        known = self._all.get(fault.id)
        return known is not None and (known["outcome"] != "survived" or known["tests"] == tests)

    def add(self, outcome: dict[str, Any]) -> None:
        with self._lock:
            self._all[outcome["id"]] = outcome
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial = self._path.with_suffix(".partial")
            partial.write_text(json.dumps(list(self._all.values()), indent=1))
            partial.replace(self._path)

    def add_caught(self, outcome: dict[str, Any]) -> None:
        """But those that survive are yet to meet other tests."""
        if outcome["outcome"] != "survived":
            self.add(outcome)

    def summary(self, parts: list[str], seed: int, equivalent: dict[str, str]) -> int:
        """Print how many each part's tests have caught; 1 if any survived."""
        by_part = defaultdict(list)
        for one in self._all.values():
            if one["id"] not in equivalent and one["part"] in parts:
                by_part[one["part"]].append(one)
        print(f"\n{'part':20} {'faults':>6} {'caught':>6} {'hung':>5} {'survived':>8}")
        for part in (*parts, "all"):
            mine = by_part[part] if part != "all" else [one for part in parts for one in by_part[part]]
            count = {kind: sum(one["outcome"] == kind for one in mine) for kind in ("caught", "hung", "survived")}
            if mine:
                print(f"{part:20} {len(mine):6} {count['caught']:6} {count['hung']:5} {count['survived']:8}")
        survivors = [one for part in parts for one in by_part[part] if one["outcome"] == "survived"]
        total = sum(map(len, by_part.values()))
        if total:
            print(f"caught: {100 * (1 - len(survivors) / total):.1f} %")
        for one in survivors:
            print(f"\nsurvived: {one['id']}\n{one['diff']}")
        return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
