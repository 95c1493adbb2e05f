"""A log in memory, searched and sent as by a broker: for tests of reading bytes that no broker should send.

A broker finds an offset by its index and goes on from header to header, as far as lengths lead. ``tests/spark`` has the
same cases on a real one.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka.errors import CorruptRecordError

from spark_kafka_group.errors import BrokerError, ReadError
from spark_kafka_group.executor.reading.read import records
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import FetchedPartition, FetchError
from spark_kafka_group.wire.outage import TaskOutage

TP = TopicPartition("orders", 3)
DAMAGED = FetchError.from_code(CorruptRecordError.errno, TP.topic)


class DamagedError(Exception):
    """A broker's CorruptRecordException."""


class Served:
    """A log with the interface of ``Brokers``, and the requests to it.

    Parameters
    ----------
    end
        Offset after the last record.
    index
        Offsets, each with the byte of a record batch at which a broker begins to look for that offset and later ones.
    aborted
        Producer id, first offset and offset of the marker of aborted transactions; None under read_uncommitted.
    """

    retry_backoff_s = 0.0

    def __init__(
        self,
        log: bytes,
        end: int,
        index: Mapping[int, int] | None = None,
        aborted: Sequence[tuple[int, int, int]] | None = None,
    ) -> None:
        self.log, self.end, self.index, self.aborted = log, end, dict(index or {}), aborted
        self.asked: list[int] = []

    def connect(self, options: Options) -> Connection:
        return Connection(self, options)

    def fetch(self, offset: int, most: int) -> FetchedPartition:
        self.asked.append(offset)
        stable = None if self.aborted is None else self.end
        try:
            found = self._find(offset)
        except DamagedError:
            return FetchedPartition(TP, DAMAGED, -1, stable, (), memoryview(b""))
        sent = b"" if found is None else self.log[found[0] : found[0] + max(most, found[1])]
        hidden = tuple((p, first) for p, first, marker in self.aborted or () if marker >= offset)
        return FetchedPartition(TP, None, self.end, stable, hidden, memoryview(bytearray(sent)))

    def _find(self, offset: int) -> tuple[int, int] | None:
        """Byte and size of the first record batch that ends after `offset`, as headers have it."""
        log, before, last = self.log, None, -1
        at = max((byte for first, byte in self.index.items() if first <= offset), default=0)
        while at < len(log) - 17:
            base_offset, length, _, magic = struct.unpack_from(">qiib", log, at)
            if length < 14:
                raise DamagedError
            if at > len(log) - 12 - length:
                break
            if base_offset == offset:
                return at, 12 + length
            if base_offset > offset:
                return before if before is not None and last >= offset else (at, 12 + length)
            before = at, 12 + length
            last = base_offset
            if magic >= 2 and at + 27 <= len(log):
                last += struct.unpack_from(">i", log, at + 23)[0]
            at += 12 + length
        return before if before is not None and last >= offset else None


class Connection:
    """As ``Brokers`` and as the ``FetchConnection`` that they have."""

    retry_backoff_s = 0.0
    nearest = None

    def __init__(self, served: Served, options: Options) -> None:
        self._served, self._most, self._owed = served, options.fetching.most_of_partition, list[int]()

    def leaders(self, tps: Any, refresh: bool, topic_ids: Any = None) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 1)

    def log_bounds(self, tp: TopicPartition) -> tuple[int, int]:
        return 0, self._served.end

    def connection(self, node_id: int) -> Connection:
        return self

    def send(
        self,
        positions: Mapping[TopicPartition, int],
        epochs: Any = None,
        rack: str = "",
        topic_ids: Any = None,
        sizes: Any = None,
    ) -> None:
        self._owed.append(positions[TP])

    def receive(self) -> list[FetchedPartition]:
        return [self._served.fetch(self._owed.pop(0), self._most)]

    def drop_busy(self) -> None:
        self._owed.clear()

    def speak(self, speaks: bool) -> None:
        pass

    def close(self) -> None:
        self._owed.clear()


class Result:
    """The result of a task that reads a log."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.batches: list[int] = []  # rows of each
        self.left_out: list[tuple[int, int]] = []
        self.warnings: list[str] = []
        self.error: str | None = None

    @property
    def missing(self) -> list[int]:
        return [offset for first, last in self.left_out for offset in range(first, last + 1)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def warnings_of(result: Result) -> Iterator[None]:
    """Collects the gaps that the log lines name."""

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            result.warnings.append(record.getMessage())
            if isinstance(record.args, tuple) and hasattr(record.args[0], "following"):
                left_out = record.args[0]
                result.left_out.append((left_out.first, left_out.following - 1))

    log, noting = logging.getLogger("spark_kafka_group.executor.reading.damage.on_corrupt_record"), Noting()
    log.addHandler(noting)
    propagate, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.removeHandler(noting)
        log.propagate = propagate


def read_all(
    served: Served,
    decoder: str,
    start: int = 0,
    end: int | None = None,
    outage: TaskOutage | None = None,
    **more: object,
) -> Result:
    """Read a range as a task does; the whole log if no end is given.

    By default it leaves out corrupt records, and waits for longer than a busy machine needs.
    """
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TP.topic, "decoder": decoder}
    settings |= {"onCorruptRecord": "skip", "kafkaConsumer.pollTimeoutMs": "60000"}
    options = Options.parse(settings | {name: str(value) for name, value in more.items()})
    task = ReadTask((OffsetRange(TP, start, served.end if end is None else end),))
    result = Result()
    with warnings_of(result):
        try:
            brokers: Any = served.connect(options)
            for batch in records(task, options, brokers, served.connect, outage):  # type: ignore[arg-type]
                result.rows += batch.column("offset").to_pylist()
                result.batches.append(batch.num_rows)
        except (ReadError, BrokerError) as error:
            result.error = f"{type(error).__name__}: {error}"
    return result
