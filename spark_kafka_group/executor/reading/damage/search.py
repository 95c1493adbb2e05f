"""Looks in a log for the next record batch that a broker can find, after one whose end is not known.

A broker finds an offset by its index, which has an entry for every few kilobytes of the log
(``log.index.interval.bytes``), and from there on by hopping from header to header. So an offset before the next entry
leads to the damage again, to an error or to nothing, and one behind it does not.

An answer with neither records nor an error proves nothing, as slow tiered storage gives it too. So
:attr:`Search.unanswered` shows that there was one, and the caller may look at the log's bytes instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from spark_kafka_group.errors import LASTING, BrokerError, BrokerTimeoutError, CorruptRecordError, ReadError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import LARGEST_BATCH, Brokers, FetchedPartition
from spark_kafka_group.wire.outage import TaskOutage, outlived
from spark_kafka_group.wire.reactions import LED_BY_ANOTHER, Reaction

WIDE_BYTES = 8 << 20
"""The bytes of a log to look at: a record batch of usual size, and the log up to the next index entry."""
ROWS_AT_A_TIME_BYTES = 1 << 20  # the bytes of rows at a time, while a record batch is only checked for damage
ATTEMPTS = 5  # the most attempts of a request that gets no answer, or an error that may pass


class LeaderChangedError(Exception):
    """Raised when another leader was elected during a search, whose log may differ; stays in the executor."""


class SeenBytes(NamedTuple):
    """Bytes of a log as a broker sends them."""

    asked: int  # the offset they were asked for by
    records: memoryview
    aborted: tuple[tuple[int, int], ...]  # as in a fetch response


class Found(NamedTuple):
    """A record batch that a broker finds."""

    ask_at: int  # the offset to ask for
    start: int  # its first offset
    header: bytes  # its first bytes, which identify it


def first_found(first: int, end: int, look: Callable[[int], Found | None]) -> Found | None:
    """The first of the record batches that `look` finds for the offsets from `first` to `end`.

    Looks ahead in steps that double, then narrows: about twice as often, at most, as there are binary digits in the
    number of offsets. Where `look` finds the record batch that holds an offset, it is taken to do so for all offsets
    behind it. A batch that begins behind the offset asked for is the result only if there is none before it: in between
    may be a gap of compaction, or batches that the broker passes over.
    """
    best: Found | None = None

    def holding(offset: int) -> Found | None:
        nonlocal best
        found = look(offset)
        if found is not None and (best is None or found.start < best.start):
            best = found
        return found if found is not None and found.start <= offset else None

    if first >= end:
        return None
    at, step, low = first, 1, first - 1
    while (found := holding(at)) is None:
        if at == end - 1:
            return best
        low, at, step = at, min(first + step, end - 1), 2 * step
    high = found.start
    while high - low > 1:
        middle = (low + high) // 2
        earlier = holding(middle)
        if earlier is None:
            low = middle
        else:
            high = earlier.start
    return best


class Search:
    """Asks the leaders of partitions for one record batch at a time, over connections of its own.

    `epochs`: epochs of the leaders whose records are looked for; a partition without one is read from any leader.
    `unanswered`: whether the broker had neither records nor an error for an offset that :meth:`first_from` asked for
        last, or an error that may mean anything. Records that it does not find may be there then.
    """

    def __init__(
        self,
        options: ClientOptions,
        twin: decode.Decoder,
        connect: Callable[[ClientOptions], Brokers],  # makes its connections
        epochs: Mapping[TopicPartition, int],
        outage: TaskOutage | None = None,  # waits for brokers that are away; None where that is an error
    ) -> None:
        self._twin = twin
        self._outage = outage
        self._refresh = False
        self._epochs = epochs
        self.unanswered = False
        fetching = options.fetching
        least = replace(fetching, partition_max_bytes=1, min_bytes=1, max_wait_ms=0)
        largest = max(WIDE_BYTES, 2 * fetching.most_of_partition)
        wide = replace(least, partition_max_bytes=largest, max_bytes=max(largest, fetching.max_bytes))
        self._brokers = connect(replace(options, fetching=least))
        self._wide = connect(replace(options, fetching=wide))
        if outage is not None:
            self._brokers.speak(False)
            self._wide.speak(False)

    def first_from(self, tp: TopicPartition, first: int, end: int, least: int) -> Found | None:
        """The first record batch with an offset from `first` on that can be found, in the whole log if none before
        `end` can be. `least`: where it may begin. Raises BrokerError, ReadError, LeaderChangedError when brokers do not
        answer, or with an error that is not about their logs."""
        self.unanswered = False

        def look(offset: int) -> Found | None:
            return self._look(tp, offset, least)

        found = first_found(first, end, look)
        if found is None or found.start >= end:
            bounds = outlived(self._outage, tp, lambda: self._brokers.log_bounds(tp))
            found = None if bounds is None else first_found(max(first, end), bounds[1], look)
        return found

    def intact(self, tp: TopicPartition, batch: memoryview) -> bool:
        """Whether a record batch can be read and its checksum is right, asked for or not. No I/O."""
        builder = self._twin.RecordBatchBuilder(
            columns=("offset",), check_crcs=True, unpacked_limit=LARGEST_BATCH, target_bytes=ROWS_AT_A_TIME_BYTES
        )
        position = 0
        try:
            while position < len(batch):
                before = position
                position = builder.append(tp.topic, tp.partition, batch, position, 0, 2**63 - 1)
                if position == before and not builder.halfway:
                    break
                builder.finish()
        except CorruptRecordError:
            return False
        return True

    def answers(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the broker, asked again, has something to send. Raises BrokerError, ReadError, LeaderChangedError."""
        return len(self._fetched(self._brokers, tp, offset).records) > 0

    def before(self, tp: TopicPartition, offset: int) -> int | None:
        """An offset before this one for which the broker sends the record batch that holds it, and so the bytes behind.
        Where the header after a record batch is damaged, a broker sends it for its first offset only."""
        bounds = outlived(self._outage, tp, lambda: self._brokers.log_bounds(tp))
        first, at, step = 0 if bounds is None else bounds[0], offset, 1
        while at > first:
            at = max(offset - step, first)
            try:
                found = self._look(tp, at, 0)
            except ReadError:
                return None  # the log does not reach back so far any more
            if found is not None and found.start <= at:
                return found.ask_at
            step *= 2
        return None

    def seen(self, tp: TopicPartition, offset: int) -> SeenBytes:
        """A large part of the log, as the broker sends it for an offset; empty if it sends nothing. Raises BrokerError,
        ReadError, LeaderChangedError."""
        fetched = self._fetched(self._wide, tp, offset)
        return SeenBytes(offset, memoryview(bytes(fetched.records)), fetched.aborted)

    def close(self) -> None:
        self._brokers.close()
        self._wide.close()

    def _look(self, tp: TopicPartition, offset: int, least: int) -> Found | None:
        records = self._fetched(self._brokers, tp, offset).records
        batch = batch_headers.at(self._twin.scan, tp, records, 0)
        if batch is None or batch.base_offset < least or batch.next_offset <= offset:
            return None
        # Bytes behind the offset asked for may only look like a header.
        if batch.base_offset > offset and not self.intact(tp, records[: batch.end]):
            return None
        # The offset of a message that wraps others, before message format v2, is that of the last one inside.
        start = batch.base_offset if batch.magic == 2 else offset
        return Found(offset, start, bytes(records[: min(batch.end, batch_headers.HEADER_BYTES)]))

    def _fetched(self, brokers: Brokers, tp: TopicPartition, offset: int) -> FetchedPartition:
        """A broker's answer for an offset: at least one record batch, or no records."""
        problem = "no answer"
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(brokers.retry_backoff_s)
            try:
                fetched = outlived(self._outage, tp, lambda: self._sent(brokers, tp, offset))
            except LASTING:
                raise
            except (OSError, BrokerError) as error:
                problem = str(error)
                continue
            for partition in fetched:  # none, where the broker wants the client to slow down
                if self._is_answer(partition, offset):
                    return partition if partition.error is None else partition._replace(records=memoryview(b""))
                problem = str(partition.error)
                if partition.error is not None and partition.error.reaction in LED_BY_ANOTHER:
                    time.sleep(brokers.retry_backoff_s)
                    raise LeaderChangedError
        raise BrokerError(f"looking in {tp} for a record batch from offset {offset} on: {problem}")

    def _is_answer(self, partition: FetchedPartition, offset: int) -> bool:
        """Whether the answer is about the log; if not, the leader is looked up. Raises ReadError when refused."""
        tp, error = partition.tp, partition.error
        if error is None:
            self.unanswered |= not partition.records
            return True
        match error.reaction:
            case Reaction.DAMAGED:
                return True
            case Reaction.UNCLEAR:
                self.unanswered = True
                return True
            case Reaction.FATAL | Reaction.OUT_OF_LOG:
                self._refresh = True
                raise ReadError(tp.topic, tp.partition, offset, f"the broker refuses to send records: {error}")
            case _:
                self._refresh = True
                return False

    def _sent(self, brokers: Brokers, tp: TopicPartition, offset: int) -> list[FetchedPartition]:
        """The leader's answer; after an error the leader is looked up again."""
        node_id = None
        refresh, self._refresh = self._refresh, True
        try:
            node_id = brokers.leaders([tp], refresh).get(tp)
            if node_id is None:
                raise (BrokerError if brokers.missing([tp]) else BrokerTimeoutError)("it has no leader")
            connection = brokers.connection(node_id)
            connection.send({tp: offset}, self._epochs)
            fetched = [partition for partition in connection.receive() if partition.tp == tp]
        except (OSError, BrokerError) as error:
            if node_id is not None:
                brokers.give_up(node_id, error)
            raise
        self._refresh = False
        return fetched
