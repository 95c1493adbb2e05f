"""What must hold of queries that write to topics: functions from what a run left behind to findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from faults.checkpoint import TP, Batch
from faults.judge.invariants import Finding
from faults.once.shapes import Place, Row, as_read, expected, mapped, read_in

COMMIT, ABORT = "commit", "abort"
"""What the tool makes of a batch that was lost in part: it counts as published, or it is written again."""


@dataclass(frozen=True)
class Published:
    """A query, as a run left it.

    Attributes
    ----------
    once
        Whether it writes exactly once.
    log
        The records of its topics.
    rows, uncommitted
        Of its output: what readers of committed records get, and all others.
    ends, committed, ended
        Where the logs end, its group is, and its checkpoint.
    mended
        Batches that were lost in part, with the tool's choice.
    """

    name: str
    shape: str
    once: bool
    batches: Sequence[Batch]
    log: Mapping[Place, str]
    rows: Counter[Row]
    uncommitted: Counter[Row]
    ends: Mapping[TP, int] = field(default_factory=dict)
    committed: Mapping[TP, int] = field(default_factory=dict)
    ended: Mapping[TP, int] = field(default_factory=dict)
    mended: Mapping[int, str] = field(default_factory=dict)

    def missing_and_more(self) -> tuple[Counter[Row], Counter[Row]]:
        """Rows that are not there, and those that are there more often than they are to be."""
        wanted = expected(self.shape, self.batches, self.log)
        return wanted - self.rows, self.rows - wanted


@dataclass(frozen=True)
class Shared:
    """Queries of one group, which only map, with neighbours in it.

    Attributes
    ----------
    rows
        Of all outputs.
    delivered, in_doubt
        Places of records that neighbours have committed; and that they have read, and perhaps committed.
    """

    log: Mapping[Place, str]
    rows: Counter[Row]
    once: bool
    delivered: Counter[Place]
    in_doubt: frozenset[Place]
    ends: Mapping[TP, int] = field(default_factory=dict)
    committed: Mapping[TP, int] = field(default_factory=dict)


def shown(rows: Counter[Row]) -> str:
    few = [f"{key}={value} ({count})" for (key, value), count in sorted(rows.items())[:5]]
    return ", ".join(few) + (" ..." if len(rows) > 5 else "")


def judged(query: Published) -> Iterator[Finding]:
    """The findings of a query that is alone in its group."""
    missing, more = query.missing_and_more()
    if query.mended:
        yield from judged_mended(query, missing, more)
    else:
        if missing:
            lost = missing.total()
            yield Finding("nothing missing", f"{query.name} lacks {lost} rows: {shown(missing)}", lost)
        if more and query.once:
            twice = more.total()
            yield Finding("nothing twice", f"{query.name} has {twice} rows too many: {shown(more)}", twice)
    yield from nothing_else(query, more)
    yield from seen_by_all(query)
    yield from agreed(query)


def judged_mended(query: Published, missing: Counter[Row], more: Counter[Row]) -> Iterator[Finding]:
    """Only of batches that the tool has mended rows are missing, or twice, as its choice says; of each some are."""
    of_batch: dict[Row, int] = {
        mapped(place, name): batch.number
        for batch in as_read(query.batches)
        if batch.number in query.mended
        for place, name in read_in(batch, query.log)
    }
    for choice, rows, wrong in ((COMMIT, missing, "nothing missing"), (ABORT, more, "nothing twice")):
        other = Counter({row: n for row, n in rows.items() if query.mended.get(of_batch.get(row, -1)) != choice})
        if other:
            yield Finding(wrong, f"{query.name}, of batches that were not mended so: {shown(other)}", other.total())
        seen = {of_batch.get(row) for row in rows}
        for number in (number for number, chosen in query.mended.items() if chosen == choice and number not in seen):
            yield Finding("lost in part", f"{query.name}: {choice} of batch {number} has left no sign")


def nothing_else(query: Published, more: Counter[Row]) -> Iterator[Finding]:
    """Rows that are there too often are rows that follow from the records."""
    wanted = expected(query.shape, query.batches, query.log)
    wrong = Counter({row: count for row, count in more.items() if row not in wanted})
    if wrong:
        yield Finding("nothing else", f"{query.name} has rows of no record: {shown(wrong)}", wrong.total())


def seen_by_all(query: Published) -> Iterator[Finding]:
    """Readers that do not wait for the end of transactions see all that others see."""
    less = query.rows - query.uncommitted
    if less:
        yield Finding("never less", f"readers of uncommitted records of {query.name} lack {shown(less)}", less.total())


def agreed(query: Published | Shared) -> Iterator[Finding]:
    """At rest the group is where the logs end, and so is the checkpoint of a query that is alone."""
    for tp, end in query.ends.items():
        if query.committed.get(tp, 0) != end:
            yield Finding("agreed at rest", f"{tp}: the group is at {query.committed.get(tp)}, the log ends at {end}")
        if isinstance(query, Published) and query.ended.get(tp, 0) != end:
            yield Finding(
                "agreed at rest", f"{tp}: the checkpoint of {query.name} is at {query.ended.get(tp)}, the log at {end}"
            )


def judged_shared(shared: Shared) -> Iterator[Finding]:
    """Each record is in one output, or a neighbour has committed it: never both, and never neither."""
    counts = shared.rows.copy()
    of_neighbours = Counter({mapped(place, shared.log[place]): n for place, n in shared.delivered.items()})
    doubtful = {mapped(place, shared.log[place]) for place in shared.in_doubt}
    wanted = Counter(mapped(place, name) for place, name in shared.log.items())
    read = counts + of_neighbours
    missing = Counter({row: n for row, n in (wanted - read).items() if row not in doubtful})
    if missing:
        lost = missing.total()
        yield Finding("nothing missing", f"{lost} records are in no output, nor a neighbour's: {shown(missing)}", lost)
    more = read - wanted
    if more and shared.once:
        written = counts - wanted
        text = f"{more.total()} records were read twice, {written.total()} of them written twice: {shown(more)}"
        yield Finding("nothing twice", text, more.total())
    wrong = Counter({row: n for row, n in counts.items() if row not in wanted})
    if wrong:
        yield Finding("nothing else", f"the outputs have rows of no record: {shown(wrong)}", wrong.total())
    yield from agreed(shared)
