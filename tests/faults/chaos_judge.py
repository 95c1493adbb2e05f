"""Whether the members of a chaotic group shared it correctly, by the files of a run.

::

    produced.jsonl          every record: partition, offset, id
    endings.jsonl           which process was ended how
    commits.jsonl           the group's commits, from __consumer_offsets
    generations.jsonl       the group's generations and what each member was assigned, from there too
    end.json                what was wrong when the run ended: members that failed, records that no member would read
    events/<process>.jsonl  what a query or a kafka-python consumer did
    rows/<member>.jsonl     what they read, a line a batch
    java/<process>.jsonl    what a VerifiableConsumer printed

What is checked:

* ``verify`` over the events of all members.
* No record is missing in the union of rows, and none is in it with another id than at its place in the log.
* A record is there twice only if all readings but one were of batches that were never committed, and those are a
  neighbour's, or a query's that was killed, or ended at once, while that was its last batch, or that lost its
  membership.
* In ``__consumer_offsets`` no committed offset is below the one before, but where a query has said that it was moved.
* In ``__consumer_offsets`` no generation gives a partition to two members, and what members say they were assigned is
  what the coordinator stored for them.
* No member failed, and in the end all records were committed.

What is not checked: which generation a kafka-python or Java consumer commits under (brokers see to that), and that
neighbours read nothing twice that they failed to commit: that is their way. Neighbours of the newer protocol do not say
their epochs, so their assignments are not compared with those that the coordinator stored.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import java_events, stored
from spark_kafka_group.tools.event_logs import Event, merge, parse
from spark_kafka_group.tools.verify import Report, verify
from spark_kafka_group.values.commit_metadata import instance_id_of
from spark_kafka_group.values.offsets import TopicPartition

CLEANLY = "cleanly"
NEIGHBOURS = ("java", "python", "librdkafka")
WITHOUT_GENERATION = -1
"""In events of a neighbour of the newer protocol, which has an epoch that it does not show."""


@dataclass(frozen=True)
class Reading:
    """One batch of one member that read a record."""

    member: str
    batch: int


@dataclass
class Evidence:
    """All that a run left behind."""

    produced: dict[tuple[int, int], str]
    endings: list[Mapping[str, Any]]
    commits: list[Mapping[str, Any]]
    generations: list[Mapping[str, Any]]
    events: dict[str, list[Event]] = field(default_factory=dict)  # by process
    rows: dict[Reading, list[tuple[int, int, str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """The judgement."""

    report: Report
    summary: Mapping[str, int]
    violations: tuple[str, ...]


def gather(directory: Path) -> Evidence:
    """Read the files of a run."""
    produced = {(r["partition"], r["offset"]): r["id"] for r in stored.read(directory / "produced.jsonl")}
    evidence = Evidence(
        produced,
        stored.read(directory / "endings.jsonl"),
        stored.read(directory / "commits.jsonl"),
        stored.read(directory / "generations.jsonl"),
        problems=json.loads((directory / "end.json").read_text()),
    )
    for path in sorted((directory / "events").glob("*.jsonl")):
        evidence.events[path.stem] = _events(path.read_text(), str(path))
    for path in sorted((directory / "rows").glob("*.jsonl")):
        _take_rows(evidence, path.stem, map(json.loads, _whole_lines(path.read_text())))
    for path in sorted((directory / "java").glob("*.jsonl")):
        objs = java_events.printed(_whole_lines(path.read_text()))
        group = next((e.group for events in evidence.events.values() for e in events), "group")
        events, rows = java_events.convert(objs, evidence.generations, group, path.stem)
        text = "".join(json.dumps(event) + "\n" for event in events)
        (directory / "java" / f"{path.stem}.events").write_text(text)
        evidence.events[path.stem] = _events(text, str(path.with_suffix(".events")))
        _take_rows(evidence, path.stem, rows)
    return evidence


def _whole_lines(text: str) -> list[str]:
    """kill -9 leaves the last one cut off."""
    return text.rpartition("\n")[0].splitlines()


def _events(text: str, path: str) -> list[Event]:
    return [parse(line, f"{path}:{number}") for number, line in enumerate(_whole_lines(text), start=1)]


def _take_rows(evidence: Evidence, member: str, lines: Iterable[Mapping[str, Any]]) -> None:
    for line in lines:
        evidence.rows[Reading(member, line["batch"])] = [tuple(row) for row in line["rows"]]


def judge(evidence: Evidence) -> Verdict:
    """Check everything."""
    report = verify(merge(evidence.events.values()))
    rows = Rows(evidence)
    violations = [
        f"{found.invariant}: {found.problem} ({', '.join(e.where for e in found.proof)})" for found in report.violations
    ]
    violations += rows.violations()
    violations += backward(evidence)
    violations += twice_in_a_generation(evidence.generations)
    violations += not_as_stored(evidence)
    violations += evidence.problems
    how = Counter(ending["how"] for ending in evidence.endings)
    lost = sum(event.kind == "lost" for events in evidence.events.values() for event in events)
    summary = {
        "started": len(evidence.endings),
        **{f"ended {name}": count for name, count in sorted(how.items())},
        "generations": len({g["generation"] for g in evidence.generations}),
        "batches": report.batches,
        "commits": len(evidence.commits),
        "records": len(evidence.produced),
        "read": sum(map(len, evidence.rows.values())),
        "read twice": rows.twice,
        "ranges in doubt": len(report.in_doubt),
        "memberships lost": lost,
        "violations": len(violations),
    }
    return Verdict(report, summary, tuple(violations))


class Rows:
    """The rows of each member, checked against its assignments."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._readings: dict[tuple[int, int], list[Reading]] = defaultdict(list)
        for reading, rows in evidence.rows.items():
            for partition, offset, _ in rows:
                self._readings[partition, offset].append(reading)
        self.twice = sum(len(readings) - 1 for readings in self._readings.values())
        self._committed: set[tuple[str, int, int]] = set()  # member, batch, partition
        for process, events in evidence.events.items():
            for event in events:
                self._committed |= {(self._member(process), event.batch or 0, tp.partition) for tp in event.offsets}
        self._interrupted = set(self._interruptions())

    def _member(self, process: str) -> str:
        """A query is the same member after a restart, as its checkpoint is the same."""
        return process if process.startswith(NEIGHBOURS) else process.rpartition("-")[0]

    def _interruptions(self) -> Iterator[Reading]:
        """Last batches of processes that were not ended in order, and those in which membership was lost."""
        how = {ending["process"]: ending["how"] for ending in self._evidence.endings}
        for process, events in self._evidence.events.items():
            running: int | None = None
            for event in events:
                if event.kind == "planned":
                    running = event.batch
                elif event.kind == "lost" and running is not None:
                    yield Reading(self._member(process), running)
            if running is not None and how.get(process) != CLEANLY:
                yield Reading(self._member(process), running)

    def violations(self) -> Iterator[str]:
        produced = self._evidence.produced
        missing = sorted(produced.keys() - self._readings.keys())
        if missing:
            yield f"{len(missing)} records were read by no member: {_places(missing)}"
        for reading, rows in self._evidence.rows.items():
            wrong = [(p, o) for p, o, value in rows if produced.get((p, o)) != value]
            if wrong:
                yield f"{reading.member} batch {reading.batch}: other records than those at {_places(wrong)}"
        together: dict[tuple[Reading, ...], list[tuple[int, int]]] = defaultdict(list)
        for place, readings in sorted(self._readings.items()):
            if len(readings) > 1 and not self._may(place[0], readings):
                together[tuple(readings)].append(place)
        for readings, places in together.items():
            who = " and ".join(f"{r.member} batch {r.batch} ({self._status(places[0][0], r)})" for r in readings)
            yield f"{len(places)} records were read twice, by {who}: {_places(places)}"

    def _may(self, partition: int, readings: list[Reading]) -> bool:
        statuses = Counter(self._status(partition, reading) for reading in readings)
        return statuses["committed"] <= 1 and not statuses["not committed"]

    def _status(self, partition: int, reading: Reading) -> str:
        if (reading.member, reading.batch, partition) in self._committed:
            return "committed"
        if reading in self._interrupted:
            return "interrupted"
        return "a neighbour's, not committed" if reading.member.startswith(NEIGHBOURS) else "not committed"


def _places(places: list[tuple[int, int]]) -> str:
    shown = " ".join(f"{partition}:{offset}" for partition, offset in places[:5])
    return shown + (" ..." if len(places) > 5 else "")


def backward(evidence: Evidence) -> Iterator[str]:
    """Commits below the one before, as the coordinator stored them."""
    moved = {
        (tp.topic, tp.partition, move.to)
        for events in evidence.events.values()
        for event in events
        for tp, move in event.moves.items()
    }
    last: dict[tuple[str, int], Mapping[str, Any]] = {}
    for commit in evidence.commits:
        tp = commit["topic"], commit["partition"]
        before = last.get(tp)
        if commit["offset"] is None:
            yield f"the commit of {tp[0]}-{tp[1]} was removed"
        elif before is not None and commit["offset"] < before["offset"] and (*tp, commit["offset"]) not in moved:
            yield f"committed {tp[0]}-{tp[1]}={commit['offset']} ({commit['metadata']}) after {before}"
        if commit["offset"] is not None:
            last[tp] = commit


def twice_in_a_generation(generations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Partitions that one stored generation gives to two members."""
    for generation in generations:
        owners: dict[TopicPartition, str] = {}
        for member in generation["members"]:
            for tp in _tps(member["partitions"]):
                owner = owners.setdefault(tp, member["member_id"])
                if owner != member["member_id"]:
                    yield f"generation {generation['generation']} gives {tp} to {owner} and {member['member_id']}"


def not_as_stored(evidence: Evidence) -> Iterator[str]:
    """Assignments that members wrote down and the coordinator did not store for them."""
    by_id: dict[tuple[int, str], list[frozenset[TopicPartition]]] = defaultdict(list)
    for generation in evidence.generations:
        for member in generation["members"]:
            for name in {member["client_id"], member["instance_id"] or ""}:
                by_id[generation["generation"], name].append(frozenset(_tps(member["partitions"])))
    for events in evidence.events.values():
        for event in events:
            if event.kind == "assigned" and event.generation != WITHOUT_GENERATION:
                names = (event.member, instance_id_of(None, event.member))
                found = [tps for name in names for tps in by_id.get((event.generation, name), [])]
                if event.partitions not in found:
                    yield (
                        f"{event.member} was assigned {_named(event.partitions)} in generation {event.generation}, "
                        f"the coordinator has {' or '.join(map(_named, found)) or 'no such member'} ({event.where})"
                    )


def _tps(numbers: Mapping[str, list[int]]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic, n) for topic, some in numbers.items() for n in some)


def _named(tps: Iterable[TopicPartition]) -> str:
    return " ".join(map(str, sorted(tps))) or "nothing"


def tell(verdict: Verdict) -> str:
    """The verdict as text."""
    lines = [f"violation: {violation}" for violation in verdict.violations]
    lines.append(", ".join(f"{name} {count}" for name, count in verdict.summary.items()))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge once more the files of a run that has ended.")
    parser.add_argument("directory", type=Path)
    verdict = judge(gather(parser.parse_args().directory))
    print(tell(verdict))
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
