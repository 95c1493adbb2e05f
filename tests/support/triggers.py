"""The source as Spark calls it, trigger by trigger, and the records its tasks read; without Spark."""

import json

from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.testing import wait_until
from support import Record, produce

QUICK = {"kafka.metadata.max.age.ms": "300"}
"""New topics and partitions are noticed soon."""
FIRST = 1_700_000_000_000
"""The timestamp of records that need none in particular."""


class Stream:
    """One query. It keeps the offset of the checkpoint, so it outlives its reader."""

    def __init__(self, settings):
        self.settings = settings
        self.offset = None
        self.reader = GroupKafkaDataSource(settings).streamReader(None)

    def plan(self, limit=None):
        """The end and the tasks of the next micro-batch; None without one."""
        if self.offset is None:
            self.offset = self.reader.initialOffset()
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        return None if end == self.offset else (end, self.reader.partitions(self.offset, end))

    def trigger(self, limit=None):
        """Values of the next micro-batch, as numbers, sorted; None when Spark would run none."""
        planned = self.plan(limit)
        if planned is None:
            return None
        values = read(self.reader, planned[1])
        self.offset = planned[0]  # Spark logs the end when the batch has succeeded
        return values

    def once(self):
        """The batch of trigger(once=True): everything, without the options' limits."""
        return self.trigger(ReadAllAvailable())

    def available_now(self):
        """The micro-batches of trigger(availableNow=True)."""
        self.reader.prepareForTriggerAvailableNow()
        return list(iter(self.trigger, None))

    def wait_for(self, *values):
        """Trigger until exactly these have been read."""
        found = []

        def complete():
            found.extend(self.trigger() or [])
            return len(found) >= len(values)

        wait_until(complete, within=60)
        assert sorted(found) == sorted(values)

    def restart(self, **changes):
        """Stop the query and start it again from its checkpoint."""
        self.reader.stop()
        self.settings = self.settings | changes
        self.reader = GroupKafkaDataSource(self.settings).streamReader(None)

    def positions(self, topic):
        """Next offset of each partition, as the checkpoint says."""
        return {int(partition): offset for partition, offset in self.offset[topic].items()}


def batch(settings):
    """The reader and the tasks of a batch read."""
    reader = GroupKafkaDataSource(settings).reader(None)
    return reader, reader.partitions()


def batch_values(settings):
    """The rows of a batch read."""
    return read(*batch(settings))


def read(reader, tasks):
    """Values that tasks read, as numbers, sorted."""
    return sorted(int(row["value"]) for task in tasks for rows in reader.read(task) for row in rows.to_pylist())


def cuts(tasks):
    """The ranges of all tasks: partition, start and end."""
    return sorted((r.tp.partition, r.start, r.end) for task in tasks for r in task.ranges)


def send(kafka, topic, partition, values, timestamp_ms=FIRST):
    """Produce `values`, numbers, to one partition."""
    fill(kafka, topic, {(partition, timestamp_ms): values})


def fill(kafka, topic, values):
    """Produce numbers, by partition, or by partition and timestamp; with one producer, as each takes a while."""
    records = []
    for where, numbers in dict(values).items():
        partition, timestamp_ms = where if isinstance(where, tuple) else (where, FIRST)
        records += [Record(partition, None, b"%d" % number, (), timestamp_ms) for number in numbers]
    produce(kafka, topic, records)


def send_anywhere(kafka, topic, values, partitions):
    """Produce `values` over so many partitions, one by one."""
    produce(kafka, topic, [Record(n % partitions, None, b"%d" % value) for n, value in enumerate(values)])


def by_partition(topic, values):
    """JSON of one number per partition: offsets, or timestamps."""
    return json.dumps({topic: {str(partition): value for partition, value in dict(values).items()}})
