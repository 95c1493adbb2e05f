"""Fetch requests, which are written once and then changed, are those of kafka-python; so are responses, taken apart."""

import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from support import options

from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.fetch.request import FetchRequests
from spark_kafka_group.wire.fetch.response import VERSIONS, fetched, names_by_id

positions = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["t", "orders", "a.b-c_d"]), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
    min_size=1,
    max_size=6,
)


IDS = {"t": str(UUID(int=7)), "orders": str(UUID(int=2**127)), "a.b-c_d": str(UUID(int=2**128 - 1))}


class Anywhere:
    bootstrap_servers = "localhost:1"


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(
    st.lists(positions, min_size=1, max_size=4),
    st.integers(0, 2**31 - 1),
    st.data(),
    st.sampled_from([None, 1, 70_000]),
)
def test_a_request_is_what_kafka_python_reads_as_these_positions(version, of_several, correlation_id, data, given_size):
    more = {} if given_size is None else {"kafka.max.partition.fetch.bytes": str(given_size)}
    requests = FetchRequests(Options.parse(options(Anywhere, "t", **more)).fetching, "me", version)
    for wanted in of_several:
        known = data.draw(st.lists(st.sampled_from(list(wanted)), unique=True))
        sizes = {tp: data.draw(st.integers(1, 2**31 - 1)) for tp in known}
        result = bytes(requests.encoded(wanted, correlation_id, topic_ids=IDS, sizes=sizes))
        assert int.from_bytes(result[:4]) == len(result) - 4
        found = FetchRequest.decode(result[4:], version=version, header=True)
        assert found.header.correlation_id == correlation_id
        assert (found.max_wait_ms, found.max_bytes) == (500, 52_428_800)
        names = {UUID(topic_id): topic for topic, topic_id in IDS.items()}
        told_of = [
            (t.topic or names[t.topic_id], p.partition, p.fetch_offset) for t in found.topics for p in t.partitions
        ]
        order = {topic: n for n, topic in enumerate(dict.fromkeys(tp.topic for tp in wanted))}
        by_topic = sorted(wanted, key=lambda tp: order[tp.topic])
        assert told_of == [(tp.topic, tp.partition, wanted[tp]) for tp in by_topic]
        asked_for = [p.partition_max_bytes for t in found.topics for p in t.partitions]
        assert asked_for == [given_size or sizes.get(tp, 1_048_576) for tp in by_topic]


def written(version, topics):
    """A response as kafka-python writes it, behind its correlation id."""
    topic_type = FetchResponse.FetchableTopicResponse
    partition_type = topic_type.PartitionData
    transaction_type = partition_type.AbortedTransaction
    response = FetchResponse(
        version=version,
        throttle_time_ms=5,
        error_code=0,
        session_id=0,
        responses=[
            topic_type(
                **({"topic_id": UUID(IDS[topic])} if version >= 13 else {"topic": topic}),
                partitions=[
                    partition_type(
                        partition_index=partition,
                        error_code=error_code,
                        high_watermark=90,
                        last_stable_offset=80,
                        log_start_offset=1,
                        aborted_transactions=[transaction_type(producer_id=p, first_offset=at) for p, at in aborted],
                        preferred_read_replica=-1,
                        records=records,
                    )
                    for partition, error_code, aborted, records in partitions
                ],
            )
            for topic, partitions in topics.items()
        ],
    )
    response.with_header(correlation_id=3)
    return memoryview(response.encode(header=True))[4:]


TOPICS = {
    "t": [(0, 0, [(5, 60), (6, 70)], b"r" * 300), (2, 0, [], b"")],
    "orders": [(1, 3, [], b"")],
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_is_taken_apart_as_kafka_python_wrote_it(version):
    throttle_ms, error_code, found = fetched(written(version, TOPICS), version, True, names_by_id(IDS))
    assert (throttle_ms, error_code) == (5, 0)
    first, second, refused = found
    assert first.tp == ("t", 0)
    assert (first.high_watermark, first.last_stable_offset, first.preferred_replica) == (90, 80, None)
    assert first.aborted == ((5, 60), (6, 70))
    assert bytes(first.records) == b"r" * 300
    assert (second.tp, bytes(second.records), second.error) == (("t", 2), b"", None)
    assert (refused.tp, str(refused.error)) == (("orders", 1), "UnknownTopicOrPartitionError")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_is_cut_off_anywhere_is_none(version):
    whole = written(version, TOPICS)
    for size in range(len(whole)):
        with pytest.raises((ValueError, struct.error)):
            fetched(whole[:size], version, True, names_by_id(IDS))


def test_a_response_about_a_topic_that_was_not_asked_for_is_none():
    with pytest.raises(ValueError, match=f"topic id {IDS['orders']}, which was not asked for"):
        fetched(written(13, TOPICS), 13, True, names_by_id({"t": IDS["t"]}))
