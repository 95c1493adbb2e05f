"""failOnDataLoss=false in Spark: queries that go on over expired records and recreated topics."""

import json

from kafka.structs import TopicPartition
from support import Record, name, options, produce

from spark_kafka_group.testing import wait_until

GOES_ON = {"failOnDataLoss": "false", "kafka.metadata.max.age.ms": "300", "kafkaConsumer.pollTimeoutMs": "2000"}


def send(kafka, topic, values):
    produce(kafka, topic, [Record(0, None, b"%d" % value) for value in values], linger_ms=60_000)


def as_numbers(reader, settings):
    return reader.format("groupkafka").options(**settings).load().selectExpr("cast(cast(value as string) as int) value")


def test_a_query_lives_on_over_records_that_expire_and_a_topic_that_is_recreated(spark, kafka, tmp_path):
    topic = name("loss")
    kafka.create_topic(topic)
    send(kafka, topic, range(50))
    kafka.admin.delete_records({TopicPartition(topic, 0): 20})
    settings = options(kafka, topic, maxOffsetsPerTrigger=10) | GOES_ON
    settings["startingOffsets"] = json.dumps({topic: {"0": 0}})
    batches = []

    def keep(rows, batch_id):
        batches.append([row.value for row in rows.collect()])
        if batch_id == 0:
            kafka.admin.delete_records({TopicPartition(topic, 0): 35})
        if batch_id == 1:
            kafka.delete_topic(topic)
            kafka.create_topic(topic)
            send(kafka, topic, range(100, 105))

    # What a batch read plans, Spark keeps; so it reads before anything else is lost.
    everything = as_numbers(spark.read, settings)
    assert sorted(row.value for row in everything.collect()) == list(range(20, 50))
    writer = as_numbers(spark.readStream, settings).writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="50 milliseconds").start()
    try:
        wait_until(lambda: query.exception() or len(batches) == 3, within=90)
        send(kafka, topic, range(105, 108))
        wait_until(lambda: query.exception() or len(batches) == 4, within=60)
        wait_until(lambda: len([p for p in query.recentProgress if p.numInputRows]) == 4, within=60)
        assert query.exception() is None
    finally:
        query.stop()
    assert batches == [[*range(20, 30)], [*range(35, 45)], [*range(100, 105)], [*range(105, 108)]]
    result = [json.loads(p.sources[0].latestOffset)["@group"] for p in query.recentProgress if p.numInputRows]
    # Of a recreated topic it is unknown how much was in the old one.
    assert [(t["dataLosses"], t["offsetsLost"]) for t in result] == [(1, 20), (2, 25), (3, 25), (3, 25)]
