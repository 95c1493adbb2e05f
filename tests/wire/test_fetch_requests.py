"""Fetch requests, which are written once and then changed, are those of kafka-python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest
from support import options

from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.wire.fetch.request import FetchRequests

positions = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["t", "orders", "a.b-c_d"]), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
    min_size=1,
    max_size=6,
)


class Anywhere:
    bootstrap_servers = "localhost:1"


@pytest.mark.parametrize("version", range(4, 13))
@settings(max_examples=30)
@given(st.lists(positions, min_size=1, max_size=4), st.integers(0, 2**31 - 1))
def test_a_request_is_what_kafka_python_reads_as_these_positions(version, of_several, correlation_id):
    requests = FetchRequests(Options.parse(options(Anywhere, "t")).fetching, "me", version)
    for wanted in of_several:
        result = bytes(requests.encoded(wanted, correlation_id))
        assert int.from_bytes(result[:4]) == len(result) - 4
        found = FetchRequest.decode(result[4:], version=version, header=True)
        assert found.header.correlation_id == correlation_id
        assert (found.max_wait_ms, found.max_bytes) == (500, 52_428_800)
        told_of = [(t.topic, p.partition, p.fetch_offset) for t in found.topics for p in t.partitions]
        order = {topic: n for n, topic in enumerate(dict.fromkeys(tp.topic for tp in wanted))}
        by_topic = sorted(wanted, key=lambda tp: order[tp.topic])
        assert told_of == [(tp.topic, tp.partition, wanted[tp]) for tp in by_topic]
        assert {p.partition_max_bytes for t in found.topics for p in t.partitions} == {1_048_576}
