"""Spark's calls to a stream reader, as calls of a query's session.

Spark calls, in this order: ``prepare_available_now`` (if at all), then on a new query ``initial_offset``, on a restart
after an unfinished batch ``plan`` with the logged offsets, and at every trigger ``latest_offset``. Its ``start`` has
succeeded: it is the end of the last batch in Spark's commit log.

A thread takes part in rebalances between Spark's calls, which can be far apart.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spark_kafka_group.driver import process, start_checks
from spark_kafka_group.driver.backlog.retry_delays import RetryDelays
from spark_kafka_group.driver.positions.lookup import looked_up_until
from spark_kafka_group.driver.session import GroupSession
from spark_kafka_group.errors import FencedError, MembershipError, OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.reading import no_topics
from spark_kafka_group.values.commit_metadata import group_id_of
from spark_kafka_group.values.file_sinks import stop_if_refused
from spark_kafka_group.values.offsets import GROUP_KEY, GroupOffset, OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import LogClient
from spark_kafka_group.wire.outage import PROBE_MS, BrokersAwayError, QueryOutage

CHECK_MS = 500  # how long a rebalance may wait for this member after the heartbeat that announces it


class BetweenTriggers:
    """Calls `settle` again and again, in a thread, while the lock is free.

    `settle`: called with the milliseconds it may take. An error ends the thread; :meth:`raise_error` brings it to
        Spark.
    """

    def __init__(self, settle: Callable[[float], None], lock: threading.RLock, heartbeat_interval_ms: int) -> None:
        self._settle = settle
        self._lock = lock
        self._every_s = min(heartbeat_interval_ms, CHECK_MS) / 1000
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="groupkafka-idler", daemon=True)
        self._thread.start()

    def raise_error(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Settle no more. The caller has the lock, so no call is under way."""
        self._stopping.set()

    def stop(self) -> None:
        """End the thread; waits for a call under way, which is short."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2 * CHECK_MS / 1000)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            if not self._lock.acquire(blocking=False):
                continue
            try:
                if not self._stopping.is_set():
                    self._settle(CHECK_MS)
            except Exception as error:  # noqa: BLE001 - raised where Spark sees it
                # 1. A call is under way. 2. stop() gives up waiting for it, and closes connections. 3. The call fails:
                #    that is no error of the query's.
                if not self._stopping.is_set():
                    self._error = error
                return
            finally:
                self._lock.release()


class StreamDriver:
    """Plans and commits the micro-batches of one query as a member of a consumer group.

    Spark's reader process calls it from one thread; a second one takes part in rebalances between the calls. A lock
    keeps them apart: all of the session's state is read and changed under it.

    `shared`: a directory by which sources of one application know of each other; Spark's own if not given.
    """

    def __init__(self, options: Options, shared: Path | None = None) -> None:
        self._shared = shared
        self._options = options
        self._new_query_id = uuid.uuid4().hex
        self._caps: dict[TopicPartition, int] | None = None
        self._missing: list[str] = []  # with availableNow
        self._session: GroupSession | None = None
        self._outage: QueryOutage | None = None
        self._idler: BetweenTriggers | None = None
        self._stopped = False
        self._lock = threading.RLock()
        self._seen: deque[tuple[dict[str, Any], GroupOffset]] = deque(maxlen=2)  # the start and the end of a batch

    def initial_offset(self) -> dict[str, Any]:
        """The offset before the first batch of a new query: nothing but the query's new id; no I/O."""
        return GroupOffset(query_id=self._new_query_id).to_json()

    def prepare_available_now(self) -> None:
        """Note, without joining, where the query ends: at the logs' ends, in retry topics at the first not due."""
        client, subscription = LogClient(self._options), self._options.reading.subscription
        try:
            tps = looked_up_until(
                lambda found: not subscription.missing_topics(found), lambda: client.partitions(subscription)
            )
            self._missing = subscription.missing_topics(tps)
            ends = client.end_offsets(tps)
            delays = RetryDelays(self._options.reading.retry_delays_ms, client.offsets_for_times)
            self._caps = {r.tp: r.end for r in delays.due([OffsetRange(tp, 0, end) for tp, end in ends.items()])}
        finally:
            client.close()

    def latest_offset(
        self,
        start_json: dict[str, Any],
        max_offsets: int | None = None,
        min_offsets: int | None = None,
        max_bytes: int | None = None,
    ) -> dict[str, Any]:
        """Commit what `start_json` proves, then plan the next batch; `start_json` itself when there is no new data.

        `max_offsets`: most offsets of the batch; None for no limit.
        `min_offsets`: fewer than these are left for later, at most for maxTriggerDelay; None for no limit.
        `max_bytes`: about the most bytes of the batch in the logs; None for no limit.
        Raises OffsetFormatError, NoOffsetForPartitionError, OptionError, OffsetOutOfRangeError when no start can be
        decided. Raises MembershipError, CommitError, BrokerError when the group, or its brokers, refuse. The query
        waits for brokers that are away, once it has reached them: until they answer there is no new data.
        """
        start = self._parsed(start_json)
        with self._lock, self._out_when_fenced():
            session, outage = self._joined(start)
            # With availableNow the query ends when nothing is new.
            attempt = outage.attempt if self._caps is None else outage.wait_for
            try:
                with session.asked():
                    end = attempt(lambda: session.next_batch(start, max_offsets, min_offsets, max_bytes))
            except BrokersAwayError:
                end = None
        if end is None:
            return start_json
        end_json = end.to_json()
        self._seen.append((end_json, end))
        return end_json

    def plan(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[tuple[OffsetRange, ...]]:
        """The tasks of the batch between two offsets, which latest_offset() planned now or before a crash."""
        if start_json == end_json:
            return []
        start, end = self._parsed(start_json), self._parsed(end_json)
        # The first batch of a query that is replayed starts at an initial offset made just now: the id is the end's.
        with self._lock, self._out_when_fenced():
            session, outage = self._joined(end)
            return outage.wait_for(lambda: session.tasks(start, end))

    def read_tasks(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[ReadTask]:
        """As :meth:`plan`, for executors."""
        with self._lock:
            tasks = self.plan(start_json, end_json)
            known = {} if self._session is None else self._session.standing.epochs.known
            ids = self._parsed(end_json).topic_ids
            return [ReadTask.under(known, ids, ranges) for ranges in tasks]

    def commit(self, end_json: dict[str, Any]) -> None:
        """Commit a batch of which Spark says that it succeeded; latest_offset() has usually done so before."""
        end = self._parsed(end_json)
        with self._lock, self._out_when_fenced(), contextlib.suppress(BrokersAwayError):
            session, outage = self._session, self._outage
            if session is not None and outage is not None:
                session.checkpointed_ends.committed(end)
                outage.attempt(lambda: session.succeeded(end))

    def report_latest_offset(self) -> dict[str, Any] | None:
        """As the session's progress, of the batch just planned: Spark asks right after latest_offset()."""
        with self._lock:
            shown = None if self._session is None else self._session.progress()
            away = None if self._outage is None else self._outage.to_json()
        if shown is not None and away is not None:
            shown[GROUP_KEY]["brokersAway"] = away
        return shown

    def stop(self) -> None:
        """Leave the group and close connections. Harmless when repeated or when nothing was started."""
        process.ignore_signals()
        self._stopped = True
        idler, self._idler = self._idler, None
        if idler is not None:
            idler.stop()
        session, self._session = self._session, None
        if session is not None:
            away = self._outage is not None and self._outage.away
            session.stop(
                min(PROBE_MS, self._options.connection.request_timeout_ms)
                if away
                else self._options.connection.request_timeout_ms
            )

    def _parsed(self, offset_json: dict[str, Any]) -> GroupOffset:
        """Spark shows the same offsets again and again, and each has all partitions."""
        for seen_json, offset in self._seen:
            if seen_json == offset_json:
                return offset
        offset = GroupOffset.from_json(offset_json)
        group = self._options.group
        offset = offset.for_group(group_id_of(group.id, group.id_prefix, offset.query_id or self._new_query_id))
        self._seen.append((offset_json, offset))
        return offset

    def _joined(self, offset: GroupOffset) -> tuple[GroupSession, QueryOutage]:
        """The session under the query id that `offset` carries, and whether its brokers are away."""
        if self._stopped:
            raise MembershipError("the query was stopped and has left its group: start it again")
        if self._session is None:
            self._refuse_missing(offset)
            process.prepare(self.stop)
            start_checks.check_dead_letters(self._options)
            start_checks.look_up_rack(self._options)
            shared = self._shared or process.shared_directory()
            stop_if_refused(shared, self._options.source_key)
            query_id = offset.query_id or self._new_query_id
            session = self._session = GroupSession(self._options, query_id, offset, self._caps, shared)
            client, group_id = session.member.client, session.committer.group_id
            outage = self._outage = QueryOutage(client, group_id, self._options.connection.max_broker_outage_ms)
            if not self._options.reading.subscription.manual:
                self._idler = BetweenTriggers(
                    lambda patience_ms: outage.leave_to_trigger(session.settle_between_triggers, patience_ms),
                    self._lock,
                    self._options.group.heartbeat_interval_ms,
                )
        elif self._idler is not None:
            self._idler.raise_error()
        assert self._outage is not None, "made with the session"
        return self._session, self._outage

    @contextlib.contextmanager
    def _out_when_fenced(self) -> Iterator[None]:
        """Join no more once another process has joined under this query's name.

        1. That process joins, and this one gets the error. 2. Before Spark stops the query, its thread between triggers
        would join again, as the member is in no group. 3. That would throw out the process that has taken its place.
        """
        try:
            yield
        except FencedError:
            if self._idler is not None:
                self._idler.end()
            raise

    def _refuse_missing(self, offset: GroupOffset) -> None:
        """With availableNow, refuse topics that do not exist: the query would end without them, and look successful.
        Topics that `offset` has are deleted ones, which failOnDataLoss is about. Raises OptionError."""
        read = {tp.topic for tp in {*offset.positions, *offset.left}}
        missing = [topic for topic in self._missing if topic not in read]
        if missing:
            raise OptionError(no_topics(missing))
