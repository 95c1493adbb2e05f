"""Numbers that a query shows, recounted from other evidence; and what becomes of a RecordProcessor's records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from faults.checkpoint import positions
from faults.evidence import (
    EXACTLY_ONCE,
    IN_TRANSACTIONS,
    PROCESSOR,
    PROCESSOR_ONCE,
    PROCESSORS,
    TP,
    Finding,
    Observed,
)
from faults.judge.rows import shown as few
from spark_kafka_group.metrics.group_metrics import ListenersCommits, metrics_of

Recount = tuple[str, Any, Any]
"""A metric, its value in the progress, and its value by recount."""


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


# Metrics of a query


def recounted(run: Observed, latest: Mapping[str, Any]) -> Iterator[Recount]:
    """Of one source, by its ``latestOffset`` at rest."""
    group = latest["@group"]
    metrics = metrics_of("query", latest, ListenersCommits(), group["timestampMs"])
    owned, ended = owned_by(run, group), run.ended or {}
    lags = [max(0, run.ends[tp] - ended.get(tp, 0)) for tp in owned if tp in run.ends]
    for tp in owned:
        shown = metrics.partitions.get(tp, {})  # type: ignore[call-overload]
        yield f"position of {tp}", shown.get("position"), ended.get(tp, 0)  # without a record yet it is in no batch
        yield f"log-end-offset of {tp}", shown.get("log-end-offset"), run.ends.get(tp)
        yield f"records-lag of {tp}", shown.get("records-lag"), run.ends.get(tp, 0) - ended.get(tp, 0)
    yield "partitions", sorted(map(tuple, metrics.partitions)), sorted(owned)
    yield "committed", positions(group["committed"]), {tp: at for tp, at in run.committed.items() if tp in owned}
    for name, recount in (
        ("assigned-partitions", len(owned)),
        ("minOffsetsBehindLatest", min(lags, default=0)),
        ("maxOffsetsBehindLatest", max(lags, default=0)),
        ("avgOffsetsBehindLatest", sum(lags) / len(lags) if lags else 0),
        ("records-lag-max", max(lags, default=0)),
        ("records-lag-seconds-max", 0.0),
        ("brokers-away-seconds", 0.0),
        ("leaderless-partitions", 0),
    ):
        yield name, metrics[name], recount
    if group["protocol"] == "classic":
        yield "generation", metrics["generation"], generation_of(run, group["member"])
        commits = commits_of(run)
        if metrics["commit-total"] > commits:  # type: ignore[operator] # a repeated commit is stored more than once
            yield "commit-total", metrics["commit-total"], commits


def owned_by(run: Observed, group: Mapping[str, Any]) -> list[TP]:
    """Partitions that the group has given to a member, by the last stored generation that has it.

    All of them where the broker assigns: it stores no generations, and at rest there is no other member.
    """
    if group["protocol"] != "classic":
        return sorted(run.ends)
    for stored in reversed(run.stored):
        if group["member"] in stored.members:
            return [(topic, number) for topic, number in stored.members[group["member"]]]
    return []


def generation_of(run: Observed, member: str) -> int | None:
    """The last stored generation that has a member."""
    return next((stored.generation for stored in reversed(run.stored) if member in stored.members), None)


def commits_of(run: Observed) -> int:
    """Commits of queries that the group has stored, since the last process began and until it showed its numbers."""
    made = {
        (stored.time_ms, str(stored.note))
        for stored in run.stored
        if stored.note is not None and run.shown.since_ms <= stored.time_ms <= run.shown.until_ms
    }
    return len(made)


# The records of a RecordProcessor


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
            yield Finding("source = done + retry + dead", f"{len(wrong)} records of {topic}: {few(wrong)}", len(wrong))


def _stages(run: Observed) -> list[str]:
    """The main topic of a RecordProcessor, and its retry topics in order."""
    main = sorted({topic for topic, _, _ in run.log} - set(run.delays))
    return [*main, *run.delays]
