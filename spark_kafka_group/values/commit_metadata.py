"""A query's names in Kafka, of its group and its static member, and its commit metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from spark_kafka_group.text.foreign_text import parsed


def group_id_of(configured: str | None, prefix: str, query_id: str) -> str:
    """The group of the query with this query id: kafka.group.id, or one of its own that begins with groupIdPrefix."""
    return configured or f"{prefix}-{query_id}"


def instance_id_of(configured: str | None, query_id: str) -> str:
    """The static member's name: kafka.group.instance.id, or one derived from the query id."""
    return configured or f"groupkafka-{query_id}"


def commit_metadata(query_id: str, generation: int, batch: int | None = None, without: int | None = None) -> str:
    """The metadata of a commit; `without` is the number of a batch that goes without this partition."""
    return _json({"reader": query_id, "generation": generation, "batch": batch, "without": without})


def adopting_metadata(query_id: str, generation: int, batch: int, metadata: str) -> str:
    """The metadata that the query writes over another client's, to go on from there after `batch`. It keeps that a
    batch went without the partition, or since which batches other queries have gone on from there."""
    writer = writer_of(metadata)
    left_by: LeftBy | None = None
    since: dict[str, Since] = {}
    if writer is not None:
        left_by = writer.left_by
        if writer.without is not None:
            left_by = LeftBy(writer.query_id, writer.without, writer.generation)
        if left_by is None:
            since = _since(writer)
        elif left_by.query_id == query_id and left_by.without > batch:
            left_by = None  # that batch is going to be planned again, with the partition
    fields: dict[str, Any] = {"reader": query_id, "generation": generation, "batch": batch, "adopted": batch}
    return _json(fields | {"left_by": left_by and _left_by_json(left_by), "since": _metadata(since)})


def correcting_metadata(query_id: str, generation: int, batch: int, without: int | None, metadata: str | None) -> str:
    """As :func:`commit_metadata`, in the place of `metadata` at the same offset; None at another one. An adopted offset
    stays one: an older checkpoint does not know it, and queries that had it before still have it."""
    fields: dict[str, Any] = {"reader": query_id, "generation": generation, "batch": batch, "without": without}
    writer = None if metadata is None else writer_of(metadata)
    if writer is not None and writer.query_id == query_id:
        fields |= {"adopted": writer.adopted, "since": _metadata(writer.since)}
        fields |= {} if writer.adopted is None else {"adopted_in": writer.adopted_since}
    return _json(fields)


def _metadata(since: Mapping[str, Since]) -> dict[str, list[int]] | None:
    return {name: [number for number in had if number is not None] for name, had in since.items()} or None


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(_given(fields), separators=(",", ":"))


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


class LeftBy(NamedTuple):
    """The batch of another query that went without the partition, and the generation in which that query said so."""

    query_id: str
    without: int
    generation: int | None = None


class Since(NamedTuple):
    """A query had the offset before another query adopted it. `generation` is the one in which it had the offset last;
    `adopted` is the batch after which it went on from there, None if it had committed the offset itself."""

    generation: int
    adopted: int | None = None


NO_ONE: Mapping[str, Since] = MappingProxyType({})
MOST_NAMED = 16  # the most queries that metadata names: Kafka limits its length


class Writer(NamedTuple):
    """Who wrote a commit, as its metadata says; None for a batch not named. `adopted_in`: the generation in which the
    offset was adopted. `since`: queries that had it before, and still have it unless they read on."""

    query_id: str
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

    def to_json(self) -> dict[str, Any]:
        """JSON-ready dict, with the keys of the metadata."""
        named = self._asdict()
        return {"reader": named.pop("query_id"), **named}

    def is_own(self, query_id: str, batch: int, generation: int = -1) -> bool:
        """Whether the query had the offset, for a checkpoint that ends with `batch`, planned in `generation`,
        and no other client has moved it.

        A checkpoint that ends before the query went on from an adopted offset does not know that offset: for it, the
        offset is still another client's. So it is where the query's metadata says that it adopted the offset in a
        later generation than that of the batch: another process did that, by the checkpoint of before.
        """
        later = self.adopted is not None and 0 <= generation < self.adopted_since
        known = [self.adopted] if self.query_id == query_id and not later else []
        known += [self.since[query_id].adopted] if query_id in self.since else []
        return any(adopted is None or adopted < batch for adopted in known)


def writer_of(metadata: str) -> Writer | None:
    """The writer that a commit's metadata names; None when it was not this project."""
    try:
        fields = parsed(metadata)
        query_id, generation, batch = fields["reader"], fields["generation"], fields.get("batch")
        without, adopted = _number(fields, "without"), _number(fields, "adopted")
        adopted_in = _number(fields, "adopted_in")
        left_by = _left_by(fields.get("left_by"))
        since = {str(name): Since(*map(_integer, had)) for name, had in fields.get("since", {}).items()}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    if isinstance(query_id, str) and isinstance(generation, int) and isinstance(batch, int | None):
        return Writer(query_id, generation, batch, without, adopted, left_by, since, adopted_in)
    return None


def _since(writer: Writer) -> dict[str, Since]:
    """Who had the offset by the time that the query `writer` did, the latest last."""
    named = dict(writer.since)
    before = named.pop(writer.query_id, None)
    adopted = writer.adopted
    if before is not None and adopted is not None:
        adopted = None if before.adopted is None else min(before.adopted, adopted)
    named[writer.query_id] = Since(writer.generation, adopted)
    return dict([*named.items()][-MOST_NAMED:])


def _left_by(fields: Any) -> LeftBy | None:
    without = None if fields is None else _number(fields, "without")
    return None if without is None else LeftBy(str(fields["reader"]), without, _number(fields, "generation"))


def _left_by_json(left_by: LeftBy) -> dict[str, Any]:
    return _given({"reader": left_by.query_id, "without": left_by.without, "generation": left_by.generation})


def _integer(value: object) -> int:
    # A float is refused: as an integer it may have more digits than metadata is read with.
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number of a generation or a batch")
    return value


def _number(fields: Any, key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) else None


def left_out_of(metadata: str, query_id: str, generation: int = -1) -> int | None:
    """The batch that has not read the partition, as the query wrote in this metadata; None without one. The checkpoint,
    and not this metadata, is right about later batches. A word from before `generation`, in which the checkpoint's
    batch was planned, is of a batch that had its number before an older checkpoint was restored."""
    writer = writer_of(metadata)
    if writer is None:
        return None
    left: LeftBy | None = None
    if writer.left_by is not None and writer.left_by.query_id == query_id:
        left = writer.left_by
    elif writer.query_id == query_id and writer.without is not None:
        left = LeftBy(query_id, writer.without, writer.generation)
    if left is None or (left.generation is not None and left.generation < generation):
        return None
    return left.without


def left_out(metadata: str, query_id: str, batch: int) -> bool:
    """Whether the query wrote that its `batch`, or a later one, has not read the partition."""
    named = left_out_of(metadata, query_id)
    return named is not None and named >= batch


def is_of_batch(metadata: str, query_id: str, batch: int) -> bool:
    """Whether the query committed the offset of this metadata, the end of its `batch`, for that batch. Another query
    may have adopted the offset since. Its metadata does not say for which batch it was committed."""
    writer = writer_of(metadata)
    if writer is None:
        return False
    if writer.query_id == query_id:
        return writer.batch == batch
    return query_id in writer.since and writer.since[query_id].adopted is None


def is_written_over(metadata: str, query_id: str) -> bool:
    """Whether another query has adopted an offset that the query had: that does not say for which batch."""
    writer = writer_of(metadata)
    return writer is not None and writer.query_id != query_id and query_id in writer.since


def is_signed(metadata: str, query_id: str) -> bool:
    """Whether the query wrote this metadata, also over another client's offset."""
    writer = writer_of(metadata)
    return writer is not None and writer.query_id == query_id


def is_signed_up_to(metadata: str, query_id: str, batch: int) -> bool:
    """Whether the query wrote this metadata, and names no batch after `batch` in it."""
    writer = writer_of(metadata)
    return writer is not None and writer.query_id == query_id and (writer.batch is None or writer.batch <= batch)


def is_known(metadata: str, query_id: str, batch: int, generation: int) -> bool:
    """Whether this metadata of the query is right for a checkpoint that ends with `batch`, or an earlier batch, and for
    batches that are planned from `generation` on."""
    writer = writer_of(metadata)
    if writer is None or writer.query_id != query_id:
        return False
    return writer.adopted is None or (writer.adopted <= batch and writer.adopted_since <= generation)


def generation_of(metadata: str, query_id: str) -> int | None:
    """The generation in which the query had the offset of this metadata last; None if it never did."""
    writer = writer_of(metadata)
    if writer is None:
        return None
    if writer.query_id == query_id:
        return writer.generation
    return writer.since[query_id].generation if query_id in writer.since else None


def is_own(metadata: str, query_id: str, batch: int, generation: int = -1) -> bool:
    """Whether the query had the offset of this metadata, for a checkpoint that ends with `batch`, planned in
    `generation`."""
    writer = writer_of(metadata)
    return writer is not None and writer.is_own(query_id, batch, generation)
