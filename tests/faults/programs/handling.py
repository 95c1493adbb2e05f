"""A handler of a RecordProcessor that fails as a record's name says, and writes each of its calls down."""

from __future__ import annotations

import os
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_group import ProducerRecord, Record
from spark_kafka_group.values.retry_topics import delay_of

DELAYS_MS = (2_000, 5_000)
DEAD_LETTERS = "{topic}-dlt"
DONE, FAILED, FATAL = "done", "failed", "fatal"
_failed: set[tuple[str, int, int]] = set()
_files: dict[Path, int] = {}
_opening = threading.Lock()


class RefusedError(Exception):
    """A record that fails, and may be tried again."""


class HopelessError(Exception):
    """A record that is not to be tried again."""


def outcome_of(value: str, stage: int, tried: bool) -> str:
    """How a call ends: of 20 records one is hopeless, one fails always, and four fail for a while.

    Parameters
    ----------
    stage
        0 in the main topic, then the number of the retry topic.
    tried
        Whether this process has tried the record before, at the same place.
    """
    match zlib.crc32(value.encode()) % 20:
        case 0:
            return FATAL
        case 1:
            return FAILED
        case 2:
            return DONE if stage >= 2 else FAILED
        case 3 | 4:
            return DONE if stage >= 1 else FAILED
        case 5:
            return DONE if tried else FAILED
    return DONE


@dataclass(frozen=True)
class Handler:
    """Writes a line for each call into a file of its process: when it began, how it ended, and the record."""

    folder: Path

    def __call__(self, record: Record) -> None:
        at_ms = time.time() * 1000
        assert record.value is not None
        value, place = record.value.decode(), (record.topic, record.partition, record.offset)
        delay = delay_of(record.topic, DELAYS_MS)
        outcome = outcome_of(value, 0 if delay is None else DELAYS_MS.index(delay) + 1, place in _failed)
        line = "\t".join(map(str, (f"{at_ms:.3f}", outcome, record.timestamp, *place, value)))
        os.write(self._file(), f"{line}\n".encode())
        if outcome == FATAL:
            raise HopelessError(value)
        if outcome == FAILED:
            _failed.add(place)
            raise RefusedError(value)

    def _file(self) -> int:
        path = self.folder / f"{os.getpid()}.tsv"
        with _opening:
            if path not in _files:
                _files[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            return _files[path]


@dataclass(frozen=True)
class ReturningHandler:
    """The same, and returns a record that is done, with a key that says where `query` has read it."""

    handler: Handler
    query: str

    def __call__(self, record: Record) -> ProducerRecord:
        self.handler(record)
        return ProducerRecord(record.value, key=f"{self.query} {record.topic} {record.partition} {record.offset}")
