"""A driver whose executor has a GPU by Spark's settings, simulated: joins of several kinds, checked.

    python -m spark.gpu_driver FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from watersmeet.spark.session import session

from .cases import Case, check
from .crash_driver import CONF

TESTS = Path(__file__).parents[1]
MASTER = "local-cluster[1,2,1024]"
CASES = [
    Case("l.k = r.k and l.x < r.x", "tumbling", "full", "hash"),
    Case("abs(l.x - r.x) <= 1", "hopping", "inner", "cells"),
]


def main(folder: Path) -> None:
    script = folder / "gpus.sh"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["0"]}'\n""")
    script.chmod(0o755)
    (folder / "python").mkdir()
    (folder / "python" / "sitecustomize.py").write_text("import simulator\n\nsimulator.make_quick()\n")
    path = f"{folder / 'python'}:{TESTS / 'device'}:{os.environ['PYTHONPATH']}"
    gpus = {
        "spark.worker.resource.gpu.amount": "1",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "1",
        "spark.executor.resource.gpu.discoveryScript": str(script),
        "spark.task.resource.gpu.amount": "0.5",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.executorEnv.NUMBA_ENABLE_CUDASIM": "1",
        "spark.executorEnv.PYTHONPATH": path,
    }
    spark = session(MASTER, conf=CONF | gpus | {"spark.local.dir": str(folder / "local")})
    check(spark, folder, CASES, rows=100, device="gpu")
    spark.stop()
    print("all the same", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
