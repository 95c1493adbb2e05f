"""Events that members of a group wrote, a line of JSON each, read from files and merged by time.

::

    {"time_ms": 1700000000000.0, "event": "assigned", "group": "g", "member": "a", "generation": 7,
     "partitions": {"orders": [0, 1]}}                                 everything owned in that generation
    {..., "event": "revoked", "partitions": {"orders": [1]}}           no longer owned; "lost" likewise
    {..., "event": "planned", "batch": 3, "ranges": {"orders": {"0": [120, 180]}}, "replay": true}
    {..., "event": "committed", "batch": 3, "offsets": {"orders": {"0": 180}}}
    {..., "event": "moved", "positions": {"orders": {"0": {"from": 180, "to": 40, "why": "..."}}}}
    {..., "event": "stopped"}

The time of a commit is best taken before the commit is sent: a member that goes on from it does so later.
"""

from __future__ import annotations

import heapq
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spark_kafka_group.text.foreign_text import excerpt, parsed
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

MOST_MS = 2**63
LONGEST_LINE = 2**24  # bytes. An event of 100,000 partitions has a fourth of them.
MOST_SHARED = 100_000
NOTHING: Mapping[TopicPartition, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Move:
    """A start that is not the end of the batch before, and why; the position before is None where there was none."""

    before: int | None
    to: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One line. Fields of other kinds are empty; ``where`` is the file and the line."""

    time_ms: float
    kind: str
    group: str
    member: str
    generation: int
    where: str = ""
    partitions: frozenset[TopicPartition] = frozenset()
    batch: int | None = None
    ranges: tuple[OffsetRange, ...] = ()
    replay: bool = False
    offsets: Mapping[TopicPartition, int] = field(default_factory=lambda: NOTHING)
    moves: Mapping[TopicPartition, Move] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True)
class Run:
    """The events of a run in order of time, and remarks about the files they came from."""

    events: tuple[Event, ...]
    remarks: tuple[str, ...]


def read_run(paths: Iterable[Path]) -> Run:
    """Events of all files, merged by time. Raises ToolError when a file cannot be read, or a line is no event; but the
    last line of a file may be cut off, as a writer that was killed leaves it."""
    files, remarks = [], []
    for path in paths:
        events, remark = _read_file(path)
        files.append(events)
        remarks += [remark] if remark else []
    return Run(merge(files), tuple(remarks))


def merge(files: Iterable[Sequence[Event]]) -> tuple[Event, ...]:
    """Events in order of time; those of one file stay in its order even where a clock was set back."""
    return tuple(heapq.merge(*files, key=lambda event: event.time_ms))


def parse(line: str, where: str = "") -> Event:
    """One line as an event. Raises ValueError with the reason."""
    obj = parsed(line)
    if not isinstance(obj, dict):
        raise ValueError("not a JSON object")
    time_ms = _get(obj, "time_ms", float, int)
    if not abs(time_ms) < MOST_MS:  # nor is NaN
        raise ValueError(f"'time_ms' is {time_ms}")
    event = Event(
        time_ms=time_ms,
        kind=_get(obj, "event", str),
        group=sys.intern(_get(obj, "group", str)),
        member=sys.intern(_get(obj, "member", str)),
        generation=_get(obj, "generation", int),
        where=where,
    )
    match event.kind:
        case "assigned" | "revoked" | "lost":
            return replace(event, partitions=frozenset(_partitions(_get(obj, "partitions", dict))))
        case "planned":
            ranges = tuple(_range(tp, bounds) for tp, bounds in _by_partition(obj, "ranges"))
            replay = "replay" in obj and _get(obj, "replay", bool)
            return replace(event, batch=_get(obj, "batch", int), ranges=ranges, replay=replay)
        case "committed":
            offsets = {tp: _typed(offset, f"offset of {tp}", int) for tp, offset in _by_partition(obj, "offsets")}
            return replace(event, batch=_get(obj, "batch", int), offsets=offsets)
        case "moved":
            return replace(event, moves={tp: _move(tp, move) for tp, move in _by_partition(obj, "positions")})
        case "stopped":
            return event
        case unknown:
            raise ValueError(f"event {excerpt(unknown)} is not known")


def _read_file(path: Path) -> tuple[list[Event], str | None]:
    events: list[Event] = []
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a device or a pipe may have no end
            raise ToolError(f"{path} cannot be read: it is no regular file. Write the events into one")
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
                where = f"{path}:{number}"
                if len(line) == LONGEST_LINE:
                    raise ToolError(f"{where}: not an event: the line has {LONGEST_LINE:,} bytes or more")
                if not line.strip():
                    continue
                try:
                    events.append(parse(line.removesuffix(b"\n").decode(), where))
                except ValueError as error:
                    if not line.endswith(b"\n"):  # then it is the last
                        return events, f"{where}: cut off, ignored"
                    raise ToolError(f"{where}: not an event: {error}") from error
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}") from error
    return events, None


def _typed(value: object, what: str, *types: type) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError(f"{what} is {excerpt(value)}")
    return value


def _get(obj: Mapping[str, Any], name: str, *types: type) -> Any:
    if name not in obj:
        raise ValueError(f"there is no {name!r}")
    return _typed(obj[name], repr(name), *types)


def _partitions(topics: Mapping[str, Any]) -> Iterator[TopicPartition]:
    for topic, numbers in topics.items():
        for number in _typed(numbers, f"the value of topic {topic}", list):
            yield _tp(topic, _typed(number, f"a partition of {topic}", int))


def _by_partition(obj: Mapping[str, Any], name: str) -> Iterator[tuple[TopicPartition, Any]]:
    for topic, values in _get(obj, name, dict).items():
        for number, value in _typed(values, f"the value of topic {topic}", dict).items():
            yield _tp(topic, int(number)), value


@lru_cache(maxsize=MOST_SHARED)
def _tp(topic: str, partition: int) -> TopicPartition:
    """Each once, however many events name it: a long log is little else."""
    return TopicPartition(topic, partition)


def _range(tp: TopicPartition, bounds: object) -> OffsetRange:
    match bounds:
        case [int(start), int(end)] if 0 <= start <= end:
            return OffsetRange(tp, start, end)
    raise ValueError(f"range of {tp} is {excerpt(bounds)}")


def _move(tp: TopicPartition, move: object) -> Move:
    obj = _typed(move, f"position of {tp}", dict)
    before = _typed(obj.get("from"), f"'from' of {tp}", int, type(None))
    return Move(before, _get(obj, "to", int), _typed(obj.get("why", ""), f"'why' of {tp}", str, type(None)) or "")
