"""A streaming query without Spark, in a process of its own: it calls the driver as Spark's micro-batch engine does.

The checkpoint is Spark's: ``offsets/N`` is written before batch N runs, ``commits/N`` after it. Started again, the
query runs a batch that has the one and not the other once more. The sink keeps one line a batch; of several for the
same batch the last one counts, as in a sink that is written over.

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

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import ReadTask


def batch_of(offset: Any) -> int:
    """The number that our driver gives a batch; Spark counts empty ones too, of which there is one at the beginning."""
    return int(offset["@group"].get("batch", -1))


class Checkpoint:
    """Numbered files that are there whole or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for log in ("offsets", "commits"):
            (directory / log).mkdir(parents=True, exist_ok=True)

    def write(self, log: str, batch: int, value: Any) -> None:
        path = self._directory / log / str(batch)
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("w") as file:
            file.write(json.dumps(value))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)

    def offset(self, batch: int) -> Any:
        return json.loads((self._directory / "offsets" / str(batch)).read_text())

    def latest(self, log: str) -> int | None:
        return max((int(p.name) for p in (self._directory / log).iterdir() if p.name.isdecimal()), default=None)


class Sink:
    """Rows, a line a batch; a line that was cut off is removed when the query starts again."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            whole = path.read_bytes().rpartition(b"\n")
            path.write_bytes(whole[0] + whole[1])
        self._file = path.open("ab", buffering=0)

    def write(self, batch: int, rows: list[tuple[int, int, str]]) -> None:
        self._file.write(json.dumps({"batch": batch, "rows": rows}).encode() + b"\n")
        os.fsync(self._file.fileno())


class Query:
    """Runs micro-batches until it is asked to end.

    Parameters
    ----------
    batch_seconds
        How long a batch takes at most, besides reading; how long each takes is drawn.
    shared
        What sources of one application share. Such a query lets time pass before a planned batch begins.
    """

    def __init__(
        self,
        options: Options,
        checkpoint: Checkpoint,
        sink: Sink,
        rng: random.Random,
        batch_seconds: float,
        shared: Path | None = None,
    ) -> None:
        self.driver = StreamDriver(options, shared)
        self._lingers = shared is not None
        self.ending = threading.Event()
        self._options = options
        self._checkpoint = checkpoint
        self._sink = sink
        self._rng = rng
        self._batch_seconds = batch_seconds

    def run(self) -> None:
        start, batch = self._resumed()
        while not self.ending.is_set():
            limit = self._rng.choice([None, None, 20, 100])
            end = self.driver.latest_offset(start, limit)
            if end == start and batch:  # the first batch runs without data too
                self.ending.wait(self._rng.choice([0.01, 0.1, 0.5]))
                continue
            self._checkpoint.write("offsets", batch, end)
            self.driver.commit(start)
            if self._lingers:
                self.ending.wait(self._rng.random() * self._batch_seconds * 2)
            self._run_batch(batch, start, end)
            start, batch = end, batch + 1
        self.driver.commit(start)

    def _resumed(self) -> tuple[Any, int]:
        """Where to go on, with a batch that was not finished run again."""
        planned, done = self._checkpoint.latest("offsets"), self._checkpoint.latest("commits")
        if planned is None:
            return self.driver.initial_offset(), 0
        end = self._checkpoint.offset(planned)
        if planned != done:
            start = self._checkpoint.offset(planned - 1) if planned else self.driver.initial_offset()
            self._run_batch(planned, start, end)
        return end, planned + 1

    def _run_batch(self, batch: int, start: Any, end: Any) -> None:
        rows: list[tuple[int, int, str]] = []
        for ranges in self.driver.plan(start, end):
            for records in read(ReadTask(ranges), self._options):
                columns = (records.column(name).to_pylist() for name in ("partition", "offset", "value"))
                rows += [(partition, offset, value.decode()) for partition, offset, value in zip(*columns, strict=True)]
        pause = self._rng.random() * self._batch_seconds
        threading.Event().wait(pause * self._rng.random())
        self._sink.write(batch_of(end), rows)
        threading.Event().wait(pause * self._rng.random())
        self._checkpoint.write("commits", batch, {})


def exit_once(number: int, frame: object) -> None:
    """As the driver's process does inside Spark."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


def arguments() -> argparse.Namespace:
    """Arguments of a query of either kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--options", type=json.loads, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--batch-seconds", type=float, required=True)
    parser.add_argument("--shared", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    rng = random.Random(args.seed)
    options = Options.parse(args.options)
    query = Query(options, Checkpoint(args.checkpoint), Sink(args.rows), rng, args.batch_seconds, args.shared)
    signal.signal(signal.SIGINT, lambda number, frame: query.ending.set())
    signal.signal(signal.SIGTERM, exit_once)
    try:
        query.run()
    finally:
        query.driver.stop()


if __name__ == "__main__":
    main()
