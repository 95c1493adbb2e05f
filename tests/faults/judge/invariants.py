"""What must hold in every run, whatever the fault: each is a function from what was observed to findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.checkpoint import TP, Batch
from faults.judge.evidence import EXACTLY_ONCE, IN_TRANSACTIONS, PROCESSOR, PROCESSOR_ONCE, PROCESSORS, Observed, Row
from faults.judge.recounts import recounted
from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.tools.verify import verify

CLOCK_MS = 10.0
"""Two clocks of one machine: files' times are up to a tick of the kernel behind."""


Place = tuple[str, int, int]
"""Topic, partition and offset."""
Reading = tuple[int, int]
"""A query, and one of its batches."""

OF_A_NEIGHBOUR: Reading = (-1, -1)
OF_DEAD_LETTERS: Reading = (-2, -2)


@dataclass(frozen=True)
class Finding:
    """A broken invariant; `records` where it is about records."""

    invariant: str
    problem: str
    records: int = 0


def places(found: Iterable[object]) -> str:
    shown = [str(one) for one in sorted(found, key=str)]
    return " ".join(shown[:5]) + (" ..." if len(shown) > 5 else "")


class Places:
    """Where records are, or were: in the logs at the end, and where brokers have acknowledged them.

    A topic that was made again has two records at a place. A record is at two places if its producer sent it twice.
    """

    def __init__(self, run: Observed) -> None:
        self._values: dict[Place, set[str]] = defaultdict(set)
        self._of: dict[str, set[Place]] = defaultdict(set)
        acknowledged = (((a.topic, a.partition, a.offset), a.identity) for a in run.acknowledged if a.offset >= 0)
        for place, value in (*run.log.items(), *acknowledged):
            self._values[place].add(value)
            self._of[value].add(place)

    def of(self, value: str) -> set[Place]:
        """The places of a record."""
        return self._of.get(value, set())

    def all(self) -> Iterator[tuple[str, set[Place]]]:
        """All records, each with its places."""
        yield from self._of.items()

    def contradict(self, row: Row, removed: Container[str]) -> bool:
        """Whether a row has another place than its record; of one without a known place, whether another is there.

        That one's log may have lost it, if it is among those that were `removed`.
        """
        if row.value in self._of:
            return row.place not in self._of[row.value]
        return row.place in self._values and row.value not in removed


def nothing_missing(run: Observed) -> Iterator[Finding]:
    """Each record that was acknowledged, or is in the logs, is in the sink, if it is below the committed offset."""
    known = {row.value for row in run.rows} | set(run.delivered) | run.in_doubt | run.removed | run.aborted
    known |= {dead.value for dead in run.dead}
    below = run.committed or run.ended
    missing = {value: min(places) for value, places in Places(run).all() if value not in known}
    for kind, lost in (
        ("nothing missing", lambda tp, offset: offset < below.get(tp, 0)),
        ("read to the end", lambda tp, offset: offset >= below.get(tp, 0)),
    ):
        found = [place for place in missing.values() if lost(place[:2], place[2])]
        if found:
            where = places(f"{t}-{p}@{o}" for t, p, o in found)
            yield Finding(kind, f"{len(found)} records are not in the sink: {where}", len(found))


class HandedOver:
    """Which batches were interrupted before their commit, so that another member may have read them again.

    If it committed an offset in the middle of one, the query goes on from there.
    """

    def __init__(self, run: Observed) -> None:
        self._batches = {(batch.query, batch.number): batch for batch in run.batches}
        self._committed = {(s.tp, s.offset, s.note["reader"]) for s in run.stored if s.note is not None}
        self._interrupted = set(interrupted(run.events))
        self._set_back = set(set_back(run))

    def may(self, tp: TP | None, readings: Sequence[Reading]) -> bool:
        """Whether a record may have been read so often: by different members, of which one has committed it."""
        last = [one for one in readings if not any(self._is_read_again(tp, one, other) for other in readings)]
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


def interrupted(events: Iterable[Event]) -> Iterator[tuple[str, int | None]]:
    """Batches, by the reader's id and its number, that were the last of a process, or ran when it lost its membership.

    Also a process that stops in order leaves a batch without a commit that Spark has ended, but not asked on from.
    """
    running: dict[str, tuple[str, int | None]] = {}  # by process: each has a file
    for event in events:
        process = event.where.rpartition(":")[0]
        if event.kind == "planned":
            running[process] = event.member, event.batch
        elif event.kind == "lost" and process in running:
            yield running[process]
    yield from running.values()


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


def nothing_twice(run: Observed) -> Iterator[Finding]:
    """No record is twice in an exactly-once sink; in another one only records of batches that were interrupted.

    One that its producer sent twice is in the logs twice, and each of the two is read once. A RecordProcessor's record
    is in several batches, if it was tried again: one of them was interrupted then. (Not where it writes in
    transactions.) Another member may have one again of a batch that was interrupted before its commit, as it took its
    partition over. If it has committed a part of the batch, the query has the rest again.
    """
    seen: dict[str, list[Reading]] = defaultdict(list)
    for row in run.rows:
        seen[row.value].append((row.query, row.batch))
    for value in run.delivered:
        seen[value].append(OF_A_NEIGHBOUR)
    for dead in run.dead:
        seen[dead.value].append(OF_DEAD_LETTERS)
    twice = {value: readings for value, readings in seen.items() if len(readings) > 1 and value not in run.again}
    if twice and run.sink not in PROCESSORS:  # whose retry topics have a record again
        sent_twice = read_once_each(run, twice)
        twice = {value: readings for value, readings in twice.items() if value not in sent_twice}
    if run.sink == PROCESSOR:
        again = {call.row.value for call in run.calls if call.row.batch in run.interrupted}
        twice = {value: readings for value, readings in twice.items() if value not in again}
    elif run.sink not in EXACTLY_ONCE:
        twice = {
            value: of for value, of in twice.items() if len(set(of)) > 1 or not {b for _, b in of} <= run.interrupted
        }
    if twice:
        handed_over = HandedOver(run)
        places = {row.value: (row.topic, row.partition) for row in run.rows if row.value in twice}
        twice = {value: of for value, of in twice.items() if not handed_over.may(places.get(value), of)}
    if twice:
        by = Counter(tuple(readings[:4]) for readings in twice.values())
        text = "; ".join(f"{count} in batches {batches}" for batches, count in by.most_common(3))
        yield Finding("nothing twice", f"{len(twice)} records are in the sink more than once: {text}", len(twice))


def read_once_each(run: Observed, twice: Mapping[str, Sequence[Reading]]) -> set[str]:
    """Those of some records that the logs have as often as they were read, and whose rows are from different places."""
    in_logs: Counter[str] = Counter(value for value in run.log.values() if value in twice)
    rows: dict[str, list[Place]] = defaultdict(list)
    for row in run.rows:
        if row.value in twice:
            rows[row.value].append(row.place)
    return {
        value
        for value, readings in twice.items()
        if len(readings) <= in_logs[value]
        and len(set(rows[value])) == len(rows[value])
        and all(run.log.get(place) == value for place in rows[value])
    }


def nothing_else(run: Observed) -> Iterator[Finding]:
    """Each row is the record at its place in the log."""
    known = Places(run)
    wrong = [row for row in run.rows if known.contradict(row, run.removed)]
    if wrong:
        yield Finding(
            "nothing else", f"{len(wrong)} rows are other records than those at {places(r.place for r in wrong)}"
        )


def nothing_aborted(run: Observed) -> Iterator[Finding]:
    """No record of an aborted transaction is in the sink."""
    wrong = [row.value for row in run.rows if row.value in run.aborted]
    if wrong:
        yield Finding("nothing aborted", f"{len(wrong)} rows are of aborted transactions: {places(wrong)}", len(wrong))


def batches_follow(run: Observed) -> Iterator[Finding]:
    """Within a generation each batch begins where the last one ended, unless an event says that it was moved.

    A group that was deleted, as with its last offset, begins with generation 1 again.
    """
    last: dict[tuple[str, int, str, int], tuple[int, int]] = {}
    latest: dict[str, int] = {}
    for event in run.events:
        if event.generation < latest.get(event.member, event.generation):
            last = {key: ended for key, ended in last.items() if key[0] != event.member}
        latest[event.member] = event.generation
        for tp in event.moves:
            last.pop((event.member, event.generation, *tp), None)
        for planned in event.ranges:
            key = (event.member, event.generation, *planned.tp)
            before = last.get(key)
            if before is not None and planned.start != before[1] and not event.replay:
                yield Finding(
                    "batches follow",
                    f"{planned} was planned after {before}, in generation {event.generation}: {event.where}",
                )
            last[key] = planned.start, planned.end


def tasks_cover(run: Observed) -> Iterator[Finding]:
    """The tasks of a batch have the ranges that their process planned last, each offset in one task.

    A process that loses the race for a batch plans ranges too, and no tasks: the checkpoint has those of the other one.
    So no task has an offset beyond the checkpoint's ranges, and each batch with rows has had tasks.
    """
    planned: dict[tuple[str, str, int | None], Event] = {
        (process_of(event), event.member, event.batch): event for event in run.events if event.kind == "planned"
    }
    logged: dict[tuple[str | None, int | None], Batch] = {}
    for batch in run.batches:
        logged.setdefault((batch.reader, batch.of_source), batch)  # later ones with this number have no data of it
    for plan in run.plans:
        parts = merged(part for task in plan.tasks for part in task)
        event = planned.get((plan.process, plan.reader, plan.batch))
        whole = [] if event is None else sorted((*r.tp, r.start, r.end) for r in event.ranges if r.size)
        if parts != whole:
            yield Finding(
                "tasks cover",
                f"batch {plan.batch} of {plan.process}: its tasks have {parts}, it was planned as {whole}",
            )
        of_log = logged.get((plan.reader, plan.batch))
        beyond = [] if of_log is None else [part for part in parts if not within(of_log, *part)]
        if beyond:
            yield Finding("tasks cover", f"batch {plan.batch} of {plan.process}: {beyond} are not in the checkpoint's")
    if len({plan.reader for plan in run.plans}) == len({batch.query for batch in run.batches}):  # one source each
        with_rows = {(row.query, row.batch) for row in run.rows}
        with_tasks = {(plan.reader, plan.batch) for plan in run.plans}
        for batch in run.batches:
            known = (batch.reader, batch.of_source) in with_tasks
            if not known and (batch.query, batch.number) in with_rows:
                yield Finding("tasks cover", f"batch {batch.number} of Spark's has rows, and had no tasks")


def process_of(event: Event) -> str:
    """The name of the process that wrote an event; one with two sources has a log for each."""
    return Path(event.where.rpartition(":")[0]).stem.removesuffix("-also")


def merged(parts: Iterable[Sequence[Any]]) -> list[tuple[str, int, int, int]]:
    """Ranges of topics and partitions, those that follow each other as one."""
    found: list[tuple[str, int, int, int]] = []
    for topic, p, start, end in sorted(map(tuple, parts)):
        if found and found[-1][:2] == (topic, p) and found[-1][3] == start:
            found[-1] = (*found[-1][:3], end)
        else:
            found.append((topic, p, start, end))
    return found


def within(batch: Batch, topic: str, partition: int, start: int, end: int) -> bool:
    """Whether a batch has a range."""
    tp = topic, partition
    return tp in batch.ends and batch.starts[tp] <= start and end <= batch.ends[tp]


def commits_never_backward(run: Observed) -> Iterator[Finding]:
    """In the offsets topic no member's commit is below the one before, unless it was moved; and none is removed."""
    moved = {(*tp, move.to) for event in run.events for tp, move in event.moves.items()}
    last: dict[TP, int] = {}
    for stored in run.stored:
        if stored.tp is None:
            continue
        before = last.pop(stored.tp, 0)
        if stored.offset is None:
            if not run.operated:
                yield Finding("never backward", f"the offset of {stored.tp} was removed")
            continue
        if stored.note is not None and stored.offset < before and (*stored.tp, stored.offset) not in moved:
            yield Finding("never backward", f"{stored.tp} was {before}, then {stored.offset} ({stored.note})")
        last[stored.tp] = stored.offset


def commits_never_ahead(run: Observed) -> Iterator[Finding]:
    """No member's commit is stored before a batch is done that ends there, unless the member was moved there before."""
    reached: dict[tuple[TP, int], float] = {}
    for batch in run.batches:
        for tp, end in batch.ends.items():
            if batch.done_ms is not None:
                reached[tp, end] = min(batch.done_ms, reached.get((tp, end), batch.done_ms))
    for event in run.events:
        for tp, move in event.moves.items():
            reached[tuple(tp), move.to] = min(event.time_ms, reached.get((tuple(tp), move.to), event.time_ms))
    last: dict[TP, int | None] = {}
    for stored in run.stored:
        if stored.tp is None:
            continue
        before, last[stored.tp] = last.get(stored.tp), stored.offset
        # A member puts its note on the offset of a neighbour from which it goes on.
        if not stored.offset or stored.note is None or stored.offset == before:
            continue
        since_ms = reached.get((stored.tp, stored.offset))
        if since_ms is None or since_ms > stored.time_ms + CLOCK_MS:
            when = "never" if since_ms is None else f"{since_ms - stored.time_ms:.0f} ms later"
            yield Finding(
                "never ahead", f"{stored.tp}={stored.offset} was stored, and a batch up to it was done {when}"
            )


def only_current_generation_commits(run: Observed) -> Iterator[Finding]:
    """The generation in a commit's note is the one that the coordinator had stored last."""
    current: int | None = None
    for stored in run.stored:
        if stored.generation is not None:
            current = stored.generation
        elif stored.note is not None and current is not None and stored.note["generation"] != current:
            yield Finding(
                "current generation",
                f"{stored.tp}={stored.offset} was committed under {stored.note}, in generation {current}",
            )


def one_owner(run: Observed) -> Iterator[Finding]:
    """No stored generation gives a partition to two members."""
    for stored in run.stored:
        owners: dict[TP, str] = {}
        for member, tps in stored.members.items():
            for tp in tps:
                if owners.setdefault(tp, member) != member:
                    yield Finding(
                        "one owner", f"generation {stored.generation} gives {tp} to {owners[tp]} and {member}"
                    )


def verified(run: Observed) -> Iterator[Finding]:
    """``verify`` finds nothing in the members' events."""
    for found in verify(run.events, all_members=False).violations:
        yield Finding("verify", f"{found.invariant}: {found.problem} ({', '.join(e.where for e in found.proof)})")


def agreed_at_rest(run: Observed) -> Iterator[Finding]:
    """At rest the checkpoint and the group are where the logs end."""
    for tp, end in run.ends.items():
        if run.ended.get(tp, 0) != end:
            yield Finding("agreed at rest", f"{tp}: the checkpoint ends at {run.ended.get(tp)}, the log at {end}")
        if run.source == "groupkafka" and run.committed.get(tp, 0) != end:
            yield Finding("agreed at rest", f"{tp}: the group is at {run.committed.get(tp)}, the log ends at {end}")


def lag_recounted(run: Observed) -> Iterator[Finding]:
    """At rest the lag of the query's progress is what a recount gives."""
    if run.lag is not None and run.committed:
        recount = sum(max(0, end - run.committed.get(tp, 0)) for tp, end in run.ends.items())
        if run.lag != recount:
            yield Finding("lag recounted", f"the progress says a lag of {run.lag}, the offsets say {recount}")


def numbers_recounted(run: Observed) -> Iterator[Finding]:
    """At rest the metrics of a query are what checkpoint, group and logs say."""
    for latest in run.shown.sources:
        for name, shown, recount in recounted(run, latest):
            if shown != recount:
                yield Finding("numbers recounted", f"{name} is {shown} in the progress, and {recount} by recount")


def batches_recounted(run: Observed) -> Iterator[Finding]:
    """The progress of a batch has the ends that the checkpoint has, and as many input rows as the sink.

    An interrupted batch that is in Spark's file sink, or decided in a sink with transactions, is not read again: its
    progress has no rows.
    """
    rows = Counter(row.batch for row in run.rows)
    if run.sink in PROCESSORS:
        rows = Counter(batch for batch, _ in {(call.row.batch, call.row.place) for call in run.calls})
    known = {batch.number: batch.ends for batch in run.batches}
    for number, (ends, shown) in run.shown.batches.items():
        if ends != known.get(number):
            yield Finding(
                "batches recounted", f"batch {number} ends at {ends} in its progress, at {known.get(number)} by recount"
            )
        appended = run.sink not in (*EXACTLY_ONCE, PROCESSOR)
        skipped = run.sink in ("parquet", *IN_TRANSACTIONS) and not shown
        if shown != rows[number] and not (number in run.interrupted and (appended or skipped)):
            yield Finding(
                "batches recounted", f"batch {number} has {shown} input rows in its progress, {rows[number]} by recount"
            )


def calls_recounted(run: Observed) -> Iterator[Finding]:
    """What a RecordProcessor counts of a batch is what its handler wrote down; records = done + retried + dead."""
    outcomes: dict[int, dict[tuple[str, int, int], list[str]]] = defaultdict(lambda: defaultdict(list))
    for call in run.calls:
        outcomes[call.row.batch][call.row.place].append(call.outcome)
    for number, shown in run.shown.handled.items():
        records = shown["records"] or 0
        if records != sum(shown[name] or 0 for name in ("done", "retried", "dead")):
            yield Finding("calls recounted", f"batch {number}: not each record is done, retried or dead: {shown}")
        places = outcomes[number]
        done = sum("done" in all_of_it for all_of_it in places.values())
        if (records, shown["done"] or 0) != (len(places), done):
            yield Finding(
                "calls recounted", f"batch {number}: {shown}; by recount {len(places)} records, {done} of them done"
            )
        calls = sum(map(len, places.values()))
        if number not in run.interrupted and records + (shown["triesAgain"] or 0) != calls:
            yield Finding("calls recounted", f"batch {number}: {shown}; by recount {calls} calls")


def never_early(run: Observed) -> Iterator[Finding]:
    """No record of a retry topic is handled before its time: its delay after it was written, and after it failed."""
    stages = _stages(run)
    failed: dict[tuple[str, str], float] = {}  # by topic and record: when it failed there for the first time
    for call in sorted(run.calls, key=lambda call: call.at_ms):
        if call.outcome != "done":
            failed.setdefault((call.row.topic, call.row.value), call.at_ms)
    for call in run.calls:
        delay_ms = run.delays.get(call.row.topic)
        if delay_ms is None:
            continue
        before = stages[stages.index(call.row.topic) - 1]
        since_ms = max(call.timestamp_ms, failed.get((before, call.row.value), call.at_ms))
        if call.at_ms < since_ms + delay_ms:
            early_ms = since_ms + delay_ms - call.at_ms
            yield Finding("never early", f"{call.row} was handled {early_ms:.0f} ms before its time")


def source_is_done_retried_and_dead(run: Observed) -> Iterator[Finding]:
    """Each record of a topic is done, or once in the next retry topic, or once dead.

    More than once only if its batch was interrupted, and nothing is written in transactions.
    """
    if run.sink not in PROCESSORS:
        return
    stages = _stages(run)
    there = {topic: Counter(v for (name, _, _), v in run.log.items() if name == topic) for topic in stages}
    done = {topic: Counter(row.value for row in run.rows if row.topic == topic) for topic in stages}
    again = {(c.row.topic, c.row.value) for c in run.calls if c.row.batch in run.interrupted}
    if run.sink == PROCESSOR_ONCE:
        again = set()
    dead = Counter((letter.stage, letter.value) for letter in run.dead)
    for stage, topic in enumerate(stages):
        after = there[stages[stage + 1]] if stage + 1 < len(stages) else Counter()
        wrong = []
        for value, count in there[topic].items():
            ended = done[topic][value] + after[value] + dead[stage, value]
            if ended < count or (ended > count and (topic, value) not in again):
                wrong.append(f"{value} is there {count} times, and ended {ended} times")
        if wrong:
            yield Finding(
                "source = done + retry + dead", f"{len(wrong)} records of {topic}: {places(wrong)}", len(wrong)
            )


def _stages(run: Observed) -> list[str]:
    """The main topic of a RecordProcessor, and its retry topics in order."""
    main = sorted({topic for topic, _, _ in run.log} - set(run.delays))
    return [*main, *run.delays]


def progress_in_time(run: Observed) -> Iterator[Finding]:
    """1,000 records are done within the bound after each fault was over."""
    for fault in run.faults:
        took_s = None if fault.progressed_ms is None else (fault.progressed_ms - fault.healed_ms) / 1000
        if took_s is None or took_s > fault.bound_s:
            took = "were never done" if took_s is None else f"took {took_s:.1f} s"
            yield Finding(
                "progress in time", f"after {fault.what}: 1,000 records {took}, with a bound of {fault.bound_s:.0f} s"
            )


def ended_as_wanted(run: Observed) -> Iterator[Finding]:
    """No process of the query ended by itself."""
    for ending in run.endings:
        if not ending.wanted:
            yield Finding("ended as wanted", f"{ending.process} ended by itself: {ending.how}")


def nothing_left(run: Observed) -> Iterator[Finding]:
    """Nothing is left behind."""
    for thing in run.left:
        yield Finding("nothing left", thing)


def no_problems(run: Observed) -> Iterator[Finding]:
    """The run itself went as it should."""
    for problem in run.problems:
        yield Finding("run", problem)


OF_ANY_SOURCE = (
    nothing_missing, nothing_twice, nothing_else, nothing_aborted, agreed_at_rest, progress_in_time, ended_as_wanted,
    nothing_left, no_problems,
)  # fmt: skip
OF_A_MEMBER = (
    batches_follow, tasks_cover, commits_never_backward, commits_never_ahead, only_current_generation_commits,
    one_owner, verified, lag_recounted, numbers_recounted, batches_recounted, calls_recounted, never_early,
    source_is_done_retried_and_dead,
)  # fmt: skip


def judged(run: Observed) -> list[Finding]:
    """All findings."""
    checks = OF_ANY_SOURCE + (OF_A_MEMBER if run.source == "groupkafka" else ())
    return [finding for check in checks for finding in check(run)]
