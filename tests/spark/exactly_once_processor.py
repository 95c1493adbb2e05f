"""A RecordProcessor that writes exactly once, until it has read all there is: to be killed.

python exactly_once_processor.py SERVERS GROUP INPUT OUTPUT CHECKPOINT

Of ten records one fails for good, one fails until it comes from a retry topic, and the others are returned.
"""

from __future__ import annotations

import sys

from killed_session import session

from spark_kafka_group import ProducerRecord, Record, RecordProcessor

DELAY_MS = 1


def handled(record: Record) -> ProducerRecord:
    """The record's number, to be written."""
    assert record.value is not None
    number = int(record.value)
    if number % 10 == 1 and not record.topic.endswith(f"-retry-{DELAY_MS}"):
        raise ValueError(number)
    if number % 10 == 2:
        raise KeyError(number)
    return ProducerRecord(record.value, record.key)


def main() -> None:
    """Run the query."""
    servers, group, source, output, checkpoint = sys.argv[1:]
    spark = session(**{"spark.sql.execution.arrow.maxRecordsPerBatch": "10"})
    options = {
        "kafka.bootstrap.servers": servers, "kafka.group.id": group, "subscribe": source,
        "startingOffsets": "earliest", "includeHeaders": "true", "retryTopics": str(DELAY_MS),
        "kafka.isolation.level": "read_committed", "kafka.transactional.id": group,
    }  # fmt: skip
    processor = RecordProcessor(
        handled, ordering="unordered", threads=2, max_local_retries=0, retry_topics=[DELAY_MS],
        dead_letter_topic="{topic}-dlt", fatal=[KeyError], options=options,
        write_options={"topic": output, "deliveryGuarantee": "exactly-once"},
    )  # fmt: skip
    rows = spark.readStream.format("groupkafka").options(maxOffsetsPerTrigger="100", **options).load()
    processor.start(rows, checkpoint, availableNow=True).awaitTermination()


if __name__ == "__main__":
    main()
