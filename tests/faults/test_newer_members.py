"""Queries share a group with consumers of Kafka's newer protocol (KIP-848), while records come: in each order, with
kills.
"""

import random

import pytest

from faults import chaos
from faults.crew import CLEANLY, KILLED, NEWER_BROKER, BareQuery, NewerConsumer, NewerJavaConsumer
from spark_kafka_group.driver.membership.member import BROKER_ASSIGNS, MEMBERS_ASSIGN
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.wire.admin import GroupAdmin

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def newer_kafka():
    """A broker that expects heartbeats of newer members as often as those of classic ones."""
    with KafkaCluster(properties=NEWER_BROKER) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def admin(newer_kafka):
    with GroupAdmin(Options.parse({"kafka.bootstrap.servers": newer_kafka.bootstrap_servers, "subscribe": "t"})) as one:
        yield one


class Scene:
    """Members of a run that are started and ended by a script, while records are produced."""

    def __init__(self, kafka, admin, directory, **settings):
        self.run = chaos.staged(kafka, directory, **settings)
        self._admin = admin
        self._members = []
        self._chaos = None

    def has(self, kind, name, *more):
        """A member, which does not run yet."""
        self._members.append(kind(self.run, name, *more))
        return self._members[-1]

    def start(self, *members):
        for member in members:
            self._chaos.start(member)

    def end(self, member, how):
        member.end(how)
        member.process.wait(WITHIN_S)
        self._chaos.reap(member)

    def group(self):
        """Kind of the group, and the sizes of its members' shares."""
        found = self._admin.describe(self.run.group)
        return found.kind, sorted(len(member.assigned or ()) for member in found.members)

    def wait_for(self, kind, *shares):
        wait_until(lambda: self.group() == (kind, sorted(shares)), within=WITHIN_S)

    def wait_for_more(self, member):
        """Wait until a query has committed another batch."""
        before = member.log.read_text().count(": committed ")
        wait_until(lambda: member.log.read_text().count(": committed ") > before, within=WITHIN_S)

    def played(self, script, seed=1):
        rng = random.Random(seed)
        self._chaos = chaos.Chaos(self._members, rng, kill=False, pace=1.0)
        verdict = chaos.concluded(self.run, self._chaos, chaos.Production(self.run, 6, rng), script)
        assert not verdict.findings, chaos.tell(verdict)
        return verdict.summary


@pytest.mark.parametrize("ending", [CLEANLY, KILLED])
@pytest.mark.parametrize("newer_first", [False, True])
@pytest.mark.parametrize("kind", [NewerConsumer, NewerJavaConsumer])
@pytest.mark.soak
def test_a_newer_member_comes_and_goes(newer_kafka, admin, tmp_path, kind, newer_first, ending):
    scene = Scene(newer_kafka, admin, tmp_path, batch_seconds=0.3)
    query = scene.has(BareQuery, "query0")
    newer = scene.has(kind, "javanewer0" if kind is NewerJavaConsumer else "librdkafka0")

    def script():
        first, second = (newer, query) if newer_first else (query, newer)
        scene.start(first)
        scene.wait_for("consumer" if newer_first else "classic", 6)
        scene.start(second)
        scene.wait_for("consumer", 3, 3)
        scene.wait_for_more(query)
        scene.end(newer, ending)
        scene.wait_for("classic", 6)
        scene.wait_for_more(query)
        log = query.log.read_text()
        assert (log.count(BROKER_ASSIGNS), log.count(MEMBERS_ASSIGN)) == (1, 1)
        assert "leader of 1 member(s)" in log[log.index(MEMBERS_ASSIGN) :]

    summary = scene.played(script)
    if ending == CLEANLY:
        assert summary["read twice"] == 0
    assert summary["read"] - summary["read twice"] == summary["records"] > 0


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "sticky", "roundrobin"])
@pytest.mark.soak
def test_a_query_that_is_killed_beside_a_newer_member_goes_on_where_it_was(newer_kafka, admin, tmp_path, strategy):
    scene = Scene(newer_kafka, admin, tmp_path, batch_seconds=2.0, strategy=strategy)
    query, newer = scene.has(BareQuery, "query0"), scene.has(NewerConsumer, "librdkafka0")

    def script():
        scene.start(query, newer)
        scene.wait_for("consumer", 3, 3)
        for _ in range(3):
            scene.wait_for_more(query)
            scene.end(query, KILLED)
            scene.start(query)
            scene.wait_for("consumer", 3, 3)
        scene.wait_for_more(query)
        scene.end(query, KILLED)
        scene.wait_for("consumer", 6)  # its session has ended
        scene.start(query)
        scene.wait_for("consumer", 3, 3)
        scene.wait_for_more(query)

    assert scene.played(script)["ended killed"] == 4


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.soak
def test_batches_longer_than_rebalances_hold_partitions_back_and_are_read_once(newer_kafka, admin, tmp_path, strategy):
    scene = Scene(newer_kafka, admin, tmp_path, batch_seconds=8.0, strategy=strategy)
    queries = [scene.has(BareQuery, f"query{n}") for n in range(2)]
    newer = [scene.has(NewerConsumer, f"librdkafka{n}") for n in range(2)]

    def script():
        scene.start(*queries)
        scene.wait_for("classic", 3, 3)
        for _ in range(3):
            scene.wait_for_more(queries[0])
            scene.start(*newer)
            scene.wait_for("consumer", 1, 1, 2, 2)
            scene.end(newer[0], CLEANLY)
            scene.wait_for_more(queries[1])
            scene.end(newer[1], CLEANLY)
            scene.wait_for("classic", 3, 3)

    assert scene.played(script)["read twice"] == 0


@pytest.mark.soak
def test_a_static_member_of_the_newer_protocol_comes_back(newer_kafka, admin, tmp_path):
    scene = Scene(newer_kafka, admin, tmp_path, batch_seconds=0.3)
    query, newer = scene.has(BareQuery, "query0"), scene.has(NewerConsumer, "librdkafka0", "one-place")

    def script():
        scene.start(query, newer)
        scene.wait_for("consumer", 3, 3)
        scene.end(newer, CLEANLY)
        scene.start(newer)
        scene.wait_for("consumer", 3, 3)
        scene.wait_for_more(query)
        scene.end(newer, KILLED)
        scene.wait_for("classic", 6)

    scene.played(script)


@pytest.mark.parametrize(
    ("seed", "strategy"), [(0, "range"), (1, "cooperative-sticky"), (2, "sticky"), (3, "roundrobin")]
)
@pytest.mark.soak
def test_kills_among_members_of_both_protocols_repeat_nothing_but_the_batches_they_hit(
    newer_kafka, tmp_path, seed, strategy
):
    members = {"queries": 2, "librdkafka": 1, "newer_java": 1}
    settings = {"seconds": 60, "seed": seed, "strategy": strategy, "kill": True, "batch_seconds": 0.3}
    verdict = chaos.play(newer_kafka, tmp_path, **members, **settings)
    assert not verdict.findings, chaos.tell(verdict)
