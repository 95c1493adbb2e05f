"""The sink commits a source's offsets in the transaction of its rows: Spark starts a process for each of them."""

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from support import committed, name, numbered, options, produce, topic_with

from spark_kafka_group import GroupKafkaListener
from spark_kafka_group.testing import wait_until


def rows(values):
    return sorted(value.decode() for value in values)


@pytest.fixture
def together(spark):
    """Registers a sink that writes rows, and what the sources have published, in one transaction."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

    # Classes of a function are pickled whole, so that Spark's workers need not import this module.
    class Rows(WriterCommitMessage):
        def __init__(self, values, planned):
            self.values, self.planned = values, planned

    class Together(DataSource):
        @classmethod
        def name(cls):
            return "together"

        def streamWriter(self, schema, overwrite):
            return Writer(self.options)

    class Writer(DataSourceStreamArrowWriter):
        def __init__(self, settings):
            self.settings = dict(settings)
            self.planned = self.published()  # Spark makes one for each batch, which tasks and commit get as a copy

        def published(self):
            from spark_kafka_group.driver.process import shared_directory
            from spark_kafka_group.values.source_offsets import published

            return published(shared_directory(), self.settings["id"])

        def write(self, iterator):
            values = [value for batch in iterator for value in pa.table([batch["value"]], ["value"])[0].to_pylist()]
            return Rows(values, self.planned)

        def commit(self, messages, batchId):  # noqa: N803
            from kafka import ConsumerGroupMetadata, KafkaProducer
            from kafka.structs import OffsetAndMetadata
            from kafka.structs import TopicPartition as KafkaTopicPartition

            found = self.published()
            assert found, "the source has published nothing"
            assert all(message.planned == found for message in messages)
            producer = KafkaProducer(bootstrap_servers=self.settings["servers"], transactional_id=self.settings["id"])
            producer.init_transactions()
            producer.begin_transaction()
            for value in [value for message in messages for value in message.values]:
                producer.send(self.settings["topic"], partition=0, value=value)
            for source in found:
                offsets = {
                    KafkaTopicPartition(*tp): OffsetAndMetadata(offset, source.metadata, -1)
                    for tp, offset in source.offsets.items()
                }
                member = ConsumerGroupMetadata(source.group_id, source.generation, source.member_id, source.instance_id)
                producer.send_offsets_to_transaction(offsets, member)
            if self.settings["fails"] == str(batchId):
                raise RuntimeError("before the decision")  # the process ends, and leaves the transaction open
            producer.commit_transaction()
            producer.close()

    spark.dataSource.register(Together)


@pytest.mark.soak
def test_offsets_become_visible_with_rows_and_a_batch_that_failed_is_read_again(
    spark, kafka, group, together, tmp_path
):
    from support.transactions import consumed

    topics = [topic_with(kafka, numbered(60, 2), partitions=2) for _ in range(2)]
    out, one = kafka.create_topic(name("out"), partitions=1), name("sink")

    def start(fails):
        def stream(topic, of_group):
            settings = options(kafka, topic, of_group, maxOffsetsPerTrigger=20) | {"kafka.transactional.id": one}
            return spark.readStream.format("groupkafka").options(**settings).load()

        both = stream(topics[0], group).union(stream(topics[1], f"{group}-2"))
        writer = both.writeStream.format("together").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink = {"servers": kafka.bootstrap_servers, "topic": out, "id": one, "fails": fails}
        return writer.options(**sink).trigger(availableNow=True).start()

    with GroupKafkaListener(spark) as listener:
        with pytest.raises(StreamingQueryException, match="before the decision"):
            start(fails=1).awaitTermination()
        assert len(consumed(kafka, out, "read_committed")) == 40
        for topic in topics:
            produce(kafka, topic, numbered(20, 2, first=60))
        start(fails=-1).awaitTermination()
    assert listener._commits.done == 0
    assert rows(value for _, value in consumed(kafka, out, "read_committed")) == sorted(
        [f"v{number}" for number in range(80)] * 2
    )
    for topic, of_group in zip(topics, (group, f"{group}-2"), strict=True):
        wait_until(lambda topic=topic, of=of_group: committed(kafka, of) == {(topic, 0): 40, (topic, 1): 40}, within=30)
