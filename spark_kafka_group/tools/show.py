"""How values look in a terminal: tables, times, and who wrote a commit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from spark_kafka_group.offsets import TopicPartition

NOTHING = "-"


@dataclass(frozen=True)
class Note:
    """What a query of this project writes into the metadata of its commits; the batch is None where it has none."""

    reader: str
    generation: int
    batch: int | None

    def __str__(self) -> str:
        batch = "" if self.batch is None else f", batch {self.batch}"
        return f"reader {printable(self.reader)}, generation {self.generation}{batch}"


def note_of(metadata: str) -> Note | None:
    """The note in a commit's metadata; None when somebody else wrote it."""
    try:
        fields = json.loads(metadata)
        reader, generation, batch = fields["reader"], fields["generation"], fields.get("batch")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if isinstance(reader, str) and isinstance(generation, int) and isinstance(batch, int | None):
        return Note(reader, generation, batch)
    return None


def printable(text: str) -> str:
    """`text`, quoted where it has what would break a line or steer a terminal: anybody may name and note anything."""
    return text if text.isprintable() else repr(text)


def instant(timestamp_ms: float | None) -> str:
    """A time as ISO 8601 in UTC, with milliseconds; as the number that it is where no calendar has it."""
    if timestamp_ms is None:
        return NOTHING
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def partitions(tps: Collection[TopicPartition]) -> str:
    """Partitions as ``orders:0,1 returns:0``, the way ``--topic`` takes them."""
    topics: dict[str, list[str]] = {}
    for tp in sorted(tps):
        topics.setdefault(tp.topic, []).append(str(tp.partition))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items()) or NOTHING


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they must be; None is ``-``."""
    cells = [list(headers), *([NOTHING if cell is None else printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
