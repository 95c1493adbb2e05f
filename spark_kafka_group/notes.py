"""What a query goes by in Kafka: the names of its group and its static member, and the notes in its commits."""

from __future__ import annotations

import json
from typing import NamedTuple


def group_id_of(configured: str | None, prefix: str, reader: str) -> str:
    """The group of the query with this reader id: kafka.group.id, or one of its own that begins with groupIdPrefix."""
    return configured or f"{prefix}-{reader}"


def instance_id_of(configured: str | None, reader: str) -> str:
    """The static member's name: kafka.group.instance.id, or one derived from the reader id."""
    return configured or f"groupkafka-{reader}"


def commit_note(reader: str, generation: int, batch: int | None = None, without: int | None = None) -> str:
    """The metadata of a commit, by which a later start tells its own commits from others'.

    `without` names a batch that the checkpoint says has read this partition, and that has not.
    """
    note = {"reader": reader, "generation": generation, "batch": batch, "without": without}
    return json.dumps({key: value for key, value in note.items() if value is not None}, separators=(",", ":"))


class Writer(NamedTuple):
    """Who wrote a commit, as its note says; the batches are None where it has none."""

    reader: str
    generation: int
    batch: int | None = None
    without: int | None = None


def writer_of(metadata: str) -> Writer | None:
    """The writer that a commit's metadata names; None when it was nobody of this project."""
    try:
        note = json.loads(metadata)
        reader, generation, batch, without = note["reader"], note["generation"], note.get("batch"), note.get("without")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if isinstance(reader, str) and isinstance(generation, int) and isinstance(batch, int | None):
        return Writer(reader, generation, batch, without if isinstance(without, int) else None)
    return None


def left_out(metadata: str, reader: str, batch: int) -> bool:
    """Whether the query `reader` wrote with this metadata that its `batch`, or a later one, has not read the partition.

    Of what later batches read it says nothing: the checkpoint is right about them.
    """
    writer = writer_of(metadata)
    return writer is not None and writer.reader == reader and writer.without is not None and writer.without >= batch


def is_own(metadata: str, reader: str) -> bool:
    """Whether the query `reader` wrote the commit with this metadata."""
    writer = writer_of(metadata)
    return writer is not None and writer.reader == reader
