"""DataFusion's symmetric hash join over two unbounded tables, for A2.

DataFusion plans a SymmetricHashJoinExec when both inputs are unbounded; their declared order (WITH ORDER) and
the time bounds of the predicate let it drop old rows. From Python an unbounded table can only be declared
over a stream of CSV or JSON text. Two forms are timed, because neither is always the faster:

    csv     the streams as CSV, so that its time includes parsing
    arrow   the streams as Arrow files, made unbounded by a UNION ALL with an empty unbounded table: nothing to
            parse, but DataFusion then merges the inputs of the union by time

Times are plain integers in both: on timestamps and intervals it is much slower. It takes no pushes: it reads
each stream to its end, in steps of `batch_rows`, and is timed over the whole, the first seconds, when the
window is not yet full, included.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.csv

from watersmeet.bench.checksum import Checksum
from watersmeet.bench.machine import cores
from watersmeet.bench.peers import COLUMNS, NAMES, DataFusion
from watersmeet.bench.workloads import SIDES, Workload


@dataclass(frozen=True)
class Pass:
    """One pass over the streams."""

    form: str
    seconds: float
    check: Checksum


class SymmetricHashJoin:
    """Writes the first `rows` rows of each stream to files, then joins them as often as asked."""

    name, forms = "DataFusion symmetric hash join", ("csv", "arrow")
    missing = DataFusion.missing

    def __init__(self, workload: Workload, rows: int) -> None:
        self.workload, self.rows = workload, rows
        memory = Path("/dev/shm")
        self.folder = tempfile.TemporaryDirectory(prefix="watersmeet-bench-", dir=memory if memory.is_dir() else None)
        for side in SIDES:
            options = pyarrow.csv.WriteOptions(include_header=False)
            pyarrow.csv.write_csv(self.stream(side), f"{self.folder.name}/{side}.csv", options)
            Path(f"{self.folder.name}/empty_{side}.csv").touch()

    def close(self) -> None:
        self.folder.cleanup()

    def stream(self, side: str) -> pa.Table:
        table = pa.Table.from_batches([self.workload.rows(side, 0, self.rows)])
        return table.set_column(0, "ts", table.column("ts").cast(pa.int64()))

    def run(self, batch_rows: int, form: str) -> Pass:
        """Join the streams from start to end, batches of so many rows at a time."""
        span = self.workload.window_us
        query = f"""select {COLUMNS} from "left" l join "right" r
            on l.key = r.key and r.ts >= l.ts - {span} and r.ts <= l.ts + {span}"""
        context = self.context(batch_rows, form)
        explained = context.sql(f"explain {query}").collect()
        plan = "".join(str(text) for batch in explained for text in batch.column(1))
        if "SymmetricHashJoinExec" not in plan:
            raise RuntimeError(f"DataFusion did not plan a symmetric hash join:\n{plan}")
        start = perf_counter()
        results = [batch.to_pyarrow() for batch in context.sql(query).execute_stream()]
        seconds = perf_counter() - start
        table = pa.Table.from_batches(results)
        return Pass(form, seconds, Checksum.of_table(table, NAMES))

    def context(self, batch_rows: int, form: str):
        from datafusion import SessionConfig, SessionContext

        settings = {
            "datafusion.execution.batch_size": str(batch_rows),
            "datafusion.optimizer.repartition_file_scans": "false",  # a stream is one input
        }
        context = SessionContext(SessionConfig(settings).with_target_partitions(cores()))
        columns = '(ts bigint, "key" bigint, value bigint)'
        for side in SIDES:
            text = side if form == "csv" else f"empty_{side}"
            context.sql(
                f"""create unbounded external table "{text}" {columns} stored as csv with order (ts asc)
                location '{self.folder.name}/{text}.csv' options ('format.has_header' 'false')"""
            ).collect()
            if form == "arrow":
                context.sql(
                    f"""create external table arrow_{side} {columns} stored as arrow with order (ts asc)
                    location '{self.arrow_file(side, batch_rows)}'"""
                ).collect()
                context.sql(
                    f'create view "{side}" as select * from arrow_{side} union all select * from empty_{side}'
                ).collect()
        return context

    def arrow_file(self, side: str, batch_rows: int) -> Path:
        """The stream in batches of so many rows, written when first asked for."""
        path = Path(f"{self.folder.name}/{side}_{batch_rows}.arrow")
        if not path.exists():
            table = self.stream(side)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=batch_rows)
        return path
