"""Ends of logs as Fetch answers them, beside those that ListOffsets answers.

Apache's brokers answer both alike. Brokers of others were seen to answer a look-up with the first offset of the last
record batch: so the records of that batch would be missing in a batch read, and late in a stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest, IsolationLevel
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.values.offsets import TopicPartition, partitions_by_topic
from spark_kafka_group.wire.fetch.response import IDS_FROM, VERSIONS

log = logging.getLogger(__name__)

Ends = dict[TopicPartition, int]


class FetchedEnds:
    """Whether look-ups of ends are too low, found out once; and the ends by Fetch where they are. `run`: runs a call of
    kafka-python's on its loop, bounded."""

    def __init__(self, manager: Any, run: Callable[[Callable[[], Any]], Any]) -> None:
        self._manager = manager
        self._run = run
        self._are_needed: bool | None = None

    def corrected(self, ends: Ends, committed_only: bool, look_up: Callable[[Ends], Mapping[Any, int]]) -> Ends:
        """The `ends` that `look_up` has answered, with those that Fetch answers where look-ups are too low.

        1. A look-up answers 90. 2. Fetch answers that the log ends at 100: perhaps records have come in between. 3.
        Another look-up answers 90: it is too low, as no log loses its end so. Where it answers 100, more records may
        have come, so that this is not known yet: both kinds of brokers have the records before 100.
        """
        if self._are_needed is False or not ends:
            return ends
        fetched = self._fetched(ends, committed_only)
        beyond = {tp: end for tp, end in fetched.items() if end > ends[tp]}
        if self._are_needed is None:
            self._are_needed = self._found_out(ends, fetched, beyond, look_up)
        return ends if self._are_needed is False else ends | beyond

    def _found_out(
        self, ends: Ends, fetched: Ends, beyond: Ends, look_up: Callable[[Ends], Mapping[Any, int]]
    ) -> bool | None:
        again = look_up(beyond) if beyond else {}
        low = sorted(tp for tp in beyond if again.get(tp, beyond[tp]) < beyond[tp])
        if low:
            log.warning(
                "%s: these brokers look up offset %d as the end of the log, and Fetch has records up to %d: ends are "
                "taken from Fetch",
                low[0], again[low[0]], beyond[low[0]],
            )  # fmt: skip
            return True
        # An empty log says nothing.
        return False if any(0 < end == ends[tp] for tp, end in fetched.items()) else None

    def _fetched(self, ends: Ends, committed_only: bool) -> Ends:
        """The ends as leaders answer Fetch; without those of leaders that do not answer so now."""
        try:
            answered: Ends = self._run(lambda: _ends(self._manager, ends, committed_only))
        except kafka_errors.KafkaError as error:
            log.info("ends of logs by Fetch are not known: %s", error)
            return {}
        return answered


async def _ends(manager: Any, ends: Mapping[TopicPartition, int], committed_only: bool) -> Ends:
    by_node: dict[int, dict[TopicPartition, int]] = {}
    for tp, end in ends.items():
        node_id = manager.cluster.leader_for_partition(KafkaTopicPartition(*tp))
        if node_id is not None and node_id >= 0:
            by_node.setdefault(node_id, {})[tp] = end
    found: Ends = {}
    for response in [await sent for sent in [manager.send(_request(of), node_id=n) for n, of in by_node.items()]]:
        for topic in response.responses:
            for partition in topic.partitions:
                if not partition.error_code:
                    end = partition.last_stable_offset if committed_only else partition.high_watermark
                    found[TopicPartition(topic.topic, partition.partition_index)] = end
    return found


def _request(positions: Mapping[TopicPartition, int]) -> Any:
    """A Fetch that is answered at once, with as few records as brokers can."""
    topic_type = FetchRequest.FetchTopic

    def partition(tp: TopicPartition) -> Any:
        return topic_type.FetchPartition(
            partition=tp.partition, current_leader_epoch=-1, fetch_offset=positions[tp], last_fetched_epoch=-1,
            log_start_offset=-1, partition_max_bytes=1,
        )  # fmt: skip

    topics = partitions_by_topic(positions).items()
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=1,  # without any, some brokers answer without partitions
        min_bytes=0,
        max_bytes=1,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[topic_type(topic=topic, partitions=[partition(tp) for tp in tps]) for topic, tps in topics],
        forgotten_topics_data=[],
        rack_id="",
        min_version=VERSIONS[0],
        max_version=IDS_FROM - 1,
    )
