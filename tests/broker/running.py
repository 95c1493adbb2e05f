"""Queries and consumers that run in threads, and lookups of a group."""

import subprocess
import threading
import time

from kafka import KafkaConsumer

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.download import jars


class Query:
    """Calls a driver as Spark does, one micro-batch after the other, in a thread of its own."""

    def __init__(self, driver):
        self.driver = driver
        self.ranges = []
        self.failure = None
        self.may_plan = threading.Event()
        self.may_plan.set()
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.running = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def _run(self):
        try:
            offset = self.driver.initial_offset()
            while not self._ending.is_set():
                self.may_plan.wait()
                end = self.driver.latest_offset(offset, None)
                if end == offset:
                    self._ending.wait(0.02)
                    continue
                ranges = [r for task in self.driver.plan(offset, end) for r in task]
                self.running.set()
                self.may_finish.wait()
                self.running.clear()
                self.ranges += ranges
                offset = end
        except Exception as error:  # noqa: BLE001 - reported to the test when it ends
            self.failure = error

    def end(self):
        """Stop calling; the driver stays as it is."""
        self._ending.set()
        self.may_finish.set()
        self.may_plan.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()

    def owned(self):
        """Partitions of the generation the driver is in."""
        session = self.driver._session
        member = session and session.member
        return set(member._generation.assignment) if member and member._generation else set()


class Counted:
    """Counts calls of an object's method, which it passes on."""

    def __init__(self, called, name):
        self.calls = 0
        self._method = getattr(called, name)
        setattr(called, name, self)

    def __call__(self, *arguments):
        self.calls += 1
        return self._method(*arguments)


class Neighbour:
    """An ordinary kafka-python consumer of the same group, which polls and commits in a thread."""

    def __init__(self, kafka, topics, group, **configs):
        self.consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=group,
            **{"auto_offset_reset": "earliest", "enable_auto_commit": False} | configs,
        )
        self.records = []
        self.failure = None
        self._topics = None
        self._may_poll = threading.Event()
        self._may_poll.set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._ending.is_set():
                self._may_poll.wait()
                topics, self._topics = self._topics, None
                if topics is not None:
                    self.consumer.subscribe(topics)
                polled = self.consumer.poll(timeout_ms=1000)  # with short ones it throws away joins that just ended
                self.records += [record for records in polled.values() for record in records]
                if polled:
                    self.consumer.commit_async()  # a synchronous one would never end in a rebalance
        except Exception as error:  # noqa: BLE001 - reported to the test when it ends
            self.failure = error

    def subscribe(self, topics):
        """Subscribe to these from the next poll on: a consumer belongs to one thread."""
        self._topics = topics

    def freeze(self):
        """Do not poll any more, as a consumer that processes for too long."""
        self._may_poll.clear()

    def assignment(self):
        """Partitions it owns."""
        return self.consumer.assignment()

    def close(self):
        """Leave the group."""
        if not self._ending.is_set():
            self._ending.set()
            self._may_poll.set()
            self._thread.join(timeout=60)
            self.consumer.close(autocommit=False)
            if self.failure is not None:
                raise self.failure


class NewerNeighbour:
    """A consumer of Kafka's newer group protocol (KIP-848), which makes a group one of that protocol: Java's."""

    def __init__(self, kafka, topic, group):
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        self._process = subprocess.Popen(
            [java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", str(jars("kafka-tools", kafka.version) / "*"), tool,
             "--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--group", group, "--from-beginning",
             "--command-property", "group.protocol=consumer", "--command-property", "auto.commit.interval.ms=100"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def close(self):
        """Leave the group. Harmless when repeated."""
        self._process.terminate()
        self._process.wait(timeout=60)


QUICK_EPOCHS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.min.session.timeout.ms": "4000",
    "group.consumer.session.timeout.ms": "4000",
}
"""A broker's settings by which consumers of the newer protocol hear of rebalances soon, and are missed soon."""


class LibrdkafkaNeighbour:
    """The same of librdkafka, in a thread: it commits each poll's records before the next poll."""

    def __init__(self, kafka, topic, group, **configs):
        from confluent_kafka import Consumer

        self.records = []
        self.taken_s = []  # when each was taken, by time.time()
        self.failure = None
        self._ending = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": group,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **configs,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        moved_on = {KafkaError.STALE_MEMBER_EPOCH, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
        try:
            while not self._ending.is_set():
                messages = self._consumer.consume(100, timeout=0.1)
                wrong = [message.error() for message in messages if message.error() is not None]
                if wrong:
                    raise KafkaException(wrong[0])
                ends = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
                self.records += messages
                self.taken_s += [time.time()] * len(messages)
                if ends:
                    try:
                        self._consumer.commit(
                            offsets=[TopicPartition(*tp, end) for tp, end in ends.items()], asynchronous=False
                        )
                    except KafkaException as error:
                        if error.args[0].code() not in moved_on:
                            raise
        except Exception as error:  # noqa: BLE001 - reported to the test when it ends
            self.failure = error
        finally:
            self._consumer.close()

    def places(self):
        """Partitions and offsets of the records that it has read."""
        return [(m.partition(), m.offset()) for m in self.records]

    def refused(self):
        """Kafka's name of the error by which the group did not let it in, once it is there."""
        return None if self.failure is None else self.failure.args[0].str()

    def close(self):
        """Leave the group. Harmless when repeated."""
        self._ending.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()


def settled(kafka, group, count):
    """Wait until the group is stable with so many members; returns them."""

    def reached():
        state, members = kafka.group_state(group)
        return members if state == "Stable" and len(members) == count else None

    return wait_until(reached, within=60)
