"""A streaming query without Spark, in a process of its own: it calls the driver as Spark's micro-batch engine does.

Its checkpoint is Spark's: ``offsets/N`` is written before batch N runs, ``commits/N`` after it. Started again, the
query runs a batch that has the one and not the other once more. Its sink is a file for each batch, which is written
over. It stands still at the points of ``points``.

SIGINT ends it after the batch that runs; SIGTERM at once, wherever it is, as Spark does; kill -9 is kill -9.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from faults.programs.points import arm, stand
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import ReadTask

HEAD = "v1\n{}\n"
"""Of Spark's logs, in a version without settings."""


class Log:
    """Numbered files that are there whole or not at all."""

    def __init__(self, directory: Path, head: str = "") -> None:
        self._directory = directory
        self._head = head
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, value: Any) -> None:
        unfinished = self._directory / f".{batch}"
        with unfinished.open("w") as file:
            file.write(self._head + json.dumps(value))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._directory / str(batch))

    def last(self) -> int:
        return max((int(file.name) for file in self._directory.glob("[0-9]*")), default=-1)

    def __getitem__(self, batch: int) -> Any:
        return json.loads((self._directory / str(batch)).read_text().removeprefix(self._head))


class Query:
    """Runs micro-batches until it is asked to end.

    Parameters
    ----------
    point
        Where it stands still in its second batch.
    rng
        Draws limits and pauses; None for neither.
    batch_seconds
        How long a batch takes at most, besides reading.
    shared
        What sources of one application share. Such a query lets time pass before a planned batch begins.
    """

    def __init__(
        self,
        options: Options,
        directory: Path,
        marks: Path,
        point: str | None = None,
        rng: random.Random | None = None,
        batch_seconds: float = 0.0,
        shared: Path | None = None,
    ) -> None:
        self.driver = StreamDriver(options, shared)
        self.ending = threading.Event()
        self._options = options
        self._offsets, self._commits = (Log(directory / "checkpoint" / name, HEAD) for name in ("offsets", "commits"))
        self._out = Log(directory / "out")
        self._marks, self._point = marks, point
        self._rng, self._batch_seconds = rng, batch_seconds
        self._lingers = shared is not None
        self._planned = 0

    def run(self) -> None:
        done = self._commits.last()
        start = self._offsets[done] if done >= 0 else self.driver.initial_offset()
        for batch in range(done + 1, self._offsets.last() + 1):  # at most one, which is replayed
            start = self._batch(batch, start, self._offsets[batch])
        while not self.ending.is_set():
            stand(self._marks, "before-commit")
            end = self.driver.latest_offset(start, self._limit())
            stand(self._marks, "after-commit")
            batch = self._offsets.last() + 1
            if end == start and batch:  # the first batch runs without data too
                self.ending.wait(0.02 if self._rng is None else self._rng.choice([0.01, 0.1, 0.5]))
                continue
            self._offsets.write(batch, end)
            self.driver.commit(start)
            if self._lingers:
                self._pause(self._batch_seconds * 2)
            start = self._batch(batch, start, end)
        self.driver.commit(start)

    def _batch(self, batch: int, start: Any, end: Any) -> Any:
        tasks = list(self.driver.plan(start, end))
        if tasks:
            self._planned += 1
            if self._planned == 2 and self._point is not None:
                arm(self._marks, self._point)
        stand(self._marks, "planned")
        rows: list[tuple[str, int, int, str]] = []
        for ranges in tasks:
            for records in read(ReadTask(tuple(ranges)), self._options):
                columns = (records.column(name).to_pylist() for name in ("topic", "partition", "offset", "value"))
                rows += [(topic, p, at, value.decode()) for topic, p, at, value in zip(*columns, strict=True)]
                stand(self._marks, "tasks")
        self._pause(self._batch_seconds / 2)
        self._out.write(batch, rows)
        stand(self._marks, "sink")
        self._pause(self._batch_seconds / 2)
        self._commits.write(batch, {})
        return end

    def _limit(self) -> int | None:
        given: int | None = self._options.reading.max_offsets_per_trigger
        return given if self._rng is None else self._rng.choice([None, None, 20, 100])

    def _pause(self, most_s: float) -> None:
        if self._rng is not None:
            threading.Event().wait(most_s * self._rng.random())


def exit_once(number: int, frame: object) -> None:
    """As the driver's process does inside Spark."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--name", required=True, help="of this process, for its files")
    parser.add_argument("--options", type=json.loads, required=True)
    parser.add_argument("--point", help="where it stands still in its second batch")
    parser.add_argument("--seed", type=int, help="draws limits and pauses; neither without it")
    parser.add_argument("--batch-seconds", type=float, default=0.0)
    parser.add_argument("--shared", type=Path)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    marks = args.directory / "marks" / args.name
    marks.mkdir(parents=True, exist_ok=True)
    rng = None if args.seed is None else random.Random(args.seed)
    options = Options.parse(args.options)
    query = Query(options, args.directory, marks, args.point, rng, args.batch_seconds, args.shared)
    signal.signal(signal.SIGINT, lambda number, frame: query.ending.set())
    signal.signal(signal.SIGTERM, exit_once)
    try:
        query.run()
    finally:
        query.driver.stop()


if __name__ == "__main__":
    main()
