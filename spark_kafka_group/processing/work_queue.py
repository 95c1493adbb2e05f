"""The records of a task that its workers share: who may take which records when, and how each ended.

Records come in cells, and workers take slices. A lane keeps an order: that of a partition, or that of the keys with one
hash. One worker at a time takes from a lane, and a record that waits for its next attempt holds the lane up. Without an
order there is one lane, from which all workers take at once. A sliding window tells how far the records of a partition
are done when their cells finish in any order.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from spark_kafka_group.errors import HandlerStalledError, ProcessingError, UnwritableRowError
from spark_kafka_group.executor.writing.sink_columns import OutputRow, OutputRows
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.processing.record import ProducerRecord, Record, rows_of
from spark_kafka_group.values.error_headers import Failure

log = logging.getLogger(__name__)


class Cell:
    """Consecutive records of a partition. `left`: records that are neither done nor handed on."""

    __slots__ = ("end", "left", "partition", "records", "since", "start")

    def __init__(self, partition: tuple[str, int], records: list[Record]) -> None:
        self.partition = partition
        self.records = records
        self.start = records[0].offset
        self.end = records[-1].offset + 1
        self.left = len(records)
        self.since = 0.0


def cells_of(records: Iterable[Record], cell_records: int) -> Iterator[Cell]:
    """Cut records, which come in offset order within their partitions, into cells."""
    open_cells: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        partition = record[2:4]
        cell = open_cells.get(partition)
        if cell is None:
            cell = open_cells[partition] = []
        cell.append(record)
        if len(cell) >= cell_records:
            yield Cell(partition, open_cells.pop(partition))
    for partition, cell in open_cells.items():
        yield Cell(partition, cell)


class Window:
    """Cells in flight, at most so many. For one thread at a time. A finished cell stays in the window until every cell
    of its partition before it has finished."""

    def __init__(self, cells: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._cells = cells
        self._clock = clock
        self._flying: dict[tuple[str, int], deque[Cell]] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._size = 0
        self.most_records = 0
        self.oldest_s = 0.0
        self._records = 0

    @property
    def full(self) -> bool:
        return self._size >= self._cells

    @property
    def empty(self) -> bool:
        return self._size == 0

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """By topic and partition, the offset up to which everything is done: where a consumer would commit."""
        return dict(self._positions)

    def admit(self, cell: Cell) -> None:
        cell.since = self._clock()
        flying = self._flying.setdefault(cell.partition, deque())
        if not flying:
            self._positions.setdefault(cell.partition, cell.start)
        flying.append(cell)
        self._size += 1
        self._records += len(cell.records)
        self.most_records = max(self.most_records, self._records)

    def slide(self, partition: tuple[str, int]) -> bool:
        """Drop the finished cells at the beginning of a partition's window; whether there were any."""
        flying, moved = self._flying[partition], False
        while flying and flying[0].left == 0:
            cell = flying.popleft()
            self._positions[partition] = cell.end
            self._size -= 1
            self._records -= len(cell.records)
            self.oldest_s = max(self.oldest_s, self._clock() - cell.since)
            moved = True
        return moved


TAKE_S = 0.002
"""How much work a slice without an order is. With less, workers wait for each other. With more, the last workers idle
while one still has many records."""

LANES_PER_THREAD = 4
"""Lanes of a partition whose keys have an order. With more lanes fewer keys share one, and each lane costs a little."""

HandOn = Callable[[Record, Failure], tuple[str, OutputRow]]
"""Takes a record, and why its handler failed; gives the counter, ``retried`` or ``dead``, and a row for the next topic.
Raises ProcessingError if the record has none."""


class QueuedChunk:
    """Records of a cell in one lane that no worker has taken; `tries` counts the attempts at the first of them."""

    __slots__ = ("at", "cell", "records", "tries")

    def __init__(self, cell: Cell, records: Sequence[Record], tries: int = 0) -> None:
        self.cell, self.records, self.tries, self.at = cell, records, tries, 0


class Lane:
    """Chunks in order. `held`: the lane is not for workers: it is offered already, a worker has not finished its slice,
    or its first record waits for its next attempt."""

    __slots__ = ("chunks", "held", "shared")

    def __init__(self, shared: bool) -> None:
        self.chunks: deque[QueuedChunk] = deque()
        self.shared = shared
        self.held = False


@dataclass(eq=False, slots=True)
class Slice:
    """Records that a worker has taken, to be handled in order."""

    lane: Lane
    cell: Cell
    records: Sequence[Record]
    tries: int  # earlier attempts at the first record
    # Whether the worker has released the lane before the end of the slice, because a record waits for its next attempt
    left: bool = False


@dataclass(slots=True)
class Counts:
    """Records by how they ended; `tries_again` counts local retries, `stalled` abandoned handlers."""

    records: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    tries_again: int = 0
    stalled: int = 0


class WorkQueue:
    """Records between the thread that brings them and the workers that handle them, and rows on their way back.
    Thread-safe."""

    def __init__(self, settings: Settings, hand_on: HandOn, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._next_of = hand_on
        self._clock = clock
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._window = Window(settings.window_cells, clock)
        self._output = OutputRows()
        self._lanes: dict[object, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._lanes_backing_off: list[tuple[float, int, Lane]] = []
        self._retries: list[tuple[float, int, QueuedChunk]] = []
        self._number = 0
        self._record_s = TAKE_S
        self._closed = False
        self._error: BaseException | None = None
        self.counts = Counts()
        self._encoded: Callable[[Sequence[ProducerRecord]], Sequence[ProducerRecord]] | None = None
        if settings.formats is not None:
            from spark_kafka_group.processing.typed_output import OutputEncoder  # few processors have formats

            self._encoded = OutputEncoder(settings.formats).encoded

    # For the thread that brings records

    def process(self, records: Iterable[Record]) -> Iterator[list[OutputRow]]:
        """Admit all records, cell by cell, each when the window has room, and end when all are settled. Gives rows to
        write, many at a time. While the caller writes them no cell is admitted, so no more rows wait than those of a
        window. Raises ProcessingError: the first error of a record that could neither be handled nor be handed on."""
        try:
            for cell in cells_of(records, self._settings.cell_records):
                while rows := self._rows_before(lambda: not self._window.full):
                    yield rows
                with self._lock:
                    self._admit(cell)
            with self._lock:
                self._closed = True
                self._work.notify_all()
            while rows := self._rows_before(lambda: self._window.empty):
                yield rows
            if rows := self._output.take_rows():
                yield rows
        except BaseException as error:
            self.abort(error)
            raise

    def _rows_before(self, ready: Callable[[], bool]) -> list[OutputRow]:
        """Wait until `ready`, or for rows to write before that; none when it is."""
        with self._lock:
            self._room.wait_for(lambda: ready() or self._output.due or self._error is not None)
            self._raise()
            return self._output.take_rows() if self._output.due else []

    def abort(self, error: BaseException) -> None:
        """End the work: workers get no more records, and :meth:`process` raises `error`."""
        with self._lock:
            self._fail(error)

    @property
    def most_in_flight(self) -> int:
        """The most records that the window held."""
        return self._window.most_records

    @property
    def oldest_s(self) -> float:
        """The longest time a cell stayed in the window."""
        return self._window.oldest_s

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """By topic and partition, the offset up to which all records are done."""
        with self._lock:
            return self._window.positions

    # For workers

    def take_slice(self) -> Slice | None:
        """Wait for the next records to handle; None when the work is over."""
        with self._lock:
            while True:
                if self._error is not None or (self._closed and self._window.empty):
                    return None
                due_s = self._resume()
                if self._ready:
                    return self._cut()
                self._work.wait(due_s)

    def finished(self, taken: Slice, done: int, seconds: float) -> None:
        """A worker ends its slice, with `done` records done. Called once for each slice."""
        with self._lock:
            self.counts.done += done
            if done:
                self._record_s += (seconds / done - self._record_s) / 8
            self._settle(taken.cell, done)
            if not taken.lane.shared and not taken.left:
                taken.lane.held = False
                self._offer(taken.lane)

    @property
    def asks_registries(self) -> bool:
        """Whether :meth:`returned` may wait for a schema registry."""
        return self._encoded is not None

    def returned(self, record: Record, result: object) -> UnwritableRowError | None:
        """A handler has returned something, materialized, for a record. The record is done, unless this gives an error
        of the record."""
        try:
            rows = rows_of(record, result, self._settings, self._encoded)
        except UnwritableRowError as error:
            return error
        except ProcessingError as error:
            self.abort(error)
            return None
        with self._lock:
            self._add_output(rows)
        return None

    def failed(self, taken: Slice, at: int, error: BaseException) -> bool:
        """The handler failed for a record of a slice. Returns whether the worker must release the rest of the slice."""
        record, tries = taken.records[at], (taken.tries if at == 0 else 0) + 1
        fatal = isinstance(error, (*self._settings.fatal, UnwritableRowError))
        if not fatal and tries <= self._settings.max_local_retries:
            pause_s = self._settings.backoff.seconds(tries)
            log.info("%s: attempt %d failed, again in %.1f s: %r", record, tries, pause_s, error)
            with self._lock:
                return self._retry_later(taken, at, tries, pause_s)
        self._hand_on(taken.cell, record, error, fatal)
        return False

    def stalled(self, taken: Slice, at: int, done: int, seconds: float, ran_s: float) -> None:
        """A worker was abandoned over a record of its slice: end the slice, and leave its rest to other workers."""
        log.warning("%s: its handler has not returned for %.1f s and is abandoned", taken.records[at], ran_s)
        error = HandlerStalledError(f"the handler has not returned within stall_timeout_ms, for {ran_s * 1000:.0f} ms")
        with self._lock:
            self.counts.stalled += 1
            if at + 1 < len(taken.records):
                taken.lane.chunks.appendleft(QueuedChunk(taken.cell, taken.records[at + 1 :]))
                if taken.lane.shared:
                    self._offer(taken.lane)
        alone = Slice(taken.lane, taken.cell, (taken.records[at],), taken.tries if at == 0 else 0)
        taken.left = self.failed(alone, 0, error)
        self.finished(taken, done, seconds)

    # With the lock held

    def _admit(self, cell: Cell) -> None:
        self._window.admit(cell)
        self.counts.records += cell.left
        ordering = self._settings.ordering
        if ordering == "unordered":
            self._add(None, QueuedChunk(cell, cell.records))
        elif ordering == "partition":
            self._add(cell.partition, QueuedChunk(cell, cell.records))
        else:
            lanes = LANES_PER_THREAD * self._settings.threads
            by_lane: dict[int, list[Record]] = {}
            for record in cell.records:
                # Records without a key have no order.
                lane = (record.offset if record.key is None else hash(record.key)) % lanes
                by_lane.setdefault(lane, []).append(record)
            for lane, records in by_lane.items():
                self._add((*cell.partition, lane), QueuedChunk(cell, records))

    def _add(self, key: object, chunk: QueuedChunk) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(shared=key is None)
        lane.chunks.append(chunk)
        self._offer(lane)

    def _offer(self, lane: Lane) -> None:
        """Offer a lane to workers, if it has records and is not held."""
        if lane.chunks and not lane.held:
            lane.held = True
            self._ready.append(lane)
            self._work.notify()

    def _cut(self) -> Slice:
        lane = self._ready[0]
        chunk = lane.chunks[0]
        left = len(chunk.records) - chunk.at
        take = max(1, min(left, int(TAKE_S / self._record_s))) if lane.shared else left
        taken = Slice(lane, chunk.cell, chunk.records[chunk.at : chunk.at + take], chunk.tries)
        chunk.at += take
        if take == left:
            lane.chunks.popleft()
        if not lane.shared:
            self._ready.popleft()
        elif not lane.chunks:
            self._ready.popleft()
            lane.held = False
        if self._ready:
            self._work.notify()  # another worker can take a slice too
        return taken

    def _retry_later(self, taken: Slice, at: int, tries: int, pause_s: float) -> bool:
        self.counts.tries_again += 1
        self._number += 1
        due = self._clock() + pause_s
        retry = QueuedChunk(taken.cell, (taken.records[at],), tries)
        if taken.lane.shared:
            heapq.heappush(self._retries, (due, self._number, retry))
            self._work.notify()
            return False
        if at + 1 < len(taken.records):
            taken.lane.chunks.appendleft(QueuedChunk(taken.cell, taken.records[at + 1 :]))
        taken.lane.chunks.appendleft(retry)
        taken.left = True
        heapq.heappush(self._lanes_backing_off, (due, self._number, taken.lane))
        self._work.notify()
        return True

    def _resume(self) -> float | None:
        """Offer the lanes and retries that are due; seconds until the next one, or None."""
        now = self._clock()
        while self._lanes_backing_off and self._lanes_backing_off[0][0] <= now:
            lane = heapq.heappop(self._lanes_backing_off)[2]
            lane.held = False
            self._offer(lane)
        while self._retries and self._retries[0][0] <= now:
            lane = self._lanes[None]
            lane.chunks.appendleft(heapq.heappop(self._retries)[2])
            self._offer(lane)
        due = [heap[0][0] for heap in (self._lanes_backing_off, self._retries) if heap]
        return max(0.0, min(due) - now) if due else None

    def _settle(self, cell: Cell, records: int) -> None:
        cell.left -= records
        if cell.left == 0 and self._window.slide(cell.partition):
            self._room.notify()
            if self._closed and self._window.empty:
                self._work.notify_all()

    def _add_output(self, rows: Sequence[OutputRow]) -> None:
        self._output.add(rows)
        if self._output.due:
            self._room.notify()

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._work.notify_all()
        self._room.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # Without the lock

    def _hand_on(self, cell: Cell, record: Record, error: BaseException, fatal: bool) -> None:
        try:
            counter, row = self._next_of(record, Failure.from_error(error, fatal))
        except Exception as problem:  # noqa: BLE001 - raised by process()
            problem.__cause__ = error
            self.abort(problem)
            return
        with self._lock:
            setattr(self.counts, counter, getattr(self.counts, counter) + 1)
            self._add_output([row])
            self._settle(cell, 1)
