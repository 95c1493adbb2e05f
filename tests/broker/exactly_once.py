"""A query whose sink writes rows, and the offsets that its sources published, in one transaction."""

import contextlib
from dataclasses import dataclass, field, replace

from kafka import ConsumerGroupMetadata, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition
from support.transactions import consumed

from spark_kafka_group.testing import wait_until
from spark_kafka_group.transactions.planning import digest
from spark_kafka_group.values.exactly_once import BatchId, Decision, State
from spark_kafka_group.values.source_offsets import published


class Transaction:
    """A transaction of the sink's id. Beginning it ends what an earlier one of that id has left open, and fences it."""

    def __init__(self, kafka, transactional_id):
        self._producer = KafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=600_000,  # as a broker aborts none for its age, a test that waits for one fails
        )
        self._producer.init_transactions()
        self._producer.begin_transaction()

    def write(self, topic, values):
        sent = [self._producer.send(topic, partition=0, value=value) for value in values]
        self._producer.flush()
        for future in sent:
            future.get(timeout=30)

    def add_offsets(self, source):
        """TxnOffsetCommit with what a source has published; raises kafka-python's error where it is refused."""
        offsets = {
            KafkaTopicPartition(*tp): OffsetAndMetadata(offset, source.metadata, source.leader_epochs.get(tp, -1))
            for tp, offset in source.offsets.items()
        }
        member = ConsumerGroupMetadata(source.group_id, source.generation, source.member_id, source.instance_id)
        self._producer.send_offsets_to_transaction(offsets, member)

    def decide(self, topic, key, decision):
        self._producer.send(topic, partition=0, key=key.encode(), value=decision.to_json()).get(timeout=30)
        self._producer.commit_transaction()

    def close(self):
        with contextlib.suppress(Exception):  # fenced, or in the middle of a transaction
            self._producer.close(timeout=1)


@dataclass
class ExactlyOnce:
    """A query: what its checkpoint and its sink keep, and the drivers of its sources, which come and go.

    Attributes
    ----------
    make_drivers
        Starts the drivers, with the query's transactional id.
    logged
        Ends of batches as Spark's offset log has them, after the initial offsets.
    succeeded, decided
        The last batch in Spark's commit log, and the last one of which the sink has decided that it is written.
    tells_sources
        Whether decisions name the offsets that they commit, as those of earlier versions do not.
    """

    kafka: object
    transactional_id: str
    topic: str
    shared: object
    make_drivers: object
    decision_topic: str
    tells_sources: bool = True
    logged: list = field(default_factory=list)
    succeeded: int = 0
    decided: int = 0
    drivers: list = field(default_factory=list)
    transaction: Transaction | None = None
    made: list = field(default_factory=list)

    def start(self):
        self.drivers = self.make_drivers()
        self.transaction = None
        if not self.logged:
            self.logged.append([driver.initial_offset() for driver in self.drivers])
        return self

    def stop(self):
        """As `query.stop()`, and as the end of a query that failed."""
        for driver in self.drivers:
            driver.stop()

    @property
    def running(self):
        """The number of the batch that Spark has logged, and that has not succeeded; None without one."""
        return None if self.succeeded == len(self.logged) - 1 else len(self.logged) - 1

    def published(self):
        return published(self.shared, self.transactional_id)

    def plan(self, limit=None):
        """Log the next batch; False without new data. A batch that was interrupted is to be run first."""
        assert self.running is None
        starts = self.logged[-1]
        ends = [driver.latest_offset(start, limit) for driver, start in zip(self.drivers, starts, strict=True)]
        assert self.published() == []  # no batch runs
        if ends == starts:
            return False
        self.logged.append(ends)
        return True

    def begin(self):
        """Plan the tasks and the write, as Spark does, and write the rows; returns the ranges of the tasks."""
        starts, ends = self.logged[-2:]
        planned = zip(self.drivers, starts, ends, strict=True)
        ranges = [r for driver, start, end in planned if start != end for task in driver.plan(start, end) for r in task]
        self.found = self.published()
        self.transaction = Transaction(self.kafka, self.transactional_id)
        self.made.append(self.transaction)
        if self.running > self.decided:
            rows = [b"%s-%d" % (str(r.tp).encode(), offset) for r in ranges for offset in range(r.start, r.end)]
            self.transaction.write(self.topic, rows)
        return ranges

    def add_offsets(self):
        found = self.published()
        assert digest(found) == digest(self.found)  # perhaps in a later generation
        self.found = found
        for source in self.found:
            if source.offsets:
                self.transaction.add_offsets(source)

    def decide(self):
        if self.running > self.decided:
            sources = tuple(one.read for one in self.found)
            decision = Decision(BatchId("q", self.running), State.DECIDED, 0, (), sources=sources)
            decision = decision if self.tells_sources else replace(decision, sources=None)
            self.transaction.decide(self.decision_topic, self.transactional_id, decision)
            self.decided = self.running

    def finish(self):
        """Let the sink end the batch; it has succeeded then."""
        if self.running > self.decided:
            self.add_offsets()
            self.decide()
        self.succeeded = self.running

    def trigger(self, limit=None):
        """The ranges of one micro-batch; None without new data."""
        if self.running is None and not self.plan(limit):
            return None
        ranges = self.begin()
        self.finish()
        return ranges

    def drain(self, rows, within=60):
        """Trigger until so many rows are written by anyone."""

        def enough():
            self.trigger()
            return len(self.written()) >= rows

        wait_until(enough, within=within)

    def written(self):
        """Rows that readers of committed records see."""
        return [value.decode() for _, value in consumed(self.kafka, self.topic, "read_committed")]

    def close(self):
        for transaction in self.made:
            transaction.close()


def rows_of(topic, ends):
    """All rows of a topic, by the ends of its partitions."""
    return sorted(f"{topic}-{partition}-{offset}" for partition, end in ends.items() for offset in range(end))
