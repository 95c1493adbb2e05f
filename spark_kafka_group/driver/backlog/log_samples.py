"""maxBytesPerTrigger: samples of logs, as brokers do not say how many bytes lie between two offsets.

A record batch's header has its offsets and its bytes. A fetch of a few KiB at an offset shows the headers of the record
batches there; the last one may be cut off, and its header is enough. A record batch that is larger than the fetch comes
whole if it is the first of a response, and not at all otherwise: then it is asked for alone.

1. Each partition is sampled where its range starts, which gives a first cut.
2. Every part of that cut is sampled, and the ranges are cut again: the records there may be larger, or smaller.
3. Step 2 is repeated once. Samples ahead of the position are kept: the next micro-batch begins with them.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain, islice, zip_longest
from struct import Struct

from spark_kafka_group.driver.byte_shares import SizedRange, SizeSample, places, share_bytes
from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire import LARGEST_BATCH, Brokers

log = logging.getLogger(__name__)

WINDOW = 16 * 1024  # bytes of a sample. A larger record batch comes whole.
PLACES = 8  # most samples of one partition's part of a micro-batch
MOST, LEAST, BYTES_A_SAMPLE = 64, 8, 1024 * 1024
"""Most samples in each step, and how many there are at least; between them it is one for so many bytes of the limit."""
STEPS = 3
SPENT = 0.1  # the part of the limit that samples may have before they end, once there is one
KEPT = 4 * PLACES  # samples kept of each partition
LARGEST_USUAL = 1024 * 1024
"""The default of max.message.bytes. Ranges whose records are within the limit even at this size are not sampled."""
ASSUMED = 1024.0  # bytes of an offset while no broker has sent a sample of any log

_HEADER = Struct(">qiib")  # first offset, length, leader epoch (CRC before v2), magic
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT, _LENGTH_END = 23, 12


class LogSamples:
    """Samples of the logs that a query reads, and ranges cut by them. For one thread."""

    def __init__(self, options: ClientOptions) -> None:
        fetching = replace(
            options.fetching, min_bytes=1, max_wait_ms=0, max_bytes=MOST * WINDOW, partition_max_bytes=WINDOW
        )
        self._brokers = Brokers(replace(options, fetching=fetching), "driver")
        self._samples: dict[TopicPartition, list[SizeSample]] = {}
        self._rates: dict[TopicPartition, float] = {}  # of the samples taken last
        self._refresh = False
        self._spent = 0  # bytes of the samples for one micro-batch
        self._failed: set[int] = set()  # nodes that are not asked again for this micro-batch: each may take seconds

    def share(self, backlog: Collection[OffsetRange], limit: int, turn: int) -> list[OffsetRange]:
        """As :func:`share_bytes`, by new samples; without brokers' answers those of before, or of others, hold."""
        ranges = sorted(r for r in backlog if r.size > 0)
        if not ranges or sum(r.size for r in ranges) * LARGEST_USUAL <= limit:
            return ranges
        self._spent = 0
        self._failed.clear()
        self._forget_passed(ranges)
        most = min(MOST, max(LEAST, limit // BYTES_A_SAMPLE))
        first = turn * most % len(ranges)
        shares: list[OffsetRange] = []
        for _ in range(STEPS):
            in_turn = ranges[first:] + ranges[:first]
            wanted = self._wanted(in_turn, {share.tp: share for share in shares}, most)
            if shares and not wanted:  # the same samples would give the same shares
                break
            answered = not wanted or self._take(wanted, SPENT * limit)
            shares = share_bytes(self.sized(ranges), limit, turn)
            if not answered:  # another attempt may take as long
                break
        return shares

    def bytes_of(self, ranges: Collection[OffsetRange]) -> dict[TopicPartition, float]:
        """Bytes of ranges; empty while there is no sample of any log, as without maxBytesPerTrigger."""
        return {r.range.tp: r.bytes for r in self.sized(ranges)} if self._rates else {}

    def sized(self, ranges: Collection[OffsetRange]) -> list[SizedRange]:
        """Ranges with their bytes. Where a partition has no sample, those of before hold, or the topic's, or all."""
        rates: dict[str, list[float]] = {}
        for tp, rate in self._rates.items():
            rates.setdefault(tp.topic, []).append(rate)
        of_topic = {topic: sum(found) / len(found) for topic, found in rates.items()}
        of_all = sum(self._rates.values()) / len(self._rates) if self._rates else ASSUMED
        return [
            SizedRange(r, self._samples.get(r.tp, []), self._rates.get(r.tp, of_topic.get(r.tp.topic, of_all)))
            for r in ranges
        ]

    def close(self) -> None:
        self._brokers.close()

    def _forget_passed(self, ranges: Collection[OffsetRange]) -> None:
        self._samples = {
            r.tp: [sample for sample in self._samples.get(r.tp, ()) if sample.within(r.start, r.end)] for r in ranges
        }

    def _wanted(
        self, ranges: Collection[OffsetRange], shares: Mapping[TopicPartition, OffsetRange], most: int
    ) -> dict[TopicPartition, list[int]]:
        """Offsets to sample, at most so many: first one of each share, or at the start of a range that has none."""
        each = max(1, min(PLACES, most // len(ranges)))
        of = []
        for r in ranges:
            share = shares.get(r.tp, r._replace(end=r.start + 1))
            of.append([(r.tp, at) for at in places(share.start, share.end, self._samples[r.tp], each)])
        wanted: dict[TopicPartition, list[int]] = {}
        for tp, at in islice(filter(None, chain.from_iterable(zip_longest(*of))), most):
            wanted.setdefault(tp, []).append(at)
        return wanted

    def _take(self, wanted: Mapping[TopicPartition, list[int]], most_bytes: float) -> bool:
        """Take samples until they have `most_bytes`; whether all brokers have answered."""
        try:
            leaders = self._brokers.leaders(wanted.keys(), self._refresh)
        except (OSError, GroupKafkaError) as error:
            log.info("logs cannot be sampled for now: %s", error)
            self._brokers.log_in_again_after(error)
            return False
        self._refresh = len(leaders) < len(wanted)
        for node_id in sorted(set(leaders.values())):
            of_node = [[(tp, at) for at in ats] for tp, ats in wanted.items() if leaders.get(tp) == node_id]
            for layer in zip_longest(*of_node):
                positions = dict(filter(None, layer))
                for tp in self._ask(node_id, positions, most_bytes):
                    self._ask(node_id, {tp: positions[tp]}, most_bytes)
        return not self._failed

    def _ask(self, node_id: int, positions: Mapping[TopicPartition, int], most_bytes: float) -> list[TopicPartition]:
        """Take a sample at each position; returns partitions whose record batch is too large to come with others."""
        if self._spent > most_bytes or node_id in self._failed:
            return []
        try:
            connection = self._brokers.connection(node_id)
            if connection.throttled_s > 0:
                return []
            connection.send(positions)
            answers = connection.receive()
        except (OSError, GroupKafkaError) as error:
            log.info("logs cannot be sampled for now: node %s: %s", node_id, error)
            self._brokers.drop(node_id)
            self._brokers.log_in_again_after(error)
            self._failed.add(node_id)
            self._refresh = True
            return []
        too_large = []
        for answer in answers:
            at = positions.get(answer.tp)
            if at is None or answer.error is not None:
                self._refresh = True
                continue
            self._spent += len(answer.records)
            sample = sample_of(answer.records, at)
            if sample is not None:
                self._add(answer.tp, sample)
            elif not answer.records:
                too_large.append(answer.tp)
        return too_large if len(positions) > 1 else []

    def _add(self, tp: TopicPartition, sample: SizeSample) -> None:
        self._rates[tp] = sample.rate
        samples = self._samples[tp]
        if sample not in samples:
            bisect.insort(samples, sample)
        del samples[KEPT:]


def sample_of(records: memoryview, position: int) -> SizeSample | None:
    """Offsets and bytes of record batches, by their headers, as far as these are possible; None if there is none.
    `records`: of a response, from the record batch on that has `position`. The last record batch may be cut off."""
    first, following, size, at = position, position, 0, 0
    while len(records) - at >= _LAST_OFFSET_DELTA_AT + _LAST_OFFSET_DELTA.size:
        base, length, _, magic = _HEADER.unpack_from(records, at)
        last = base
        if magic >= 2:
            last += _LAST_OFFSET_DELTA.unpack_from(records, at + _LAST_OFFSET_DELTA_AT)[0]
            if not size:
                first = min(first, base)
        if not 0 < length <= LARGEST_BATCH or last < following:
            break
        following = last + 1
        size += _LENGTH_END + length
        at += _LENGTH_END + length
    return SizeSample(first, following, size) if size else None
