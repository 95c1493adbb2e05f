"""No row is missing, there too often, or of no record: of a sink, of an output topic, or of all outputs of a group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from faults.evidence import (
    ABORT,
    CLEANLY,
    COMMIT,
    EXACTLY_ONCE,
    PROCESSOR,
    PROCESSORS,
    TP,
    Finding,
    Observed,
    Output,
    Place,
    Row,
)
from faults.once.shapes import as_read, expected, mapped, read_in
from spark_kafka_group.tools.event_logs import Event

Reading = tuple[int, int]
"""A query, and one of its batches."""
OF_A_NEIGHBOUR: Reading = (-1, -1)
OF_DEAD_LETTERS: Reading = (-2, -2)


def shown(found: Iterable[object]) -> str:
    """A few of some things."""
    texts = sorted(map(str, found))
    return ", ".join(texts[:5]) + (" ..." if len(texts) > 5 else "")


@dataclass(frozen=True)
class Account:
    """Rows that are to be there and rows that are there, each with how often.

    Attributes
    ----------
    name
        Where they are.
    other
        Rows that are of no record.
    may_lack, may_repeat
        Whether a row that is missing, or there too often, is excused.
    beyond
        Whether a row is one that nobody has committed yet.
    told
        The text of a row.
    """

    name: str
    wanted: Counter[Any]
    there: Counter[Any]
    other: Collection[Any]
    may_lack: Callable[[Any], bool]
    may_repeat: Callable[[Any], bool]
    beyond: Callable[[Any], bool] = field(default=lambda row: False)
    told: Callable[[Any], str] = str

    @cached_property
    def missing(self) -> Counter[Any]:
        """Rows that are not there, also where that is excused."""
        return self.wanted - self.there

    @cached_property
    def more(self) -> Counter[Any]:
        """Rows that are there more often than they are to be, also where that is excused."""
        return self.there - self.wanted


def nothing_missing(account: Account) -> Iterator[Finding]:
    """Each row that is to be there is there."""
    lost = Counter({row: n for row, n in account.missing.items() if not account.may_lack(row)})
    for invariant, of_it in (("nothing missing", False), ("read to the end", True)):
        if found := Counter({row: n for row, n in lost.items() if account.beyond(row) is of_it}):
            text = f"{account.name} lacks {found.total()} rows: {shown(map(account.told, found))}"
            yield Finding(invariant, text, found.total())


def nothing_twice(account: Account) -> Iterator[Finding]:
    """No row is there more often than it is to be."""
    twice = {row: n for row, n in account.more.items() if row in account.wanted and not account.may_repeat(row)}
    if twice:
        count = sum(twice.values())
        text = f"{account.name} has {count} rows too many: {shown(map(account.told, twice))}"
        yield Finding("nothing twice", text, count)


def nothing_else(account: Account) -> Iterator[Finding]:
    """Each row is that of a record."""
    if account.other:
        text = f"{account.name} has {len(account.other)} rows of no record: {shown(account.other)}"
        yield Finding("nothing else", text, len(account.other))


def of_all_rows(run: Observed) -> Iterator[Finding]:
    """These three, of a run's sink and of each of its outputs."""
    for account in (of_the_sink(run), *map(of_an_output, run.outputs)):
        for check in (nothing_missing, nothing_twice, nothing_else):
            yield from check(account)


# Of a sink, whose rows are records


def of_the_sink(run: Observed) -> Account:
    """Each record that was acknowledged, or is in the logs, is there once.

    One that its producer sent twice is in the logs twice, and each of the two is read once. A RecordProcessor's record
    is in several batches if it was tried again.
    """
    known, there, excuses = Places(run), readings(run), Excuses(run)
    wanted = Counter(dict.fromkeys(known, 1))
    if run.sink not in PROCESSORS:  # whose retry topics have a record again
        wanted |= sent_twice(run, {value: of for value, of in there.items() if len(of) > 1})
    excused = run.in_doubt | run.removed | run.aborted
    below = run.committed or run.ended or {}

    def beyond(value: str) -> bool:
        topic, partition, offset = min(known[value])
        return offset >= below.get((topic, partition), 0)

    def told(value: str) -> str:
        return f"{value} at {shown(known.get(value, ()))} in batches {sorted(there.get(value, []))}"

    return Account(
        "the sink", wanted | Counter(dict.fromkeys(there, 1)), Counter({value: len(of) for value, of in there.items()}),
        [row for row in run.rows if known.contradict(row, run.removed)],
        excused.__contains__, lambda value: excuses.may_repeat(value, there[value]), beyond, told,
    )  # fmt: skip


def readings(run: Observed) -> Mapping[str, Sequence[Reading]]:
    """By record, which batches have it, which other members, and which dead letters."""
    seen: dict[str, list[Reading]] = defaultdict(list)
    for row in run.rows:
        seen[row.value].append((row.query, row.batch))
    for value in run.delivered:
        seen[value].append(OF_A_NEIGHBOUR)
    for dead in run.dead:
        seen[dead.value].append(OF_DEAD_LETTERS)
    return seen


class Places(dict[str, set[Place]]):
    """Where each record is, or was: in the logs at the end, and where brokers have acknowledged it.

    A topic that was made again has two records at a place. A record is at two places if its producer sent it twice.
    """

    def __init__(self, run: Observed) -> None:
        self._values: dict[Place, set[str]] = defaultdict(set)
        acknowledged = (((a.topic, a.partition, a.offset), a.identity) for a in run.acknowledged if a.offset >= 0)
        for place, value in (*run.log.items(), *acknowledged):
            self._values[place].add(value)
            self.setdefault(value, set()).add(place)

    def contradict(self, row: Row, removed: Collection[str]) -> bool:
        """Whether a row has another place than its record; of one without a known place, whether another is there.

        That one's log may have lost it, if it is among those that were `removed`.
        """
        if row.value in self:
            return row.place not in self[row.value]
        return row.place in self._values and row.value not in removed


def sent_twice(run: Observed, twice: Mapping[str, Sequence[Reading]]) -> Counter[str]:
    """Those of some records that the logs have as often as they were read, and whose rows are from different places."""
    in_logs: Counter[str] = Counter(value for value in run.log.values() if value in twice)
    rows: dict[str, list[Place]] = defaultdict(list)
    for row in run.rows:
        if row.value in twice:
            rows[row.value].append(row.place)
    return Counter(
        {
            value: len(readings)
            for value, readings in twice.items()
            if len(readings) <= in_logs[value]
            and len(set(rows[value])) == len(rows[value])
            and all(run.log.get(place) == value for place in rows[value])
        }
    )


class Excuses:
    """Why a record may be there more often: only if its batch was interrupted.

    In a sink that only appends an interrupted batch may be there again; not in one that is exactly once. Another member
    may have a record again of a batch that was interrupted before its commit, as it took its partition over. If it has
    committed an offset in the middle of the batch, the query goes on from there, and has the rest again.
    """

    def __init__(self, run: Observed) -> None:
        self._run = run

    def may_repeat(self, value: str, of: Sequence[Reading]) -> bool:
        run = self._run
        if value in run.again or (run.sink == PROCESSOR and value in self._called_again):
            return True
        appends = run.sink not in (*EXACTLY_ONCE, PROCESSOR)
        if appends and len(set(of)) == 1 and {batch for _, batch in of} <= run.interrupted:
            return True
        return self._handed_over(self._partitions.get(value), of)

    @cached_property
    def _called_again(self) -> set[str]:
        return {call.row.value for call in self._run.calls if call.row.batch in self._run.interrupted}

    @cached_property
    def _partitions(self) -> Mapping[str, TP]:
        return {row.value: (row.topic, row.partition) for row in self._run.rows}

    @cached_property
    def _batches(self) -> Mapping[Reading, Any]:
        return {(batch.query, batch.number): batch for batch in self._run.batches}

    @cached_property
    def _committed(self) -> set[tuple[TP | None, int | None, str]]:
        return {(s.tp, s.offset, s.note["reader"]) for s in self._run.stored if s.note is not None}

    @cached_property
    def _interrupted(self) -> set[tuple[str, int | None]]:
        return set(interrupted(self._run))

    @cached_property
    def _set_back(self) -> set[tuple[str, TP, int, int]]:
        return set(set_back(self._run))

    def _handed_over(self, tp: TP | None, of: Sequence[Reading]) -> bool:
        """Whether a record may have been read so often: by different members, of which one has committed it."""
        last = [one for one in of if not any(self._is_read_again(tp, one, other) for other in of)]
        return len({query for query, _ in last}) == len(last) and (
            sum(reading == OF_A_NEIGHBOUR or not self._interrupted_before(tp, reading) for reading in last) <= 1
        )

    def _is_read_again(self, tp: TP | None, reading: Reading, later: Reading) -> bool:
        first, second = self._batches.get(reading), self._batches.get(later)
        if first is None or second is None or not self._interrupted_before(tp, reading):
            return False
        begin, middle, end = first.starts.get(tp), second.starts.get(tp), first.ends.get(tp)
        inside = begin is not None and middle is not None and end is not None and begin <= middle < end
        return first.query == second.query and inside and (first.reader, tp, end, middle) in self._set_back

    def _interrupted_before(self, tp: TP | None, reading: Reading) -> bool:
        batch = self._batches.get(reading)
        return (
            batch is not None
            and tp is not None
            and (batch.reader, batch.of_source) in self._interrupted
            and (tp, batch.ends.get(tp), batch.reader) not in self._committed
        )


def interrupted(run: Observed) -> Iterator[tuple[str, int | None]]:
    """Batches, by the reader's id and its number, that were the last of a process, or ran when it lost its membership.

    Also a process that stops in order leaves a batch without a commit that Spark has ended, but not asked on from: all
    but those that have ended cleanly.
    """
    running: dict[str, tuple[str, int | None]] = {}  # by process: each has a file
    for event in run.events:
        process = process_of(event)
        if event.kind == "planned":
            running[process] = event.member, event.batch
        elif event.kind == "lost" and process in running:
            yield running[process]
    cleanly = {ending.process for ending in run.endings if ending.how == CLEANLY}
    yield from (batch for process, batch in running.items() if process not in cleanly)


def process_of(event: Event) -> str:
    """The name of the process that wrote an event, by its file."""
    return event.where.rpartition(":")[0].rpartition("/")[2].removesuffix(".jsonl")


def set_back(run: Observed) -> Iterator[tuple[str, TP, int, int]]:
    """Where a query went on from the commit of another program, before its own position.

    Yields
    ------
    tuple
        The reader's id, the partition, the query's position and the other program's offset.
    """
    writers: dict[tuple[TP, int | None], set[str | None]] = defaultdict(set)
    for stored in run.stored:
        if stored.tp is not None:
            writers[stored.tp, stored.offset].add(None if stored.note is None else stored.note["reader"])
    for event in run.events:
        for tp, move in event.moves.items():
            if move.before is not None and writers[tp, move.to] - {event.member}:
                yield event.member, tp, move.before, move.to


def nothing_aborted(run: Observed) -> Iterator[Finding]:
    """No record of an aborted transaction is in the sink."""
    wrong = [row.value for row in run.rows if row.value in run.aborted]
    if wrong:
        yield Finding("nothing aborted", f"{len(wrong)} rows are of aborted transactions: {shown(wrong)}", len(wrong))


# Of an output topic, whose rows follow from the records that were read


def of_an_output(output: Output) -> Account:
    """Each row that follows from the logs is there once, or another member has committed its record: never both.

    Of batches that the tool has mended rows are missing, or there twice, as its choice says.
    """
    wanted = expected(output.shape, output.batches, output.log)
    of_others = Counter({mapped(place, output.log[place]): n for place, n in output.delivered.items()})
    doubtful = {mapped(place, output.log[place]) for place in output.in_doubt}
    of_batch = mended_rows(output)

    def chosen(row: tuple[str, str]) -> str | None:
        return output.mended.get(of_batch.get(row, -1))

    return Account(
        output.name, wanted, output.rows + of_others, sorted(output.rows.keys() - wanted.keys()),
        lambda row: row in doubtful or chosen(row) == COMMIT,
        lambda row: chosen(row) == ABORT if output.mended else not output.once,
        told=lambda row: f"{row[0]}={row[1]} ({output.rows[row]})",
    )  # fmt: skip


def mended_rows(output: Output) -> Mapping[tuple[str, str], int]:
    """The rows of batches that were lost in part, which only map, each with its batch."""
    return {
        mapped(place, name): batch.number
        for batch in as_read(output.batches)
        if batch.number in output.mended
        for place, name in read_in(batch, output.log)
    }


def lost_in_part(run: Observed) -> Iterator[Finding]:
    """Of each batch that the tool has mended some rows are missing, or twice, as its choice says."""
    for output in run.outputs:
        account, of_batch = of_an_output(output), mended_rows(output)
        for choice, rows in ((COMMIT, account.missing), (ABORT, account.more)):
            seen = {of_batch.get(row) for row in rows}
            for number in (number for number, chosen in output.mended.items() if chosen == choice):
                if number not in seen:
                    yield Finding("lost in part", f"{output.name}: {choice} of batch {number} has left no sign")


def never_less(run: Observed) -> Iterator[Finding]:
    """Readers that do not wait for the end of transactions see all that others see."""
    for output in run.outputs:
        if output.uncommitted is not None and (less := output.rows - output.uncommitted):
            text = f"readers of uncommitted records of {output.name} lack {shown(less)}"
            yield Finding("never less", text, less.total())
