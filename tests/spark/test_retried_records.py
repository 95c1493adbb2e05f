"""Option retryTopics in a running query."""

from support import Record, name, produce

from spark_kafka_group.driver.backlog.retry_delays import now_ms
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.retry_topics import retry_topic

DELAY = 600_000


def test_available_now_leaves_what_is_not_due_and_a_running_query_reads_it_when_it_is(kafka, group, load, run):
    topic = kafka.create_topic(name("orders"))
    retry = kafka.create_topic(retry_topic(topic, DELAY), partitions=2)
    produce(kafka, topic, [Record(0, None, b"1")])
    produce(kafka, retry, [Record(0, None, b"2"), Record(0, None, b"3", (), now_ms()), Record(0, None, b"4")])
    stream = load(topic, retryTopics=DELAY, **{"kafka.group.id": group})
    query, batches = run(stream, place="one")
    query.awaitTermination()
    assert sorted(value for batch in batches for value, _ in batch) == [1, 2]

    query, batches = run(stream, {"processingTime": "0 seconds"}, place="one")
    due_ms = now_ms() + 1000
    produce(kafka, retry, [Record(1, None, b"5", (), due_ms - DELAY)])
    wait_until(lambda: batches, within=30)
    assert now_ms() >= due_ms
    assert [value for batch in batches for value, _ in batch] == [5]
