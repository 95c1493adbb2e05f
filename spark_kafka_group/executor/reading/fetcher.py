"""Fetches ranges of offsets, one chunk of raw records after the other.

The next request is on its way before the records of a response are handed out, so a broker reads and sends while the
task decodes. No thread is needed for it: the response waits in the socket.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from spark_kafka_group.errors import (
    LASTING,
    BrokerError,
    CorruptRecordError,
    ReadError,
)
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.executor.reading.batch_headers import Chunk
from spark_kafka_group.executor.reading.gone_records import BELIEVED_AFTER_S, GoneRecords
from spark_kafka_group.executor.reading.stall import Stall
from spark_kafka_group.executor.reading.uncommitted import Uncommitted
from spark_kafka_group.executor.writing.elections import Elections
from spark_kafka_group.options import PARTITION_BYTES, TASK_BYTES
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire import LARGEST_BATCH, Brokers, FetchedPartition, FetchError, NearestReplicas, unreached
from spark_kafka_group.wire.outage import TaskOutage, outlived
from spark_kafka_group.wire.reactions import Reaction

log = logging.getLogger(__name__)

SILENT_AFTER_S = 3.0
"""After this time without records and without an error, although the log goes on, the caller looks for damage. The next
time it looks after twice as long."""
SILENCE = (
    "Tiered storage does so while it is slow: then raise kafkaConsumer.pollTimeoutMs. If it goes on, the log may be "
    "damaged there: look at it with kafka-dump-log, and start the query behind the damage"
)

LOOK_AGAIN_S = 1.0  # how often leaders are looked for that were not found, while other partitions can be read

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8  # within a record batch; the bytes that it counts follow


class Fetcher:
    """Reads some ranges from the leaders of their partitions.

    `scan`: finds the end of the last complete record batch, and the next offset after it (see the decoder's contract).
    `outage`: waits for brokers that are away, and this time does not count; None where it does.
    `epochs`: epochs of the leaders in whose logs the ranges are; a partition without one is read from any leader.
    `topic_ids`: ids of the topics in whose logs the ranges are; one without an id is read whatever its id is now.
    `nearest`: replicas to read from instead of leaders; None to read from leaders only.
    """

    def __init__(
        self,
        brokers: Brokers,
        ranges: Collection[OffsetRange],
        scan: Callable[[str, int, memoryview], tuple[int, int]],
        stalled_after_s: float,  # without a new record for this long, reading fails; Spark then tries the task again
        fail_on_data_loss: bool = True,
        largest: int = LARGEST_BATCH,  # most bytes that a record batch may have
        clock: Callable[[], float] = time.monotonic,
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        topic_ids: Mapping[str, str] = MappingProxyType({}),
        outage: TaskOutage | None = None,
        nearest: NearestReplicas | None = None,
    ) -> None:
        self._brokers = brokers
        self._nearest = nearest
        self._outage = outage
        self._scan = scan
        self._largest = largest
        self._positions = {r.tp: r.start for r in ranges if r.size > 0}
        self._starts: dict[TopicPartition, int] = {}  # first wanted offsets, where they are not the positions
        self._ends = {r.tp: r.end for r in ranges}
        self._most_size = max(PARTITION_BYTES, TASK_BYTES // max(1, len(self._positions)))
        self._sizes: dict[TopicPartition, int] = {}  # bytes to ask for: as many as seem to be left of a range
        self._epochs = dict(epochs)
        self._topic_ids = topic_ids
        self._nodes: dict[TopicPartition, int] = {}  # who is asked for records: leaders, but for partitions followed
        self._led: dict[TopicPartition, int | None] = {}  # the epochs for which the metadata names these leaders
        self._followed: set[TopicPartition] = set()
        # positions and rack of requests whose responses have not been read, by node; followers answer those with a rack
        self._asked: dict[int, tuple[dict[TopicPartition, int], str]] = {}
        self._silent_since: dict[TopicPartition, float] = {}  # when nothing was first said in a log that goes on
        self._silent_for: dict[TopicPartition, tuple[int, float]] = {}  # position, and time until damage is looked for
        self._clock = clock
        self._stall = Stall(stalled_after_s, clock, outage)
        self._gone = GoneRecords(self._positions, self._ends, fail_on_data_loss, self._stall, clock)
        self._elections = Elections(brokers, self._epochs, min(BELIEVED_AFTER_S, stalled_after_s / 2), clock)
        self._uncommitted = Uncommitted(brokers, self._epochs, self._stall, outage)
        self._refresh = False
        self._look_again_at = float("-inf")  # when leaders that were not found are looked for again
        self._error: ReadError | None = None

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, in offset order for each partition. Raises ReadError when a partition cannot be read, after the
        chunks before that; BrokerError when brokers cannot be reached, or nothing comes any more."""
        try:
            while self._positions:
                self._ask()
                for chunk in self._next_response():
                    yield chunk
                    if not chunk.silent:
                        self._stall.moved()  # the caller's time is not the brokers'
                if self._error is not None:
                    raise self._error
        finally:
            self._brokers.drop_busy()

    @property
    def epochs(self) -> Mapping[TopicPartition, int]:
        """Of the leaders that records are taken from, as far as reading has come."""
        return MappingProxyType(self._epochs)

    def go_on(self, tp: TopicPartition, position: int, start: int) -> None:
        """Go on with a partition at a position that is not the end of its chunks so far. `position`: offset to ask for.
        `start`: offset of the first wanted row from there on; from the end of the partition's range on no more is
        read."""
        self._positions.pop(tp, None)
        self._starts.pop(tp, None)
        if start < self._ends[tp]:
            self._positions[tp] = position
            self._starts[tp] = start
        else:
            self._uncommitted.answered([tp])  # its leader may be away now, and is not asked any more
        self._stall.moved()

    def ask_leader(self, tp: TopicPartition, position: int) -> None:
        """Go on at a position of the leader's log: a follower's copy cannot be read there."""
        self._leave_follower(tp, "its copy cannot be read")
        self.go_on(tp, position, position)

    def wait_on(self, chunk: Chunk) -> None:
        """Ask again for an offset about which a broker is silent. Raises BrokerTimeoutError after too long a time."""
        self._positions[chunk.tp] = chunk.asked
        if chunk.start != chunk.asked:
            self._starts[chunk.tp] = chunk.start
        self._stall.check(self._positions)

    def _ask(self) -> None:
        """Send a request to every leader of a wanted partition that has no request under way."""
        self._compare_logs()
        self._find_leaders()
        for node_id in dict.fromkeys(self._nodes[tp] for tp in self._positions if tp in self._nodes):
            if node_id not in self._asked:
                self._send(node_id)

    def _find_leaders(self) -> None:
        """Look up leaders until each partition has one, is given up, or waits for its next attempt."""
        while lacking := self._lacking():
            try:
                leaders = self._brokers.leaders(lacking, self._refresh, self._topic_ids)
            except LASTING:
                raise
            except BrokerError as error:
                self._missed(lacking, error)
                continue
            self._nodes |= leaders | self._followers(leaders)
            self._led |= {tp: self._brokers.leader_epoch(tp) for tp in leaders} if self._topic_ids else {}
            if len(leaders) == len(lacking):
                self._refresh = False
                break
            if self._give_up_deleted(lacking):
                time.sleep(self._brokers.retry_backoff_s)  # not stalled: soon it is known whether they are gone
            else:
                self._missed([tp for tp in lacking if tp in self._positions and tp not in leaders], "no leader")

    def _followers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Nodes of the followers to read these partitions from, where there are any."""
        if self._nearest is None:
            return {}
        followers = {tp: node for tp in tps if (node := self._nearest.follower(tp)) is not None}
        self._followed |= followers.keys()
        return followers

    def _leave_follower(self, tp: TopicPartition, problem: Exception | str) -> None:
        """Read a partition from its leader: only that knows whether records are gone."""
        if self._nearest is not None:
            self._stall.problem = f"{tp}: node {self._nodes.get(tp)}, in this rack: {problem}"
            log.info("%s; asking the leader", self._stall.problem)
            self._nearest.leave(tp)
        self._followed.discard(tp)
        self._nodes.pop(tp, None)

    def _lacking(self) -> list[TopicPartition]:
        """Partitions whose leaders are to be looked up now; those of brokers that are away do not hold up others."""
        lacking = [tp for tp in self._positions if tp not in self._nodes]
        if lacking and self._clock() < self._look_again_at and self._reads_others():
            return []
        if self._outage is None or not self._outage.away:
            return lacking
        now = [tp for tp in lacking if not self._outage.put_off(tp)]
        if lacking and not now and not self._reads_others():
            self._outage.wait()
            return lacking
        return now

    def _reads_others(self) -> bool:
        """Whether there are partitions whose leaders are known."""
        return bool(self._asked) or any(tp in self._nodes for tp in self._positions)

    def _give_up_deleted(self, lacking: Collection[TopicPartition]) -> bool:
        """Whether brokers lack partitions, but not for long enough to give them up."""
        missing = self._brokers.missing(lacking, self._topic_ids)
        if self._outage is not None:
            self._outage.answered(missing)
        return self._gone.give_up_missing(missing, self._brokers.made_again(self._topic_ids))

    def _send(self, node_id: int) -> None:
        wanted = {tp: position for tp, position in self._positions.items() if self._nodes.get(tp) == node_id}
        if not wanted:
            return
        rack = ""
        if self._nearest is not None:
            rack, wanted = self._nearest.request_to(node_id, wanted)
        try:
            ids = self._ids_for(wanted, bool(rack))
            self._brokers.connection(node_id).send(wanted, self._epochs, rack, ids, self._sizes)
        except LASTING:
            raise
        except (OSError, BrokerError) as error:
            self._lose(node_id, list(wanted), error)
        else:
            self._asked[node_id] = wanted, rack

    def _ids_for(self, wanted: Iterable[TopicPartition], by_rack: bool) -> Mapping[str, str]:
        """Ids to name the topics by; empty for names. With ids a broker sends nothing of a topic that was made again,
        but followers answer, too: without a rack, only where metadata of that epoch name the leader."""
        if not self._topic_ids or not all(
            tp.topic in self._topic_ids and (by_rack or (tp in self._epochs and self._led.get(tp) == self._epochs[tp]))
            for tp in wanted
        ):
            return {}
        return self._topic_ids

    def _next_response(self) -> list[Chunk]:
        """Read one response, and ask its sender for more before the records are looked at."""
        if not self._asked:
            return []
        node_id, (asked, rack) = next(iter(self._asked.items()))
        del self._asked[node_id]
        try:
            fetched = self._brokers.connection(node_id).receive()
        except (OSError, BrokerError) as error:
            self._lose(node_id, asked, error)
            return []
        self._uncommitted.answered(asked)
        chunks, refused = self._chunks_of(fetched, asked, bool(rack))
        if self._error is not None:
            return chunks
        if any(not chunk.silent for chunk in chunks):
            self._silent_since.clear()  # responses that are full have no room for all partitions
            self._stall.moved()
        elif refused:
            self._wait(self._stall.problem)
        elif not chunks:
            self._stall.check(self._positions)
        self._send(node_id)
        return chunks

    def _chunks_of(
        self, fetched: Collection[FetchedPartition], asked: Mapping[TopicPartition, int], by_rack: bool
    ) -> tuple[list[Chunk], bool]:
        """The chunks of a response; and whether a partition had an error that may pass."""
        chunks: list[Chunk] = []
        refused = False
        empty = not any(partition.records for partition in fetched)
        for partition in fetched:
            position = asked.get(partition.tp)
            if position is None or position != self._positions.get(partition.tp):  # the caller may have moved it since
                continue
            try:
                if by_rack and self._is_of_replica(partition, empty):
                    continue
                chunk, error_may_pass = self._taken(partition, by_rack)
            except ReadError as error:
                self._error = error  # raised when the chunks before it have been handed out
                break
            refused |= error_may_pass
            chunks += [] if chunk is None else [chunk]
        return chunks, refused

    def _is_of_replica(self, fetched: FetchedPartition, empty: bool) -> bool:
        """Whether a part of the response to a request with a rack says nothing about the log.

        1. A leader names the nearest replica. Or: 2. A follower, or a leader, has no records or an error. Only a
        request without a rack shows what that means. A response that is full has no room for all partitions, but one
        that is `empty` may be of a follower that lags.
        """
        tp, error = fetched.tp, fetched.error
        if self._nearest is not None and fetched.preferred_replica is not None:
            log.debug("%s: node %d is in this rack, says its leader", tp, fetched.preferred_replica)
            self._nearest.named(tp, fetched.preferred_replica)
            self._nodes |= self._followers([tp])
            return True
        if error is None and fetched.records:
            return False
        if error is not None or empty:
            self._leave_follower(tp, "it has no records there" if error is None else str(error))
        return True

    def _taken(self, fetched: FetchedPartition, by_rack: bool) -> tuple[Chunk | None, bool]:
        """The chunk of a partition's part of a response; and whether the part has an error that may pass."""
        tp, error = fetched.tp, fetched.error
        if error is not None or fetched.high_watermark > self._positions[tp]:
            self._uncommitted.over(tp)
        if tp in self._epochs and not by_rack:
            self._elections.answered(tp, None if error is None else error.reaction)
        if error is not None:
            return self._refused(tp, error)
        if fetched.records:
            return self._advance(fetched)._replace(of_follower=by_rack), False
        if self._goes_on(fetched):
            problem = f"the broker sends neither records nor an error, in a log that ends at {fetched.high_watermark}"
            return self._silent(tp, f"{problem}. {SILENCE}"), False
        self._check_not_at_end(fetched)
        return None, tp in self._uncommitted

    def _advance(self, fetched: FetchedPartition) -> Chunk:
        """Move the position past the fetched batches. The partition goes to the end of the queue, for fairness."""
        tp, records = fetched.tp, fetched.records
        position, end = self._positions.pop(tp), self._ends[tp]
        start = self._starts.pop(tp, position)
        problem = None
        try:
            size, next_offset = self._scan(tp.topic, tp.partition, records)
        except CorruptRecordError as error:
            # The batches before it can be read. The decoder raises the error with its offset.
            return Chunk(tp, position, start, end, records, fetched.aborted, error.problem)
        if next_offset > fetched.high_watermark:
            beyond = self._beyond_log(fetched, end)
            if beyond is not None:
                problem = f"a batch gives its offset as {beyond.base_offset}, which the log does not have"
                return Chunk(tp, position, start, end, records[: beyond.begin], fetched.aborted, problem)
        if next_offset < end and len(records) - size >= _LENGTH_AT + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(records, size + _LENGTH_AT)
            if length > self._largest:
                problem = f"a batch gives its length as {length}, and none may have more than {self._largest} bytes"
        if next_offset <= position and problem is None:
            problem = f"the broker sent {len(records)} bytes that hold no record from this offset on"
        if problem is None and next_offset < end:
            self._positions[tp] = next_offset
            left = size * (end - next_offset) // (next_offset - position)
            self._sizes[tp] = min(max(left + left // 8, PARTITION_BYTES), self._most_size)
            if next_offset < start:  # asked for an offset long before
                self._starts[tp] = start
        return Chunk(tp, position, start, end, records, fetched.aborted, problem)

    def _beyond_log(self, fetched: FetchedPartition, end: int) -> batch_headers.Frame | None:
        """The first record batch with offsets from `end` on, if the log does not reach so far."""
        tp = fetched.tp
        position, _ = batch_headers.past(self._scan, tp, fetched.records, end)
        batch = batch_headers.at(self._scan, tp, fetched.records, position)
        if batch is None or batch.base_offset < fetched.high_watermark:
            return None  # a broker looks how far the log is before it reads
        bounds = outlived(self._outage, tp, lambda: self._brokers.log_bounds(tp))
        return batch if bounds is not None and batch.base_offset >= bounds[1] else None

    def _unreadable(self, tp: TopicPartition, problem: str, silent: bool = False) -> Chunk:
        """A chunk without records, with a problem."""
        position = self._positions.pop(tp)
        start = self._starts.pop(tp, position)
        return Chunk(tp, position, start, self._ends[tp], memoryview(b""), (), problem, silent)

    def _goes_on(self, fetched: FetchedPartition) -> bool:
        """Whether a log has records from a position on that may be read."""
        position, stable = self._positions[fetched.tp], fetched.last_stable_offset
        return fetched.high_watermark > position and (stable is None or stable > position)

    def _silent(self, tp: TopicPartition, problem: str) -> Chunk | None:
        """A chunk that reports a silent broker, when it is time to look for damage."""
        now, position = self._clock(), self._positions[tp]
        self._stall.problem = f"{tp}: {problem}"
        since = self._silent_since.setdefault(tp, now)
        known, limit = self._silent_for.get(tp, (position, 0.0))
        if known != position or not limit:
            limit = min(SILENT_AFTER_S, self._stall.limit_s / 2)
        if now - since < limit:
            return None
        self._silent_for[tp] = position, 2 * limit
        del self._silent_since[tp]
        return self._unreadable(tp, problem, silent=True)

    def _check_not_at_end(self, fetched: FetchedPartition) -> None:
        """The log ends before the range does, or a transaction that is open keeps the broker from sending the rest."""
        tp, committed = fetched.tp, fetched.high_watermark
        position, end, stable = self._positions[tp], self._ends[tp], fetched.last_stable_offset
        if tp in self._uncommitted or self._gone.ends_for_good(tp, committed):
            if self._uncommitted.are_lost(tp, position, committed):
                self._gone.skip(tp, end, f"the log ends at {committed}")
            return
        if committed > position and stable is not None and stable <= position and self._stall.is_over_limit(tp):
            raise ReadError(
                tp.topic, tp.partition, position,
                f"kafka.isolation.level=read_committed reads up to the last stable offset, {stable}, where a "
                f"transaction is open, and the range to read ends at {end}. Wait until the transaction has ended (its "
                f"transaction.timeout.ms bounds that), or set read_uncommitted",
            )  # fmt: skip

    def _refused(self, tp: TopicPartition, error: FetchError) -> tuple[Chunk | None, bool]:
        """As :meth:`_taken`, of a part with an error."""
        match error.reaction:
            case Reaction.DAMAGED:
                return self._unreadable(tp, f"the broker cannot read its own log there ({error})"), False
            case Reaction.UNCLEAR:
                return self._silent(tp, "the broker answers UNKNOWN_SERVER_ERROR: see its log"), True
            case Reaction.OUT_OF_LOG:
                return None, self._out_of_log(tp, error)
            case Reaction.FATAL:
                why = f": {error.advice}" if error.advice else ""
                raise ReadError(
                    tp.topic, tp.partition, self._positions[tp], f"the broker refuses to send records: {error}{why}"
                )
            case _:
                self._look_for_leader(tp, str(error))
                return None, True

    def _out_of_log(self, tp: TopicPartition, error: FetchError) -> bool:
        """Find out which offsets the log holds if it lacks the one asked for; True if it makes sense to ask again."""
        bounds = outlived(self._outage, tp, lambda: self._brokers.log_bounds(tp))
        if bounds is None:  # deleted meanwhile, it seems
            self._look_for_leader(tp, str(error))
            return True
        return self._gone.look_at_bounds(tp, *bounds)

    def _compare_logs(self) -> None:
        """Check first whether the logs of leaders with other epochs still have the planned records."""
        try:
            answers = self._elections.ask_leaders()
        except LASTING:
            raise
        except BrokerError as error:
            self._stall.problem = str(error)
            return
        for elected in answers:
            if elected.tp not in self._positions:
                continue
            if elected.later:
                self._epochs[elected.tp] = elected.current
            self._gone.look_at_leader(elected)

    def _look_for_leader(self, tp: TopicPartition, problem: str) -> None:
        self._stall.problem = f"{tp}: {problem}"
        self._nodes.pop(tp, None)
        self._refresh = True

    def _lose(self, node_id: int, asked: Collection[TopicPartition], error: Exception) -> None:
        """A connection broke: its partitions look for their leaders again."""
        log.info("node %d: %s; connecting again", node_id, error)
        self._brokers.give_up(node_id, error)
        led = [tp for tp in asked if tp not in self._followed]
        for tp in asked:
            self._uncommitted.forget(tp)
            if tp in self._followed:
                self._leave_follower(tp, error)
            self._nodes.pop(tp, None)
        self._refresh = True  # the metadata may lack a replica that has come back
        self._missed(led, error, f"node {node_id}: ")

    def _missed(self, tps: Collection[TopicPartition], problem: Exception | str, prefix: str = "") -> None:
        """Wait for leaders: as long as brokers are away, or, if they answer, as for records."""
        if not tps:
            return
        message = f"{prefix}{problem}"
        if self._outage is None or (isinstance(problem, Exception) and not unreached(problem)):
            self._uncommitted.answered(tps)
            self._look_again_at = self._clock() + LOOK_AGAIN_S
            self._note_stall(message)
            if not self._reads_others():
                time.sleep(self._brokers.retry_backoff_s)
            return
        self._stall.problem = message
        for tp in tps:  # the answers of a leader before the outage count no longer
            self._silent_since.pop(tp, None)
            self._gone.forget(tp)
            self._elections.unreached(tp)
        self._outage.missed(tps, problem)

    def _wait(self, problem: str) -> None:
        self._note_stall(problem)
        time.sleep(self._brokers.retry_backoff_s)

    def _note_stall(self, problem: str) -> None:
        """Keep the reason why no record has come; the reading ends where that has been so for too long."""
        self._stall.problem = problem
        self._stall.check(self._positions)
