"""Commits of batches that are in Spark's commit log, in threads of the listener's own.

A commit is a job with a due time. Jobs of one lane run one after the other, lanes run at once.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.metrics.group_metrics import ListenersCommits
from spark_kafka_group.options import Options
from spark_kafka_group.values.commit_metadata import (
    commit_metadata,
    group_id_of,
    instance_id_of,
    is_own,
    is_signed,
    left_out,
    writer_of,
)
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from spark_kafka_group.wire import Committed

log = logging.getLogger(__name__)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NOW = 0.0  # as a due time, by time.monotonic()


class Lanes(Generic[K, V]):
    """Runs the newest job of each lane once it is due, in a thread that lives as long as the lane has one. `run`:
    called with a lane's key and a job. It must not raise. `name`: of the threads."""

    def __init__(self, run: Callable[[K, V], None], name: str) -> None:
        self._run = run
        self._name = name
        self._changed = threading.Condition()
        # Below: under that lock.
        self._waiting: dict[K, tuple[float, V]] = {}  # when due, and the job
        self._running: dict[K, V] = {}
        self._threads: dict[K, threading.Thread] = {}
        self._closed = False

    def put(self, key: K, job: V, after_s: float) -> None:
        """Run `job` after `after_s`, in place of the job that waits in this lane."""
        with self._changed:
            if self._closed:
                return
            self._waiting[key] = (time.monotonic() + after_s, job)
            if key not in self._threads:
                self._threads[key] = threading.Thread(target=self._work, args=(key,), name=self._name, daemon=True)
                self._threads[key].start()
            self._changed.notify_all()

    def hurry(self, which: Callable[[K], bool]) -> None:
        """Make the waiting jobs of these lanes due now."""
        with self._changed:
            self._waiting |= {key: (NOW, job) for key, (_, job) in self._waiting.items() if which(key)}
            self._changed.notify_all()

    def settle(self, timeout_s: float) -> list[V]:
        """Wait until running and hurried jobs have ended; returns those that have not."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unsettled(), timeout_s)
            return self._unsettled()

    def close(self, timeout_s: float) -> None:
        """Run no more jobs, and wait for the running ones. Harmless when repeated."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads.values())
        deadline = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _unsettled(self) -> list[V]:
        return [*self._running.values(), *(job for due, job in self._waiting.values() if due == NOW)]

    def _work(self, key: K) -> None:
        while (job := self._next(key)) is not None:
            try:
                self._run(key, job)
            finally:
                with self._changed:
                    del self._running[key]
                    self._changed.notify_all()

    def _next(self, key: K) -> V | None:
        """The lane's job, once it is due; None when there is none, which ends the thread."""
        with self._changed:
            while not self._closed and key in self._waiting:
                due, job = self._waiting[key]
                left_s = due - time.monotonic()
                if left_s <= 0:
                    del self._waiting[key]
                    self._running[key] = job
                    return job
                self._changed.wait(left_s)
            del self._threads[key]
            return None


Source = tuple[uuid.UUID, str]  # run of a query, and the id of one of its groupkafka sources


@dataclass(frozen=True)
class Succeeded:
    """A micro-batch in Spark's commit log, as far as one groupkafka source is concerned."""

    options: Options
    end: GroupOffset
    ranges: tuple[OffsetRange, ...]

    @property
    def query_id(self) -> str:
        return self.end.query_id or ""

    @property
    def group_id(self) -> str:
        return group_id_of(self.options.group.id, self.options.group.id_prefix, self.query_id)

    @property
    def instance_id(self) -> str:
        return instance_id_of(self.options.group.instance_id, self.query_id)

    @property
    def metadata(self) -> str:
        return commit_metadata(self.query_id, self.end.generation, self.end.batch if self.end.batch >= 0 else None)

    def __str__(self) -> str:
        ranges = " ".join(map(str, self.ranges))
        return f"group {self.group_id}: generation {self.end.generation}: batch of {ranges}"

    def lacking(self, committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
        """Offsets that the group lacks. An offset that another client wrote meanwhile stays."""
        return {r.tp: r.end for r in self.ranges if r.tp not in committed or self._follows(r, committed[r.tp])}

    def elsewhere(self, committed: Mapping[TopicPartition, Committed], ended: bool) -> dict[TopicPartition, int]:
        """Offsets of other clients that the group keeps, although this batch ended at others. While the query runs, an
        offset behind the batch is no conflict: the query commits before it gives a partition back."""
        moved = {}
        for r in self.ranges:
            group = committed.get(r.tp)
            if group is None or group.offset in (r.start, r.end):
                continue
            if is_signed(group.metadata, self.query_id) and is_own(group.metadata, self.query_id, self.end.batch):
                continue
            if group.offset < r.end or ended:
                moved[r.tp] = group.offset
        return moved

    def _follows(self, batch: OffsetRange, group: Committed) -> bool:
        if group.offset >= batch.end or left_out(group.metadata, self.query_id, self.end.batch):
            return False
        writer = writer_of(group.metadata)
        if writer is None or writer.query_id != self.query_id or not writer.is_own(self.query_id, self.end.batch):
            return group.offset == batch.start
        if writer.batch is not None and writer.batch > self.end.batch >= 0:
            return False  # the query has committed a later batch since, perhaps from an earlier offset
        return writer.generation <= self.end.generation or group.offset == batch.start


class Commits:
    """Commits the newest batch of each source, and counts.

    Each source has a lane of its own: while the brokers of one are away, the commits of others go on.

    `lock`: guards `running` and the counts.
    `running`: runs that have not ended.
    `after_s`: how long a commit is left to the source.
    `changed`: called after each commit.
    `done`, `failed`: commits so far.
    """

    def __init__(
        self, lock: threading.Condition, running: Container[uuid.UUID], after_s: float, changed: Callable[[], None]
    ) -> None:
        self.done = 0
        self.failed = 0
        self._lock = lock
        self._running = running
        self._after_s = after_s
        self._changed = changed
        self._by_source: dict[Source, ListenersCommits] = {}  # the last one by time.monotonic()
        self._lanes: Lanes[Source, Succeeded] = Lanes(self._work, "groupkafka-listener")

    def put(self, run: uuid.UUID, batch: Succeeded) -> None:
        """Commit `batch` later. It replaces a waiting batch, which the trigger of `batch` has proven to the source."""
        self._lanes.put((run, batch.query_id), batch, self._after_s)

    def hurry(self, run: uuid.UUID | None = None) -> None:
        """Commit the waiting batches of a run now; None is all runs."""
        self._lanes.hurry(lambda source: run is None or source[0] == run)

    def settle(self, timeout_s: float) -> list[Succeeded]:
        """Wait for hurried commits; returns the batches that are not committed in time."""
        return self._lanes.settle(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Commit nothing more, and wait for commits under way."""
        self._lanes.close(timeout_s)

    def counts_of(self, run: uuid.UUID, query_id: str, began_s: float) -> ListenersCommits:
        """Commits of one source. With the lock held. `began_s`: when time.monotonic() was 0, by the clock of the
        wall."""
        counts = self._by_source.get((run, query_id), ListenersCommits())
        return counts if counts.last_ms is None else replace(counts, last_ms=counts.last_ms + began_s * 1000)

    def forget(self, run: uuid.UUID) -> None:
        """Drop the counts of a run that has ended. With the lock held."""
        self._by_source = {source: counts for source, counts in self._by_source.items() if source[0] != run}

    def _work(self, source: Source, batch: Succeeded) -> None:
        run, _ = source
        try:
            self._commit(run, batch)
        except Exception:
            self._count(run, batch, None)
            log.exception("%s: not committed; the source commits at its next trigger", batch)

    def _count(self, run: uuid.UUID, batch: Succeeded, latency_ms: float | None) -> None:
        """Count a commit with its latency; None is a commit that failed."""
        with self._lock:
            counts = self._by_source.get((run, batch.query_id), ListenersCommits())
            if latency_ms is None:
                self.failed += 1
                counts = replace(counts, failed=counts.failed + 1)
            else:
                self.done += 1
                now_ms = time.monotonic() * 1000  # the clock of the wall may be set
                counts = replace(counts, done=counts.done + 1, last_ms=now_ms, last_latency_ms=latency_ms)
            if run in self._running:
                self._by_source[run, batch.query_id] = counts
        self._changed()

    def _commit(self, run: uuid.UUID, batch: Succeeded) -> None:
        # Importing kafka-python takes a while, and every Python worker imports this package.
        from spark_kafka_group.wire.group.non_member import NonMemberCommitter

        try:
            with NonMemberCommitter(batch.options, batch.group_id) as group:
                began = time.monotonic()
                tps = [r.tp for r in batch.ranges]
                late = group.commit(
                    tps, batch.lacking, batch.metadata, batch.end.generation, batch.instance_id, batch.end.epochs
                )
        except GroupKafkaError as error:
            self._count(run, batch, None)
            log.warning(
                "%s: not committed: %s. The rows are in the sink: the source commits them at its next trigger or "
                "start, and a consumer that takes these partitions over before that reads them again",
                batch, error,
            )  # fmt: skip
            return
        if late is None:
            log.info("%s: the generation is over: the source commits by itself", batch)
            return
        if late.offsets:
            self._count(run, batch, (time.monotonic() - began) * 1000)
            log.info("%s: committed %s", batch, _listed(late.offsets))
        with self._lock:
            ended = run not in self._running
        elsewhere = batch.elsewhere(late.before, ended)
        if elsewhere:
            log.warning(
                "%s: not committed, as another program has committed meanwhile: %s. The rows are in the sink: a "
                "consumer that went on from the commit before has read them again",
                batch, _listed(elsewhere),
            )  # fmt: skip


def _listed(offsets: Mapping[TopicPartition, int]) -> str:
    return " ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items()))
