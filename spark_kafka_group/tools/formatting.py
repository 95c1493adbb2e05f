"""How values look in a terminal: tables, times, and who wrote a commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from spark_kafka_group.commit_metadata import Writer
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.printable import printable

NOTHING = "-"


def written_by(writer: Writer) -> str:
    """Who wrote a commit."""
    batch = "" if writer.batch is None else f", batch {writer.batch}"
    return f"reader {printable(writer.reader)}, generation {writer.generation}{batch}"


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
