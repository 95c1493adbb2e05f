"""What a query makes of the records that it reads, and which rows follow from its checkpoint and the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from matrix.checkpoint import Batch

MAP, AGGREGATE, JOIN = "map", "aggregate", "join"
PARTS = "split(cast(value as string), ':')"
"""Of a record's name: producer, topic, partition, sequence number."""
PLACE_SQL = "concat_ws(' ', topic, partition, offset)"
GROUPS = 5
GROUP_SQL = f"concat_ws(':', {PARTS}[0], {PARTS}[2], cast({PARTS}[3] as int) % {GROUPS})"
SHARED_SQL = f"concat_ws(':', {PARTS}[0], {PARTS}[2], {PARTS}[3])"
"""Of a record's name: what it shares with one record of the other topic."""

Place = tuple[str, int, int]
"""Topic, partition, offset."""
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


def expected(shape: str, batches: Sequence[Batch], log: Mapping[Place, str]) -> Counter[Row]:
    """The rows that batches publish, each as often as it is to be there."""
    if shape == AGGREGATE:
        return aggregated(batches, log)
    if shape == JOIN:
        return joined(batches, log)
    return Counter(mapped(place, name) for batch in batches for place, name in read_in(batch, log))


def mapped(place: Place, name: str) -> Row:
    """The row of one record, by its place."""
    return " ".join(map(str, place)), name


def aggregated(batches: Sequence[Batch], log: Mapping[Place, str]) -> Counter[Row]:
    """For each batch the count so far of each group: Python sinks know no output mode update."""
    counts: Counter[str] = Counter()
    rows: Counter[Row] = Counter()
    for batch in batches:
        counts.update(group_of(name) for _, name in read_in(batch, log))
        rows.update((group, str(count)) for group, count in counts.items())
    return rows


def joined(batches: Sequence[Batch], log: Mapping[Place, str]) -> Counter[Row]:
    """One row for each two records, of two topics, with the same name but for the topic."""
    topics: dict[str, Counter[str]] = {}
    for batch in batches:
        for (topic, _, _), name in read_in(batch, log):
            topics.setdefault(topic, Counter())[shared_of(name)] += 1
    if len(topics) < 2:
        return Counter()
    one, other = topics.values()
    return Counter({(key, key): one[key] * other[key] for key in one.keys() & other.keys()})
