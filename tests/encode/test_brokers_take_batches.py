"""A real broker takes what the encoder makes, and Java's console consumer prints it."""

from __future__ import annotations

from typing import Any

import pytest
from encoded import Row, encode, rows_of
from kafka.protocol.producer import ProduceRequest

from spark_kafka_group.executor.encode import CODECS, Compression, load


def produce(kafka: Any, topic: str, data: bytes) -> Any:
    """One record batch to partition 0; the broker's response for it."""
    topic_data = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[topic_data(name=topic, partition_data=[topic_data.PartitionProduceData(index=0, records=data)])],
        max_version=9,
    )
    manager = kafka.admin._manager
    response = manager.run(manager.send, request, kafka.leader(topic))
    ((partition,),) = [one.partition_responses for one in response.responses]
    return partition


@pytest.mark.soak
def test_a_broker_takes_every_codec_and_javas_consumer_prints_the_rows(kafka: Any, topic: str) -> None:
    rows = [Row(b"k%d" % i, b"v%d" % i * 500, [("h", b"%d" % i), ("h", None)] if i % 2 else None) for i in range(200)]
    offset = 0
    for name in ("python", "c"):
        twin = load(name)
        for codec in CODECS.values():
            (batch,) = encode(twin, rows_of(twin, rows), batch_size=1 << 20, compression=Compression(codec))
            twin.stamp(batch.data, -1, -1, -1, False)
            answered = produce(kafka, topic, bytes(batch.data))
            assert (answered.error_code, answered.base_offset) == (0, offset)
            offset += len(rows)
    printed = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--partition", "0", "--offset", "0",
        "--max-messages", str(offset), "--timeout-ms", "60000",
        *(word for what in ("key", "headers") for word in ("--formatter-property", f"print.{what}=true")),
    )  # fmt: skip
    expected = [
        f"{f'h:{i},h:null' if row.headers else 'NO_HEADERS'}\tk{i}\t{(row.value or b'').decode()}"
        for i, row in enumerate(rows)
    ]
    assert printed.splitlines() == expected * 2 * len(CODECS)
