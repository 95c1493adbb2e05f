"""A query without Spark, in a process of its own: calls the driver as Spark does; its checkpoint and sink are files.

It stops at a chosen point of its second batch, as ``query.py`` does, where the points are described, and takes the same
arguments. What it has read is in ``<directory>/out``, a file per batch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from faults.programs.kill_query import wait_at
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import ReadTask


class Log:
    """Spark's logs of offsets or of commits: a file per batch, which is there as a whole or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, value: Any) -> None:
        new = self._directory / f".{batch}"
        new.write_text(json.dumps(value))
        new.rename(self._directory / str(batch))

    def last(self) -> int:
        return max((int(file.name) for file in self._directory.glob("[0-9]*")), default=-1)

    def __getitem__(self, batch: int) -> Any:
        return json.loads((self._directory / str(batch)).read_text())


class Query:
    """Runs micro-batches as Spark's MicroBatchExecution orders its calls."""

    def __init__(self, options: Options, directory: Path, point: str) -> None:
        self._options = options
        self._driver = StreamDriver(options)
        self._offsets, self._commits, self._out = (Log(directory / name) for name in ("offsets", "commits", "out"))
        self._marks, self._point = directory / "marks", point
        self._planned = 0

    def run(self) -> None:
        done = self._commits.last()
        start = self._offsets[done] if done >= 0 else self._driver.initial_offset()
        for batch in range(done + 1, self._offsets.last() + 1):  # at most one, which is replayed
            start = self._batch(batch, start, self._offsets[batch])
        while True:
            self._stop_at("before-commit")
            end = self._driver.latest_offset(start, self._options.reading.max_offsets_per_trigger)
            self._stop_at("after-commit")
            if end != start:
                batch = self._offsets.last() + 1
                self._offsets.write(batch, end)
                start = self._batch(batch, start, end)

    def _batch(self, batch: int, start: Any, end: Any) -> Any:
        self._planned += 1
        self._stop_at("planned")
        values = []
        for ranges in self._driver.plan(start, end):
            for rows in read(ReadTask(tuple(ranges)), self._options):
                values += [int(value.as_py()[1:]) for value in rows.column("value")]
                self._stop_at("tasks")
        self._out.write(batch, values)
        self._stop_at("sink")
        self._commits.write(batch, None)
        return end

    def _stop_at(self, point: str) -> None:
        if point == self._point and self._planned == 2:
            wait_at(self._marks, point)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--point", default="none")
    args = parser.parse_args()
    (args.directory / "marks").mkdir(parents=True, exist_ok=True)
    Query(Options.parse(dict(o.split("=", 1) for o in args.option)), args.directory, args.point).run()


if __name__ == "__main__":
    main()
