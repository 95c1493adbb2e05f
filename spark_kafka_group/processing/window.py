"""The sliding window: how far the records of a partition are done when their cells finish in any order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from spark_kafka_group.processing.record import Record


class Cell:
    """Consecutive records of a partition.

    Attributes
    ----------
    left
        Records that are neither done nor handed on.
    """

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
    """Cells in flight, at most so many. For one thread at a time.

    A finished cell stays in the window until every cell of its partition before it has finished.
    """

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
