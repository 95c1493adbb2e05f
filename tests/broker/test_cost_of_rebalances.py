"""What a rebalance costs in a group with consumers of Kafka's newer protocol, against a classic one: figures.

``pytest -s -m soak tests/broker/test_cost_of_rebalances.py`` prints them. A query and a librdkafka consumer share
twelve partitions; another consumer joins, and leaves, again and again, while 240 records come in a second. The query's
micro-batches take half a second, and the broker has Kafka's defaults.
"""

import statistics
import threading
import time

import pytest
from kafka import KafkaProducer
from running import Query
from support import committed, options

from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire.admin import GroupAdmin

PARTITIONS, PER_SECOND, BATCH_S, ROUNDS = 12, 240, 0.5, 3
KINDS = {
    "classic, range": ("range", {"group.protocol": "classic", "partition.assignment.strategy": "range"}),
    "classic, cooperative-sticky": (
        "cooperative-sticky",
        {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
    ),
    "with newer consumers": ("range", {}),
}


class Timed(Query):
    """Notes when each range was planned, and lets a batch take its time."""

    def __init__(self, driver):
        super().__init__(driver)
        self.planned_s = []
        plan = driver.plan

        def planned(start, end):
            tasks = plan(start, end)
            self.planned_s += [(time.time(), r) for task in tasks for r in task]
            threading.Event().wait(BATCH_S)
            return tasks

        driver.plan = planned


class Production:
    """Records at a steady pace, until it is stopped; their timestamps say when."""

    def __init__(self, kafka, topic):
        self.sent_s = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(kafka, topic), daemon=True)
        self._thread.start()

    def _run(self, kafka, topic):
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        sent = []
        while not self._ending.wait(PARTITIONS / PER_SECOND):
            now_s = time.time()
            sent += [(now_s, producer.send(topic, b"x", partition=p)) for p in range(PARTITIONS)]
        producer.flush()
        producer.close()
        for now_s, future in sent:
            found = future.get(timeout=30)
            self.sent_s[found.partition, found.offset] = now_s

    def stop(self):
        self._ending.set()
        self._thread.join(60)


def delays(production, query, consumers):
    """When each record was sent, and the seconds until it was first taken."""
    taken = {}
    for at_s, r in query.planned_s:
        for offset in range(r.start, r.end):
            taken.setdefault((r.tp.partition, offset), at_s)
    for consumer in consumers:
        for at_s, place in zip(consumer.taken_s, consumer.places(), strict=True):
            taken[place] = min(at_s, taken.get(place, at_s))
    return [(sent_s, taken[place] - sent_s) for place, sent_s in production.sent_s.items()]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.soak
def test_the_cost_of_a_rebalance_is_measured(kafka, driver_of, librdkafka_of, group, kind):
    strategy, configs = KINDS[kind]
    topic = kafka.create_topic(group, partitions=PARTITIONS)
    settings = {"kafka.partition.assignment.strategy": strategy}
    query = Timed(driver_of(kafka, topic, group, **settings)).start()
    consumers = [librdkafka_of(kafka, topic, group, **configs)]
    production, events = Production(kafka, topic), []
    with GroupAdmin(Options.parse(options(kafka, topic))) as admin:

        def settled(*shares):
            found = admin.describe(group)
            return found.state == "Stable" and sorted(len(m.assigned) for m in found.members) == list(shares)

        def timed(what, *shares):
            began_s = time.time()
            wait_until(lambda: settled(*shares), within=120)
            events.append((what, began_s, time.time()))
            threading.Event().wait(3)  # a steady state before the next one

        timed("start", 6, 6)
        for _ in range(ROUNDS):
            consumers.append(librdkafka_of(kafka, topic, group, **configs))
            timed("joins", 4, 4, 4)
            threading.Thread(target=consumers[-1].close).start()
            timed("leaves", 6, 6)
        production.stop()
        total = len(production.sent_s)
        wait_until(lambda: sum(committed(kafka, group).values()) == total, within=60)
    query.end()
    if query.failure is not None:
        raise query.failure
    found = delays(production, query, consumers)
    print(f"\n{kind}: {total} records")
    for what in ("joins", "leaves"):
        spans = [(began, ended) for name, began, ended in events if name == what]
        settling = [ended - began for began, ended in spans]
        worst = [max(d for sent, d in found if began - 1 < sent < ended + 1) for began, ended in spans]
        print(
            f"  a consumer {what}: settled after {statistics.median(settling):.1f} s (at most {max(settling):.1f}), "
            f"a record waits at most {statistics.median(worst):.1f} s (at most {max(worst):.1f})"
        )
    busy = [(began - 1, ended + 1) for _, began, ended in events]
    steady = [d for sent, d in found if not any(began < sent < ended for began, ended in busy)]
    print(f"  between rebalances a record waits {statistics.median(steady):.2f} s, and at most {max(steady):.2f} s")
