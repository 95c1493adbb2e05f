"""The transaction of a query's sink, as far as it commits the source's offsets: option kafka.transactional.id.

The races between the processes, and what ends them:

- *An earlier batch.* 1. Batch 7 runs, and its offsets are published. 2. Spark plans batch 8, which reads nothing from
  this source, so Spark does not ask it for tasks. 3. The sink of batch 8 would commit the offsets of batch 7 with other
  rows. So what is published is taken back whenever Spark asks for the latest offset: then no batch runs.
- *A process that died.* 1. Batch 7 is published, and the process is killed. 2. The query is started again in the same
  JVM, and batch 7, which is run again, needs nothing from this source. The file of the dead process has no lock, so the
  sink does not see it.
- *A driver that was replaced.* 1. Driver A publishes batch 7 and is suspended. 2. Driver B starts from the same
  checkpoint, in another application, and is the member now. 3. A wakes up, and its sink commits: brokers refuse A's
  member id and generation.
- *Two queries with one id.* The sink of one would commit the other's offsets. Spark asks all sources of a query in each
  round, one after the other. So no two are asked at once, all have been asked equally often when a batch begins, and
  none has been at work before another one begins. A source that finds another one with the same id of which that is not
  true stops its query; it waits for the other to go first, which may be a source of the same query's last run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from spark_kafka_group.driver.planner import Batch
from spark_kafka_group.driver.query import Query
from spark_kafka_group.errors import BrokerError, MembershipError, TransactionError
from spark_kafka_group.text.foreign_text import listed
from spark_kafka_group.transactions import last_batch
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.exactly_once import SourceBatch
from spark_kafka_group.values.files import file_name, is_same, make_folder, put, remove
from spark_kafka_group.values.source_offsets import LiveSource, SourceOffsets, folder_of, live_sources

log = logging.getLogger(__name__)

GOES_WITHIN_S = 10.0  # how long a source of the same query's last run may take to end
PAUSE_S = 0.05
ABORTED_WITHIN_MS = 5_000  # how long the end of a query may wait for brokers to abort what its last batch has left open
NOBODY, UNKNOWN_GENERATION = "", -1  # of a batch that commits nothing


class SinkTransaction:
    """Publishes the offsets of the batch that runs. `directory`: shared by the processes of this application. Raises
    MembershipError by everything below, where the directory cannot be written, or another query has the same id."""

    def __init__(self, query: Query, transactional_id: str, directory: Path | None) -> None:
        self.transactional_id = transactional_id
        self._query = query
        self._directory = directory
        self._own = LiveSource(query.query_id, 0)
        self._file: IO[str] | None = None
        self._left: last_batch.LastBatch | None = None

    @classmethod
    def for_query(cls, query: Query, directory: Path | None) -> SinkTransaction | None:
        """None where the sink commits no offsets."""
        transactional_id = query.options.group.transactional_id
        return None if transactional_id is None else cls(query, transactional_id, directory)

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        """Spark asks for the latest offset until the block ends: no batch runs."""
        own = self._own
        is_first = own.round == 0
        self._own = replace(own, round=own.round + 1, is_asked=True, running=None)
        if own.running is not None or self._file is None:
            self._put(self._own)
        else:
            self._put_first_line()
        try:
            self._refuse(lambda other: other.is_asked or (is_first and (other.has_begun or other.round > 1)))
            yield
        finally:
            self._own = replace(self._own, is_asked=False)
            self._put_first_line()

    def decided(self, batch: int) -> SourceBatch | None:
        """Have the sink of an earlier run decide nothing any more, and see what it has decided of a batch.

        1. The sink commits the source's offsets in its transaction, and its process is killed before it ends that.
        2. The query is started again. The coordinator answers no lookup of these offsets until the transaction has
        ended. 3. The next write of the sink would abort it, but Spark asks the source first, which would wait for the
        transaction's timeout.

        `batch`: this source's number of it.
        Returns None where it has decided nothing of this batch, or nothing is known of it.
        Raises BrokerError, TransactionError.
        """
        from spark_kafka_group.transactions.finishing import last_decision
        from spark_kafka_group.wire.transactions.decision_log import DecisionLog
        from spark_kafka_group.wire.transactions.transaction_client import NONE_BEGINS_MS, TransactionClient

        last_batch.forget(self._directory, self.transactional_id)  # or the sink would find its producer fenced
        options = self._query.options
        with TransactionClient(options.client, "driver", options.connection.default_api_timeout_ms) as client:
            client.take_id(self.transactional_id, NONE_BEGINS_MS)
            decisions = DecisionLog(client, options.group.decision_topic)
            found = last_decision(decisions, self.transactional_id) if decisions.exists() else None
        return None if found is None else found[1].of_source(self._query.query_id, batch)

    def begins(self, batch: Batch) -> None:
        """Publish the offsets of `batch`, of which Spark wants the tasks.

        Of a batch that goes without all of its partitions, that is said, too: 1. The batch is decided, as it has rows
        of another source, and the process dies. 2. The partitions come back. 3. The batch is run again, and would read
        them into Spark's state, beside the later batch that writes their rows. Raises MembershipLostError when its
        generation is over.
        """
        own, query = self._own, self._query
        if not batch.replayed:
            self._refuse(lambda other: other.round != own.round)
        running = None
        if batch.ends or not batch.reads:
            member_id, generation, instance_id = (
                query.client.member_in(batch.generation) if batch.ends else (NOBODY, UNKNOWN_GENERATION, None)
            )
            running = SourceOffsets(
                query.group_id, generation, member_id, instance_id, own.query_id, batch.end.batch,
                commit_metadata(own.query_id, batch.generation, batch.end.batch), batch.ends,
                query.standing.epochs.select(batch.ends), query.options.group.decision_topic,
            )  # fmt: skip
        self._own = replace(own, has_begun=own.has_begun or not batch.replayed, running=running)
        self._put(self._own)

    def lacks(self, query_ids: frozenset[str]) -> bool:
        """Whether one of these other sources of the application has not been asked for anything to its end yet."""
        return bool(query_ids) and not query_ids <= {other.query_id for other in self._others()}

    def close(self) -> None:
        """Remove the file. Harmless when repeated."""
        file, self._file = self._file, None
        if file is not None:
            self._left = self._planned_of_own_file(file)
            remove(file, self._path)

    def abort_left(self, within_ms: float) -> None:
        """Abort what the sink had left open of a batch when the file was removed. Readers of committed records would
        wait for the timeout of its transactions. What cannot be aborted in time, the next start aborts."""
        from spark_kafka_group.options.transacting import Transacting, TransactionOptions
        from spark_kafka_group.transactions.deciding import abort_left

        left, self._left = self._left, None
        if left is None:
            return
        of_query, limit_ms = self._query.options, int(min(within_ms, ABORTED_WITHIN_MS))
        transacting = Transacting(self.transactional_id, decision_topic=of_query.group.decision_topic)
        try:
            abort_left(TransactionOptions(of_query.client, transacting, limit_ms), left, self._planned, self._directory)
        except (BrokerError, TransactionError) as error:
            log.warning(
                "kafka.transactional.id %s: transactions of the last batch may stay open, until the next start or "
                "their timeout: %s",
                self.transactional_id, error,
            )  # fmt: skip

    def _planned_of_own_file(self, file: IO[str]) -> last_batch.LastBatch | None:
        """As :meth:`_planned`, if this process has planned its part. The plan is read before the file is looked at: 1.
        A query is stopped, and this process is slow. 2. The query is started again, and its new process puts a file in
        the place of this one. 3. Only then it plans a batch, perhaps the same one."""
        planned = self._planned()
        try:
            return planned if is_same(file, self._path) else None
        except OSError:
            return None  # the folder is gone

    def _planned(self) -> last_batch.LastBatch | None:
        """The sink's last batch, if it was planned with the batch of this source that runs, and has not ended."""
        running = self._own.running
        if running is None:
            return None
        return last_batch.planned_with(running.query_id, running.batch, self.transactional_id, self._directory)

    def _put_first_line(self) -> None:
        if self._file is not None:  # or the query was stopped meanwhile
            os.pwrite(self._file.fileno(), self._own.first_line.encode(), 0)

    @property
    def _shared(self) -> Path:
        if self._directory is None:
            raise MembershipError(
                f"kafka.transactional.id ({self.transactional_id}): the sink hears of the source's offsets by Spark's "
                f"temporary directory, and there is none: leave the option out, or run the query in Spark"
            )
        return self._directory

    @property
    def _path(self) -> Path:
        return folder_of(self._shared, self.transactional_id) / f"{file_name(self._own.query_id)}.json"

    def _put(self, source: LiveSource) -> None:
        before = self._file
        try:
            make_folder(self._path.parent, self._shared)
            self._file = put(self._path, source.to_text())
        except OSError as error:
            raise MembershipError(
                f"kafka.transactional.id ({self.transactional_id}): the offsets of the source cannot be handed to the "
                f"sink: {self._path}: {error.strerror}. Make room there, or let this user write"
            ) from error
        if before is not None:
            before.close()

    def _refuse(self, of_another_query: Callable[[LiveSource], bool]) -> None:
        """Stop this query if a source with the same id is another query's, and does not end soon."""
        until = time.monotonic() + GOES_WITHIN_S
        while others := [other for other in self._others() if of_another_query(other)]:
            if time.monotonic() > until:
                raise MembershipError(
                    f"kafka.transactional.id ({self.transactional_id}) is also that of another query of this "
                    f"application, with the sources {listed([other.query_id for other in others])}: the sink of one "
                    f"would commit the other's offsets. Give each query an id of its own"
                )
            time.sleep(PAUSE_S)

    def _others(self) -> list[LiveSource]:
        found = live_sources(self._shared, self.transactional_id)
        return [other for other in found if other.query_id != self._own.query_id]
