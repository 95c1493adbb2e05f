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


def commit_note(reader: str, generation: int, batch: int | None = None) -> str:
    """The metadata of a commit, by which a later start tells its own commits from others'."""
    note = {"reader": reader, "generation": generation} | ({} if batch is None else {"batch": batch})
    return json.dumps(note, separators=(",", ":"))


class Writer(NamedTuple):
    """Who wrote a commit, as its note says; the batch is None where it has none."""

    reader: str
    generation: int
    batch: int | None = None


def writer_of(metadata: str) -> Writer | None:
    """The writer that a commit's metadata names; None when it was nobody of this project."""
    try:
        note = json.loads(metadata)
        reader, generation, batch = note["reader"], note["generation"], note.get("batch")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if isinstance(reader, str) and isinstance(generation, int) and isinstance(batch, int | None):
        return Writer(reader, generation, batch)
    return None


def is_own(metadata: str, reader: str) -> bool:
    """Whether the query `reader` wrote the commit with this metadata."""
    writer = writer_of(metadata)
    return writer is not None and writer.reader == reader
