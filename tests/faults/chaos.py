"""Queries, Kafka's own Java consumers and kafka-python consumers share a group; they come, go and die at random.

While records with unique ids are produced, members are started and ended, as a seed says. At the end the rest of the
records are read by queries alone, and what everybody did is judged. The exit code is 1 when something was not as it
must be; the files of the run stay in ``--directory``, and ``--judge`` judges them once more:

    produced.jsonl       every record: partition, offset, id
    stored.jsonl         the group's generations and commits, from __consumer_offsets
    end.json             how each process was ended, and what was wrong: members that failed, records that nobody read
    queries/<name>/      of each checkpoint: the checkpoint itself, the sink, and a file of events for each process
    neighbours/          what other members have printed

What is not judged: which generation another consumer commits under (brokers see to that), and what it reads twice as it
failed to commit: that is its way. Consumers of the newer protocol do not say their epochs, so their assignments are not
compared with those that the coordinator stored.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from faults.cells.neighbours import OF_THE_BROKER
from faults.crew import (
    AT_ONCE,
    ENDS_WITHIN_S,
    FOLDERS,
    KILLED,
    NEWER_BROKER,
    BareQuery,
    JavaConsumer,
    Member,
    NewerConsumer,
    NewerJavaConsumer,
    PythonConsumer,
    Run,
    SparkQuery,
)
from faults.evidence import CLEANLY, TP, Ending, Finding, Observed, Stored
from faults.gather import left_in
from faults.judge import judged
from faults.neighbours import JAVA_ASSIGNORS, Said, events_of
from faults.topics import group_records
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.tools.event_logs import merge
from spark_kafka_group.tools.verify import verify

DRAINED_WITHIN_S = 120.0
KILLED_WITHIN_S = 200.0
NEWER = ("javanewer", "librdkafka")
"""How names of consumers of the newer protocol begin."""
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Between two changes, times the pace."""


class Production:
    """Records with unique ids, in bursts, in a thread, until it is stopped."""

    def __init__(self, run: Run, partitions: int, rng: random.Random) -> None:
        self._run = run
        self._partitions = partitions
        self._rng = rng
        self._stopping = threading.Event()
        self._sent: list[tuple[str, Any]] = []
        self._thread = threading.Thread(target=self._produce, name="production")
        self._thread.start()

    def _produce(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._run.kafka.bootstrap_servers, acks="all", linger_ms=5)
        try:
            while not self._stopping.wait(self._rng.random() * 0.2):
                for _ in range(self._rng.choice([1, 5, 20, 50])):
                    number = f"{len(self._sent)}"
                    partition = self._rng.randrange(self._partitions)
                    self._sent.append((number, producer.send(self._run.topic, number.encode(), partition=partition)))
            producer.flush()
        finally:
            producer.close()

    def stop(self) -> list[dict[str, Any]]:
        """Everything that was produced."""
        self._stopping.set()
        self._thread.join()
        answers = [(number, future.get(timeout=30)) for number, future in self._sent]
        return [{"partition": a.partition, "offset": a.offset, "id": number} for number, a in answers]


class Chaos:
    """Starts and ends members as a seed says."""

    def __init__(self, members: Sequence[Member], rng: random.Random, kill: bool, pace: float) -> None:
        self._members = list(members)
        self._rng = rng
        self._kill = kill
        self._pace = pace
        self.endings: list[dict[str, Any]] = []
        self.problems: list[str] = []

    def run(self, seconds: float) -> None:
        """Start all, then change something every now and then: so long, and until a kill if there are to be some."""
        began = time.monotonic()
        for member in self._members:
            self.start(member)
        while time.monotonic() < began + seconds or (
            self._lacks_a_kill() and time.monotonic() < began + KILLED_WITHIN_S
        ):
            threading.Event().wait(self._rng.choice(PAUSES_S) * self._pace)
            self._change(self._rng.choice(self._members))

    def _lacks_a_kill(self) -> bool:
        endings = [ending["how"] for ending in self.endings] + [member.ending for member in self._members]
        return self._kill and KILLED not in endings

    def _change(self, member: Member) -> None:
        if member.process is not None and member.ended():
            self.reap(member)
        if member.process is None:
            if isinstance(member, BareQuery) and self._rng.random() < 0.2:
                member.fresh()
            self.start(member)
        elif member.ending is None and self._rng.random() < 0.75:  # most are up most of the time
            # Spark ends a query at once, but who waits for the end of a batch is promised that nothing comes twice.
            violent = [KILLED, KILLED, AT_ONCE] if isinstance(member, BareQuery) else [KILLED]
            how = self._rng.choice([CLEANLY, CLEANLY, *violent] if self._kill else [CLEANLY])
            if how == KILLED or member.listens():
                member.end(how)

    def start(self, member: Member) -> None:
        member.start(self._rng.randrange(2**31))

    def reap(self, member: Member) -> None:
        """Take note of how a process ended."""
        failure = member.failure()
        if failure is not None:
            self.problems.append(failure)
        self.endings.append({"process": member.id, "how": member.ending or "by itself"})
        member.process = None

    def end(self, members: Sequence[Member]) -> None:
        """End these in order, and wait for them."""
        for member in members:
            if member.process is not None and member.ending is None:
                wait_until(lambda m=member: m.listens() or m.ended(), within=ENDS_WITHIN_S)
                if not member.ended():
                    member.end(CLEANLY)
        deadline = time.monotonic() + ENDS_WITHIN_S
        for member in members:
            if member.process is None:
                continue
            try:
                member.process.wait(max(0.1, deadline - time.monotonic()))
            except Exception:  # noqa: BLE001 - it is reported as a problem
                self.problems.append(f"{member.id} has not ended {member.ending}: {member.log.read_text()[-1500:]}")
                member.process.kill()
                member.process.wait()
            self.reap(member)

    def drain(self, run: Run, ends: dict[int, int]) -> None:
        """Let queries alone read the rest; those that were killed go on where they were."""
        queries = [member for member in self._members if isinstance(member, BareQuery)]
        self.end([member for member in self._members if member not in queries])
        self.end([query for query in queries if query.ending is not None or query.ended()])
        for query in queries:
            if query.process is None:
                self.start(query)

        def drained() -> bool:
            committed = {tp[1]: offset for tp, (offset, _) in run.kafka.committed(run.group).items()}
            return all(committed.get(p, 0) >= end for p, end in ends.items()) or all(q.ended() for q in queries)

        try:
            wait_until(drained, within=DRAINED_WITHIN_S, every=0.5)
        except TimeoutError:
            committed = run.kafka.committed(run.group)
            self.problems.append(
                f"not read to the end in {DRAINED_WITHIN_S:.0f} s: {committed}, the logs end at {ends}"
            )
        self.end(queries)


def play(
    kafka: KafkaCluster,
    directory: Path,
    *,
    seconds: float,
    seed: int,
    queries: int = 2,
    java: int = 0,
    python: int = 0,
    newer_java: int = 0,
    librdkafka: int = 0,
    strategy: str = "range",
    kill: bool = False,
    partitions: int = 6,
    batch_seconds: float = 0.5,
    spark: bool = False,
    pace: float = 1.0,
    one_application: bool = False,
) -> Verdict:
    """One run, and its judgement."""
    run = staged(kafka, directory, strategy, batch_seconds, one_application, partitions)
    rng = random.Random(seed)
    query = SparkQuery if spark else BareQuery
    members: list[Member] = [query(run, f"query{n}") for n in range(queries)]
    members += [JavaConsumer(run, f"java{n}") for n in range(java)]
    members += [PythonConsumer(run, f"python{n}") for n in range(python)]
    members += [NewerJavaConsumer(run, f"javanewer{n}") for n in range(newer_java)]
    members += [NewerConsumer(run, f"librdkafka{n}") for n in range(librdkafka)]
    chaos = Chaos(members, rng, kill, pace)
    production = Production(run, partitions, random.Random(seed + 1))
    return concluded(run, chaos, production, lambda: chaos.run(seconds))


def staged(
    kafka: KafkaCluster,
    directory: Path,
    strategy: str = "range",
    batch_seconds: float = 0.5,
    one_application: bool = False,
    partitions: int = 6,
) -> Run:
    """A run with a topic and a group of its own, without members."""
    for folder in FOLDERS:
        (directory / folder).mkdir(parents=True, exist_ok=True)
    topic = kafka.create_topic(f"chaos-{uuid.uuid4().hex[:10]}", partitions=partitions)
    return Run(kafka, directory, topic, f"group-{topic}", strategy, batch_seconds, one_application)


def concluded(run: Run, chaos: Chaos, production: Production, act: Callable[[], None]) -> Verdict:
    """Let members act while records are produced, then let queries read the rest, and judge."""
    try:
        act()
    finally:
        produced = production.stop()
        ends: dict[int, int] = {}
        for record in produced:
            ends[record["partition"]] = max(ends.get(record["partition"], 0), record["offset"] + 1)
        chaos.drain(run, ends)
    directory = run.directory
    write(directory / "produced.jsonl", produced)
    write(directory / "stored.jsonl", map(asdict, group_records(run.kafka, run.group, run.topic)))
    end = {"group": run.group, "topic": run.topic, "endings": chaos.endings, "problems": chaos.problems}
    (directory / "end.json").write_text(json.dumps(end))
    return judge(directory)


# The judgement, by the files of a run


@dataclass(frozen=True)
class Verdict:
    """What was counted, and what was found."""

    summary: Mapping[str, int]
    findings: Sequence[Finding]


def judge(directory: Path) -> Verdict:
    """Judge the files of a run that has ended."""
    run = gathered(directory)
    consumers = [Said(path) for path in sorted((directory / "neighbours").glob("*.jsonl"))]
    places = Counter(row.place for row in run.rows)
    places.update(place for one in consumers for place, _ in (*one.delivered(), *one.in_doubt()))
    exempt = OF_THE_BROKER if any(map(is_newer, consumers)) else {}
    findings = [found for found in judged(run) if found.invariant not in exempt]
    report = verify(run.events)
    summary = {
        "started": len(run.endings),
        **{f"ended {how}": count for how, count in sorted(Counter(ending.how for ending in run.endings).items())},
        "generations": len({stored.generation for stored in run.stored if stored.generation is not None}),
        "batches": report.batches,
        "commits": sum(stored.offset is not None for stored in run.stored),
        "records": len(run.log),
        "read": places.total(),
        "read twice": places.total() - len(places),
        "ranges in doubt": len(report.in_doubt),
        "memberships lost": sum(event.kind == "lost" for event in run.events),
        "violations": len(findings),
    }
    return Verdict(summary, findings)


def gathered(directory: Path) -> Observed:
    """The evidence of a run. Each checkpoint is a query, also where a member went on with a new one."""
    end = json.loads((directory / "end.json").read_text())
    stored = [stored_in(line) for line in read(directory / "stored.jsonl")]
    log = {(end["topic"], r["partition"], r["offset"]): r["id"] for r in read(directory / "produced.jsonl")}
    ends: dict[TP, int] = {}
    for topic, partition, offset in log:
        ends[topic, partition] = max(offset + 1, ends.get((topic, partition), 0))
    run = left_in(sorted((directory / "queries").glob("*")), "overwrite")
    consumers = [Said(path) for path in sorted((directory / "neighbours").glob("*.jsonl"))]
    of_consumers = [list(events_of(one, stored, end["group"], one.output.stem, is_newer(one))) for one in consumers]
    return replace(
        run,
        log=log,
        events=merge([run.events, *of_consumers]),
        all_members=True,
        stored=stored,
        ended=None,
        committed={one.tp: one.offset for one in stored if one.tp is not None and one.offset is not None},
        ends=ends,
        delivered=[value for one in consumers for _, value in one.delivered()],
        in_doubt=frozenset(value for one in consumers for _, value in one.in_doubt()),
        endings=[Ending(one["process"], one["how"], wanted=True) for one in end["endings"]],
        problems=end["problems"],
    )


def is_newer(said: Said) -> bool:
    """Whether a consumer is of the newer protocol, by its name."""
    return said.output.stem.startswith(NEWER)


def stored_in(line: Mapping[str, Any]) -> Stored:
    """A record of the coordinator that was written as JSON."""
    members = {member: [tuple(tp) for tp in tps] for member, tps in line["members"].items()}
    return Stored(**line | {"members": members, "tp": line["tp"] and tuple(line["tp"])})


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def tell(verdict: Verdict) -> str:
    """The verdict as text."""
    lines = [f"violation: {found.invariant}: {found.problem}" for found in verdict.findings]
    lines.append(", ".join(f"{name} {count}" for name, count in verdict.summary.items()))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="drawn and printed if not given")
    parser.add_argument("--queries", type=int, default=2, help="queries, at least one")
    parser.add_argument("--java", type=int, default=0, help="Kafka's VerifiableConsumers")
    parser.add_argument("--python", type=int, default=0, help="kafka-python consumers")
    parser.add_argument("--newer-java", type=int, default=0, help="VerifiableConsumers of the newer protocol (KIP-848)")
    parser.add_argument("--librdkafka", type=int, default=0, help="librdkafka consumers of the newer protocol")
    parser.add_argument("--strategy", choices=JAVA_ASSIGNORS, default="range")
    parser.add_argument(
        "--kill", action="store_true", help="end some with kill -9, and queries in the middle of a batch"
    )
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--batch-seconds", type=float, default=0.5, help="how long a query's batch takes at most")
    parser.add_argument("--spark", action="store_true", help="real Spark queries, not only their drivers")
    parser.add_argument(
        "--pace", type=float, default=1.0, help="more is slower; real Spark needs about 5 to join at all"
    )
    parser.add_argument(
        "--one-application", action="store_true", help="queries are as sources of one Spark application"
    )
    parser.add_argument("--directory", type=Path, help="for the files of the run; a new one if not given")
    parser.add_argument("--judge", type=Path, metavar="DIRECTORY", help="run nothing; judge the files of a run")
    options = vars(parser.parse_args())
    directory, ended = options.pop("directory"), options.pop("judge")
    if ended is not None:
        verdict = judge(ended)
    else:
        directory = directory or Path(tempfile.mkdtemp(prefix="chaos-"))
        if options["seed"] is None:
            options["seed"] = random.randrange(2**31)
        print(f"{options} in {directory}", flush=True)
        with KafkaCluster(properties=NEWER_BROKER) as kafka:
            verdict = play(kafka, directory.resolve(), **options)
    print(tell(verdict))
    return 1 if verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main())
