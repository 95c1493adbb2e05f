"""What a query makes of the records that it reads, and which rows follow from its checkpoint and the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from faults.evidence import Batch, Place

MAP, AGGREGATE, JOIN = "map", "aggregate", "join"
PARTS = "split(cast(value as string), ':')"
"""Of a record's name: producer, topic, partition, sequence number."""
PLACE_SQL = "concat_ws(' ', topic, partition, offset)"
GROUPS = 5
GROUP_SQL = f"concat_ws(':', {PARTS}[0], {PARTS}[2], cast({PARTS}[3] as int) % {GROUPS})"
SHARED_SQL = f"concat_ws(':', {PARTS}[0], {PARTS}[2], {PARTS}[3])"
"""Of a record's name: what it shares with one record of the other topic."""

Row = tuple[str, str]
"""Key and value of a record in the output."""


def group_of(name: str) -> str:
    """As GROUP_SQL."""
    producer, _, partition, sequence = name.split(":")
    return f"{producer}:{partition}:{int(sequence) % GROUPS}"


def shared_of(name: str) -> str:
    """As SHARED_SQL."""
    producer, _, partition, sequence = name.split(":")
    return f"{producer}:{partition}:{sequence}"


def read_in(batch: Batch, log: Mapping[Place, str]) -> Iterator[tuple[Place, str]]:
    """The records of a batch, each with its place."""
    for tp, end in sorted(batch.ends.items()):
        for offset in range(batch.starts[tp], end):
            if (*tp, offset) in log:
                yield (*tp, offset), log[(*tp, offset)]


def as_read(batches: Sequence[Batch]) -> list[Batch]:
    """Batches with the ranges that they have read.

    One whose offsets nobody could commit has read less, or nothing: then the next one begins before its end.
    """
    following = [*(batch.starts for batch in batches[1:]), {}]
    return [
        replace(batch, ends={tp: min(end, next_.get(tp, end)) for tp, end in batch.ends.items()})
        for batch, next_ in zip(batches, following, strict=False)
    ]


def expected(shape: str, batches: Sequence[Batch], log: Mapping[Place, str]) -> Counter[Row]:
    """The rows that a query has published that has read all of its logs, each as often as it is to be there."""
    if shape == AGGREGATE:
        return aggregated(as_read(batches), log)
    if shape == JOIN:
        return joined(log)
    return Counter(mapped(place, name) for place, name in log.items())


def mapped(place: Place, name: str) -> Row:
    """The row of one record, by its place."""
    return " ".join(map(str, place)), name


def aggregated(batches: Sequence[Batch], log: Mapping[Place, str]) -> Counter[Row]:
    """For each batch the count so far of each group: Python sinks know no output mode update.

    If the batches have left records out, the last counts of all records are missing rows.
    """
    counts: Counter[str] = Counter()
    rows: Counter[Row] = Counter()
    for batch in batches:
        counts.update(group_of(name) for _, name in read_in(batch, log))
        rows.update((group, str(count)) for group, count in counts.items())
    for group, count in Counter(map(group_of, log.values())).items():
        rows[group, str(count)] = max(1, rows[group, str(count)])
    return rows


def joined(log: Mapping[Place, str]) -> Counter[Row]:
    """One row for each two records, of two topics, with the same name but for the topic."""
    topics: dict[str, Counter[str]] = {}
    for (topic, _, _), name in log.items():
        topics.setdefault(topic, Counter())[shared_of(name)] += 1
    if len(topics) < 2:
        return Counter()
    one, other = topics.values()
    return Counter({(key, key): one[key] * other[key] for key in one.keys() & other.keys()})
