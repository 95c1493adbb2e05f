"""Logs that lose their ends, by an unclean election or a broker without power, or their beginnings, by retention."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from itertools import count

from damage import cut_off
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import TopicPartition

from matrix.cells.registry import GROUPKAFKA, MINUTES, Cell, add
from matrix.checkpoint import TP
from matrix.load import Acknowledged, identity
from matrix.running import Query
from matrix.scene import Scene

LOG = "log"
GOES_ON = {"failOnDataLoss": "false"}
STOPS = {"failOnDataLoss": "true"}
LOST = 60
"""Records that each partition loses, about: logs are cut between two record batches."""
_numbers = count()


def write(scene: Scene, counts: dict[int, int]) -> None:
    """Write so many records to partitions, as one more producer."""
    assert scene.load is not None
    name = f"after{next(_numbers)}"
    producer = KafkaProducer(bootstrap_servers=scene.kafka.bootstrap_servers, acks="all", enable_idempotence=False)
    try:
        sent = [
            (record := identity(name, scene.topic, p, n), producer.send(scene.topic, record.encode(), partition=p))
            for p, wanted in counts.items()
            for n in range(wanted)
        ]
        scene.load.sent += len(sent)
        producer.flush()
        for record, future in sent:
            answer = future.get(timeout=30)
            scene.load.acknowledged.append(Acknowledged(record, answer.topic, answer.partition, answer.offset))
    finally:
        producer.close()


def quiet(scene: Scene) -> dict[TP, int]:
    """Stop the load until the query has read all there is; returns the ends of the logs."""
    assert scene.load is not None
    scene.load.spread(scene.topic, 0)
    scene.wait(lambda: scene.load is not None and scene.load.pending == 0 and scene.ended() == scene.ends())
    return scene.ends()


def losses_said(query: Query) -> list[str]:
    """Lines of all its processes' logs about records that are gone."""
    logs = sorted((query.directory / "logs").glob("*.log"))
    return [line for log in logs for line in log.read_text(errors="replace").splitlines() if "KAFKA_DATA_LOSS" in line]


def configure(scene: Scene, **configs: str) -> None:
    """Change configs of the topic; `retention_ms` is retention.ms."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    scene.kafka.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, scene.topic, given)])


def loses(name: str, what: str, grown: float) -> Cell:
    """A cell: logs lose their ends, and grow again by `grown` times what they have lost, before the query looks."""

    def happen(scene: Scene) -> None:
        assert scene.load is not None
        partitions = scene.topics[scene.topic]
        ends = quiet(scene)
        with scene.fault(f"each log loses its end, and {what}", may_end=True):
            query = scene.query
            query.program.signal_all(signal.SIGSTOP)
            (node,) = scene.kafka.nodes
            node.kill()
            left = {}
            for p in range(partitions):
                segments = sorted((node.data / f"{scene.topic}-{p}").glob("*.log"))
                left[p] = cut_off(segments[-1], ends[scene.topic, p] - LOST)
                scene.gone |= {
                    a.identity for a in scene.load.acknowledged
                    if a.partition == p and left[p] <= a.offset < ends[scene.topic, p]
                }  # fmt: skip
            node.start()
            scene.kafka.wait_until_ready()
            write(scene, {p: round((ends[scene.topic, p] - at) * grown) for p, at in left.items()})
            query.program.signal_all(signal.SIGCONT)
            if grown < 1:
                scene.pause(3)
            scene.load.spread(scene.topic, partitions)

    return Cell(LOG, name, f"each log loses its end, and {what}", happen, options=GOES_ON, at_once=5)


add(loses("log-shorter", "is shorter than the query's position when it looks next", 0))
add(loses("log-as-long", "is as long again when the query looks next", 1))
add(loses("log-longer", "is longer when the query looks next", 2))


# Unclean elections

PAIR = (1, 2)
"""The nodes that have the topic; the third one keeps the quorum while one of them is away, and then the other."""
SAID_WITHIN_S = 60.0


def in_sync(scene: Scene) -> list[set[int]]:
    """Of each of the topic's partitions the replicas that are in sync."""
    (topic,) = scene.kafka.admin.describe_topics([scene.topic])
    return [set(partition["isr_nodes"]) for partition in topic["partitions"]]


def leaders(scene: Scene) -> set[int]:
    """The nodes that lead the topic's partitions."""
    return {scene.kafka.leader(scene.topic, p) for p in range(scene.topics[scene.topic])}


def on_a_pair(scene: Scene) -> None:
    """One node leads all partitions, another one follows; a leader may go on alone, and a log be elected as it is."""
    configure(scene, min_insync_replicas="1", unclean_leader_election_enable="true")
    tps = [TopicPartition(scene.topic, p) for p in range(scene.topics[scene.topic])]
    scene.kafka.admin.alter_partition_reassignments({tp: list(PAIR) for tp in tps})
    scene.wait(lambda: all(replicas == set(PAIR) for replicas in in_sync(scene)))
    scene.kafka.admin.elect_leaders(0, {scene.topic: [tp.partition for tp in tps]}, raise_errors=False)
    scene.wait(lambda: leaders(scene) == {PAIR[0]})


def elected(name: str, what: str, grown: float, fails: bool) -> Cell:
    """A cell: a follower is away while records come and are read, and is elected when the leader is killed.

    Parameters
    ----------
    grown
        Records that the new leader has got when the query looks, by those that it never had.
    fails
        Whether failOnDataLoss is true: the query ends, and is started with false, as its error says.
    """
    what = f"an unclean election: each log loses its end, and {what}"

    def happen(scene: Scene) -> None:
        assert scene.load is not None
        query, partitions = scene.query, scene.topics[scene.topic]
        if fails and query.options["failOnDataLoss"] == "false":
            scene.left += query.stop()
            query.options |= STOPS
            query.start()
        scene.wait(lambda: all(replicas == set(PAIR) for replicas in in_sync(scene)))
        (leading,) = leaders(scene)
        (following,) = set(PAIR) - {leading}
        leader, follower = scene.kafka.node(leading - 1), scene.kafka.node(following - 1)
        diverges = quiet(scene)
        with scene.fault(what, may_end=fails):
            follower.kill()
            scene.wait(lambda: all(replicas == {leading} for replicas in in_sync(scene)))
            write(scene, dict.fromkeys(range(partitions), LOST))
            scene.wait(lambda: scene.ended() == scene.ends())
            scene.gone |= {
                a.identity for a in scene.load.acknowledged if a.offset >= diverges[a.topic, a.partition]
            }  # fmt: skip
            query.program.signal_all(signal.SIGSTOP)
            leader.kill()
            follower.start()
            scene.kafka.wait_until_ready()
            scene.wait(lambda: leaders(scene) == {following})
            assert scene.ends() == diverges, "the follower had records that it was not to have"
            write(scene, dict.fromkeys(range(partitions), round(LOST * grown)))
            said = len(losses_said(query))
            query.program.signal_all(signal.SIGCONT)
            if fails:
                started_as_it_says(scene)
            elif scene.source == GROUPKAFKA:
                heard(scene, said, diverges)
            else:
                scene.pause(3)
            scene.load.spread(scene.topic, partitions)
            leader.start()
            scene.kafka.wait_until_ready()

    return Cell(
        LOG,
        name,
        f"{what}; failOnDataLoss={'true, then false' if fails else 'false'}",
        happen,
        count=MINUTES,
        at_once=5,
        sources=(GROUPKAFKA,) if fails else Cell.sources,
        nodes=3,
        properties={"auto.leader.rebalance.enable": "false"},
        replication=2,
        load={"acks": 1, "enable_idempotence": False},
        options=STOPS if fails else GOES_ON,
        prepare=on_a_pair,
    )


def heard(scene: Scene, said: int, diverges: dict[TP, int]) -> None:
    """Wait until the query has said of each partition where its log has lost its end."""
    missing = dict(diverges)

    def all_said() -> bool:
        for line in losses_said(scene.query)[said:]:
            for topic, p in list(missing):
                if re.search(rf"{topic}-{p}\b.*\b{missing[topic, p]}\b", line):
                    del missing[topic, p]
        return not missing

    try:
        scene.wait(all_said, within=SAID_WITHIN_S)
    except TimeoutError:
        scene.problems.append(f"the query has not said that these logs have lost their ends: {missing}")


def started_as_it_says(scene: Scene) -> None:
    """The query ends, as records are gone, and is started with the option that its error names."""
    query = scene.query
    query.program.ends(SAID_WITHIN_S)
    last = query.ended_by_itself(wanted=True)
    print(f"     {last}", flush=True)
    if "KAFKA_DATA_LOSS" not in last or "Set failOnDataLoss=false" not in last:
        scene.problems.append(f"the query ended without a word of the loss: {last}")
    query.options |= GOES_ON
    query.start()


for suffix, stops in (("", False), ("-stops", True)):
    add(elected(f"election-shorter{suffix}", "is shorter than the query's position when it looks next", 0, stops))
    add(elected(f"election-as-long{suffix}", "is as long again when the query looks next", 1, stops))
    add(elected(f"election-longer{suffix}", "is longer when the query looks next", 2, stops))


# Retention

EXPIRED = re.compile(
    r"(?P<topic>[\w-]+)-(?P<p>\d+): .*?(?:records of offsets|skipping) (?P<first>\d+) to (?P<last>\d+)"
)
UNREAD = 300
"""Records of each partition that retention deletes, at least."""
OFTEN = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}


def in_small_segments(scene: Scene) -> None:
    """A segment file for each second, so that retention has files to delete."""
    configure(scene, segment_ms="1000")


def firsts(scene: Scene) -> dict[TP, int]:
    """The first offsets of the logs."""
    consumer = KafkaConsumer(bootstrap_servers=scene.kafka.bootstrap_servers)
    try:
        found = consumer.beginning_offsets([TopicPartition(scene.topic, p) for p in range(scene.topics[scene.topic])])
        return {(tp.topic, tp.partition): offset for tp, offset in found.items()}
    finally:
        consumer.close()


def expire(scene: Scene, beyond: dict[TP, int]) -> dict[TP, int]:
    """Wait until retention has deleted records up to these offsets, then end it; returns the first that stay."""
    scene.wait(lambda: all(first >= beyond[tp] for tp, first in firsts(scene).items()), every=0.3)
    configure(scene, retention_ms="-1", retention_bytes="-1")
    seen: list[dict[TP, int]] = []

    def at_rest() -> bool:
        seen.append(firsts(scene))
        return len(seen) > 3 and seen[-4] == seen[-1]

    scene.wait(at_rest, every=0.5)  # a check may have been under way
    return seen[-1]


def expired_as_said(query: Query) -> dict[TP, set[int]]:
    """Offsets that the query says it has passed over."""
    said: dict[TP, set[int]] = {}
    for line in losses_said(query):
        if found := EXPIRED.search(line):
            offsets = range(int(found["first"]), int(found["last"]) + 1)
            said.setdefault((found["topic"], int(found["p"])), set()).update(offsets)
    return said


def as_runs(offsets: set[int]) -> Iterator[tuple[int, int]]:
    """Starts and ends, exclusive, of offsets that follow each other."""
    for start in sorted(offset for offset in offsets if offset - 1 not in offsets):
        end = start
        while end in offsets:
            end += 1
        yield start, end


def expires_meanwhile(name: str, what: str, **retention: str) -> Cell:
    """A cell: the query is stopped, and retention deletes records that it has not read."""

    def happen(scene: Scene) -> None:
        query = scene.query
        with scene.fault(what):
            scene.left += query.stop()
            before = scene.ended()
            scene.wait(lambda: all(end >= before.get(tp, 0) + 2 * UNREAD for tp, end in scene.ends().items()))
            configure(scene, **retention)
            first = expire(scene, {tp: at + UNREAD for tp, at in before.items()})
            scene.removed += [(*tp, at, first[tp]) for tp, at in before.items()]
            query.start()
        scene.wait(lambda: all(scene.ended()[tp] >= offset for tp, offset in first.items()))
        passed_over = expired_as_said(query)
        for tp, at in before.items() if scene.source == GROUPKAFKA else ():
            said = {offset for offset in passed_over.get(tp, ()) if offset >= at}
            if said != set(range(at, first[tp])):
                scene.problems.append(f"{tp}: {at} to {first[tp] - 1} were deleted, it said {list(as_runs(said))}")

    return Cell(LOG, name, what, happen, properties=OFTEN, prepare=in_small_segments, options=GOES_ON)


add(
    expires_meanwhile(
        "retention-by-time",
        "retention.ms deletes records that are not read, while the query is stopped; failOnDataLoss=false",
        retention_ms="1000",
    )
)
add(
    expires_meanwhile(
        "retention-by-size",
        "retention.bytes deletes records that are not read, while the query is stopped; failOnDataLoss=false",
        retention_bytes="20000",
    )
)


def retention_overtakes(scene: Scene) -> None:
    """The query falls behind, and reads on while retention deletes what it has not read."""
    query = scene.query
    scene.pause()
    with scene.fault("SIGSTOP of the program, then retention deletes while it goes on"):
        query.program.signal_all(signal.SIGSTOP)
        before = scene.ended()
        planned = before | {tp: end for batch in query.checkpoint.batches() for tp, end in batch.ends.items()}
        scene.wait(lambda: all(end >= planned.get(tp, 0) + 4 * UNREAD for tp, end in scene.ends().items()))
        configure(scene, retention_ms=str(scene.rng.randrange(1000, 3000)))
        scene.pause()
        query.program.signal_all(signal.SIGCONT)
        first = expire(scene, {tp: at + UNREAD for tp, at in planned.items()})
    scene.wait(lambda: all(scene.ended()[tp] >= offset for tp, offset in first.items()))
    if scene.source == GROUPKAFKA:  # each record is in the sink, or the query has said that it was gone
        for tp, offsets in expired_as_said(query).items():
            runs = as_runs({offset for offset in offsets if offset < first[tp]})
            scene.removed += [(*tp, start, end) for start, end in runs]
    else:
        scene.removed += [(*tp, at, first[tp]) for tp, at in before.items()]


add(
    Cell(
        LOG,
        "retention-overtakes",
        "the program is paused and falls behind; it reads on while retention deletes what it has not read; "
        "failOnDataLoss=false",
        retention_overtakes,
        properties=OFTEN,
        prepare=in_small_segments,
        options=GOES_ON,
    )
)
