"""A query's names in Kafka, of its group and its static member, and the metadata of its commits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from spark_kafka_group.text.json_text import parsed


def group_id_of(configured: str | None, prefix: str, reader: str) -> str:
    """The group of the query with this reader id: kafka.group.id, or one of its own that begins with groupIdPrefix."""
    return configured or f"{prefix}-{reader}"


def instance_id_of(configured: str | None, reader: str) -> str:
    """The static member's name: kafka.group.instance.id, or one derived from the reader id."""
    return configured or f"groupkafka-{reader}"


def commit_note(reader: str, generation: int, batch: int | None = None, without: int | None = None) -> str:
    """The metadata of a commit, by which a later start recognizes its own commits.

    `without` is the number of a batch that has not read this partition, although the checkpoint says that it has.
    """
    return _json({"reader": reader, "generation": generation, "batch": batch, "without": without})


def adopting_note(reader: str, generation: int, batch: int, metadata: str) -> str:
    """The metadata that the query `reader` writes over another client's: it goes on from there after `batch`.

    It keeps the other client's facts about the offset: that a batch went without the partition; or, of queries that
    adopted the offset before, since which batch they have gone on from there.
    """
    writer = writer_of(metadata)
    left_by: LeftBy | None = None
    since: dict[str, Since] = {}
    if writer is not None:
        left_by = writer.left_by
        if writer.without is not None:
            left_by = LeftBy(writer.reader, writer.without, writer.generation)
        if left_by is None:
            since = _since(writer)
        elif left_by.reader == reader and left_by.without > batch:
            left_by = None  # that batch is going to be planned again, with the partition
    note = {"reader": reader, "generation": generation, "batch": batch, "adopted": batch}
    return _json(note | {"left_by": left_by and _given(left_by._asdict()), "since": _metadata(since)})


def correcting_note(reader: str, generation: int, batch: int, without: int | None, metadata: str | None) -> str:
    """As :func:`commit_note`, in the place of `metadata` at the same offset; None at another one.

    An offset that this query has adopted stays one: a checkpoint that ends before does not know it yet. And queries
    that had it before still have it.
    """
    note = {"reader": reader, "generation": generation, "batch": batch, "without": without}
    writer = None if metadata is None else writer_of(metadata)
    if writer is not None and writer.reader == reader:
        note |= {"adopted": writer.adopted, "since": _metadata(writer.since)}
        note |= {} if writer.adopted is None else {"adopted_in": writer.adopted_since}
    return _json(note)


def _metadata(since: Mapping[str, Since]) -> dict[str, list[int]] | None:
    return {name: [number for number in had if number is not None] for name, had in since.items()} or None


def _json(note: dict[str, Any]) -> str:
    return json.dumps(_given(note), separators=(",", ":"))


def _given(note: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in note.items() if value is not None}


class LeftBy(NamedTuple):
    """Which batch of another query went without the partition, and in which generation it said so, if that is known."""

    reader: str
    without: int
    generation: int | None = None


class Since(NamedTuple):
    """Since when a query has had an offset that another query has written since; `adopted` is None if it had committed
    the offset itself."""

    generation: int
    adopted: int | None = None


NO_ONE: Mapping[str, Since] = MappingProxyType({})
MOST_NAMED = 16
"""The most queries that a note names: Kafka limits its length."""


class Writer(NamedTuple):
    """Who wrote a commit, as its note says; the batches are None where it has none.

    `adopted_in` is the generation in which the offset was adopted, where the note was written anew since. `since` names
    queries that had the offset before, and still have it unless they read on.
    """

    reader: str
    generation: int
    batch: int | None = None
    without: int | None = None
    adopted: int | None = None
    left_by: LeftBy | None = None
    since: Mapping[str, Since] = NO_ONE
    adopted_in: int | None = None

    @property
    def adopted_since(self) -> int:
        """The generation in which the offset was adopted."""
        return self.generation if self.adopted_in is None else self.adopted_in

    def is_own(self, reader: str, batch: int, generation: int = -1) -> bool:
        """Whether the query `reader` had the offset, for a checkpoint that ends with `batch`, planned in `generation`,
        and no other client has moved it.

        A checkpoint that ends before the query went on from an adopted offset does not know that offset: for it, the
        offset is still another client's. So it is where the query's note says that it adopted the offset in a later
        generation than that of the batch: another process did that, by the checkpoint of before.
        """
        later = self.adopted is not None and 0 <= generation < self.adopted_since
        known = [self.adopted] if self.reader == reader and not later else []
        known += [self.since[reader].adopted] if reader in self.since else []
        return any(adopted is None or adopted < batch for adopted in known)


def writer_of(metadata: str) -> Writer | None:
    """The writer that a commit's metadata names; None when it was not this project."""
    try:
        note = parsed(metadata)
        reader, generation, batch = note["reader"], note["generation"], note.get("batch")
        without, adopted = _number(note, "without"), _number(note, "adopted")
        adopted_in = _number(note, "adopted_in")
        left_by = _left_by(note.get("left_by"))
        since = {str(name): Since(*map(_integer, had)) for name, had in note.get("since", {}).items()}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    if isinstance(reader, str) and isinstance(generation, int) and isinstance(batch, int | None):
        return Writer(reader, generation, batch, without, adopted, left_by, since, adopted_in)
    return None


def _since(writer: Writer) -> dict[str, Since]:
    """Who had the offset by the time that the query `writer` did, the latest last."""
    named = dict(writer.since)
    before = named.pop(writer.reader, None)
    adopted = writer.adopted
    if before is not None and adopted is not None:
        adopted = None if before.adopted is None else min(before.adopted, adopted)
    named[writer.reader] = Since(writer.generation, adopted)
    return dict([*named.items()][-MOST_NAMED:])


def _left_by(note: Any) -> LeftBy | None:
    without = None if note is None else _number(note, "without")
    return None if without is None else LeftBy(str(note["reader"]), without, _number(note, "generation"))


def _integer(value: object) -> int:
    # A float is refused: as an integer it may have more digits than a note is read with.
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number of a generation or a batch")
    return value


def _number(note: Any, key: str) -> int | None:
    value = note.get(key)
    return value if isinstance(value, int) else None


def left_out_of(metadata: str, reader: str, generation: int = -1) -> int | None:
    """The batch that has not read the partition, as the query `reader` wrote in this metadata; None without one.

    The checkpoint, and not this metadata, is right about later batches. A word from before `generation`, in which the
    checkpoint's batch was planned, is of a batch that had its number before an older checkpoint was restored.
    """
    writer = writer_of(metadata)
    if writer is None:
        return None
    left: LeftBy | None = None
    if writer.left_by is not None and writer.left_by.reader == reader:
        left = writer.left_by
    elif writer.reader == reader and writer.without is not None:
        left = LeftBy(reader, writer.without, writer.generation)
    if left is None or (left.generation is not None and left.generation < generation):
        return None
    return left.without


def left_out(metadata: str, reader: str, batch: int) -> bool:
    """Whether the query `reader` wrote that its `batch`, or a later one, has not read the partition."""
    named = left_out_of(metadata, reader)
    return named is not None and named >= batch


def is_of_batch(metadata: str, reader: str, batch: int) -> bool:
    """Whether the query `reader` committed the offset of this metadata, the end of its `batch`, for that batch.

    Another query may have adopted the offset since. Its note does not say for which batch it was committed.
    """
    writer = writer_of(metadata)
    if writer is None:
        return False
    if writer.reader == reader:
        return writer.batch == batch
    return reader in writer.since and writer.since[reader].adopted is None


def is_written_over(metadata: str, reader: str) -> bool:
    """Whether another query has written its note over an offset that the query `reader` had: it does not say for which
    batch."""
    writer = writer_of(metadata)
    return writer is not None and writer.reader != reader and reader in writer.since


def is_signed(metadata: str, reader: str) -> bool:
    """Whether the note of the query `reader` is in this metadata, also over another client's offset."""
    writer = writer_of(metadata)
    return writer is not None and writer.reader == reader


def is_signed_up_to(metadata: str, reader: str, batch: int) -> bool:
    """The same, where the note does not name a batch after `batch`."""
    writer = writer_of(metadata)
    return writer is not None and writer.reader == reader and (writer.batch is None or writer.batch <= batch)


def is_known(metadata: str, reader: str, batch: int, generation: int) -> bool:
    """Whether the note of the query `reader` is right for a checkpoint that ends with `batch`, or an earlier batch, and
    for batches that are planned from `generation` on."""
    writer = writer_of(metadata)
    if writer is None or writer.reader != reader:
        return False
    return writer.adopted is None or (writer.adopted <= batch and writer.adopted_since <= generation)


def generation_of(metadata: str, reader: str) -> int | None:
    """The generation in which the query `reader` had the offset of this metadata last; None if it never did."""
    writer = writer_of(metadata)
    if writer is None:
        return None
    if writer.reader == reader:
        return writer.generation
    return writer.since[reader].generation if reader in writer.since else None


def is_own(metadata: str, reader: str, batch: int, generation: int = -1) -> bool:
    """Whether the query `reader` had the offset of this metadata, for a checkpoint that ends with `batch`, planned in
    `generation`."""
    writer = writer_of(metadata)
    return writer is not None and writer.is_own(reader, batch, generation)
