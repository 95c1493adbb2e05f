"""Commits of batches as soon as Spark's listeners hear of them, before the source does; and numbers of queries.

Spark tells a source that batch N has succeeded when it asks for batch N+1: at the next trigger. It posts a
QueryProgressEvent about batch N as soon as the batch is in its commit log, and a QueryTerminatedEvent after the last of
these, to listeners in the process that started the query. Progress and options of groupkafka sources are read from
these events, and from Spark's plans.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.listener.commits import Commits, Succeeded
from spark_kafka_group.metrics import prometheus
from spark_kafka_group.metrics.group_metrics import OBSERVED, EndedBatches, GroupMetrics, handled, metrics_of
from spark_kafka_group.options import Options
from spark_kafka_group.spark.installation import require_found
from spark_kafka_group.text.foreign_text import parsed
from spark_kafka_group.values.file_sinks import FILE_SINK, refuse, why_batches_are_skipped
from spark_kafka_group.values.files import remove
from spark_kafka_group.values.offsets import GROUP_KEY, GroupOffset, offset_of_any_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


SOURCE_NAME = "groupkafka"


@dataclass(frozen=True)
class Reported:
    """One groupkafka source in the last progress of its query."""

    query: str  # the query's name, or its id
    query_id: str  # the source's id, which its checkpoint keeps
    latest: Mapping[str, Any]  # its ``latestOffset``; empty if there is none
    # When time.monotonic() was 0, by the clock of the wall as the progress came. That may be set meanwhile.
    began_s: float


def is_ours(source: SourceProgress) -> bool:
    return GROUP_KEY in offset_of_any_source(source.endOffset)


def offset(text: str | None) -> GroupOffset:
    """An offset in a source's progress. Before the first batch there is none."""
    return GroupOffset.from_json(offset_json(text))


def offset_json(text: str | None) -> dict[str, Any]:
    """As :func:`offset`; pyspark turns none into "None", and some versions into "null"."""
    return {} if text is None or text == "None" else parsed(text) or {}


def options_of(query: StreamingQuery) -> list[Options]:
    """Options of a query's groupkafka sources, in the order in which its progress names them; one where all are equal.

    Spark shows them in the query's plan and nowhere else. The user does not give them: with the kafka.group.id of
    another query the listener would commit offsets to a group that has not read them, and that group would miss
    records.
    """
    leaves = query._jsq.streamingQuery().analyzedPlan().collectLeaves()
    options: list[Options] = []
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName().lower() == SOURCE_NAME:
            options.append(Options.parse(dict(leaf.extraOptions().asCaseSensitiveMap())))
    return options[:1] if all(each == options[0] for each in options) else options


def why_its_sink_skips(spark: SparkSession, query: StreamingQuery) -> str | None:
    """As :func:`~spark_kafka_group.values.file_sinks.why_batches_are_skipped`; Spark tells the sink as it prints it."""
    execution = query._jsq.streamingQuery()
    sink = FILE_SINK.fullmatch(execution.sink().toString())
    return sink and why_batches_are_skipped(spark, sink[1], execution.resolvedCheckpointRoot())


CLOSE_WITHIN_S = 60.0
SPARK_ERRORS = (Py4JError, PySparkException)  # of a session that is gone


class GroupKafkaListener(StreamingQueryListener):
    """Commits each batch of a session's groupkafka queries soon after it, the last one included.

    The source commits a batch when the next trigger shows that it has succeeded; this listener knows earlier. That
    matters with trigger(once=True), with query.stop() right after a batch, and while triggers are far apart. It reads
    each query's own options, so one listener serves all queries that are started after it. As a block::

        with GroupKafkaListener(spark):
            query = writer.trigger(once=True).start()
            query.awaitTermination()

    Spark's events arrive some time after their batches: leaving the block waits for them. In a program that runs
    on, ``listener = GroupKafkaListener(spark).attach()`` and, at its end, ``listener.close()``.

    A failure to commit is a warning in the log, and never an error of the query: the source commits at its next trigger
    or start. A query that is started with a new checkpoint and the output folder of another one, whose batches Spark's
    file sinks would skip, it stops before the first batch.

    It also keeps the newest numbers of each query that runs: :meth:`metrics`, and for Prometheus, if asked.

    Parameters
    ----------
    spark
        The session in which the queries are started.
    after_ms
        How long to leave a commit to the source. Queries whose triggers come faster are committed by the source alone.
    prometheus_port
        Port on which Prometheus may scrape, from :meth:`attach` to :meth:`close`; 0 takes any free one.
    prometheus_address
        Address it listens on; only this machine can scrape if not given, every host that reaches it with ``0.0.0.0``.
    prometheus_file
        File with the same text, for node_exporter's textfile collector, which reads names that end in ``.prom``.
        Replaced as a whole when there are new numbers, and every 15 seconds; removed by :meth:`close`.

    Attributes
    ----------
    commits, failures
        How many batches this listener has committed, and how many it could not.
    prometheus_port
        The port that Prometheus may scrape; None without one.

    Raises
    ------
    TypeError
        With a session of Spark Connect, which does not show its queries' options.
    MissingPackageError
        When Prometheus is asked for and ``prometheus_client`` is not installed.
    WorkersPythonError
        From :meth:`attach`, when Spark's workers cannot import this package.
    ListeningError
        From :meth:`attach`, when the port is taken.
    OSError
        From :meth:`attach`, when the file cannot be written.
    RuntimeError
        From :meth:`attach`, after :meth:`close`.
    """

    def __init__(
        self,
        spark: SparkSession,
        after_ms: int = 1_000,
        *,
        prometheus_port: int | None = None,
        prometheus_address: str = "127.0.0.1",
        prometheus_file: str | Path | None = None,
    ) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise TypeError(
                "GroupKafkaListener needs the options of queries, which Spark Connect does not show. Without it the "
                "source commits a batch at the query's next trigger, or when the query is started again"
            )
        self._exporter: prometheus.Exporter | None = None
        if prometheus_port is not None or prometheus_file is not None:
            file = None if prometheus_file is None else Path(prometheus_file)
            self._exporter = prometheus.Exporter(
                lambda: list(self.metrics().values()), lambda: (self.commits, self.failures),
                prometheus_port, prometheus_address, file,
            )  # fmt: skip
        self._session = spark
        self._attached = False
        self._changed = threading.Condition()
        # Below: under that lock.
        self._runs: dict[uuid.UUID, list[Options]] = {}  # those that have not ended, with the options of their sources
        self._reported: dict[uuid.UUID, list[Reported]] = {}  # by run, its groupkafka sources
        self._handled: dict[uuid.UUID, dict[str, float | None]] = {}  # by run, the numbers of a RecordProcessor
        self._ended: dict[uuid.UUID, dict[str, EndedBatches]] = {}  # by run and id of the source
        self._refused: dict[uuid.UUID, list[tuple[IO[str], Path]]] = {}  # by run, files for its sources
        self._closed = False
        self._commits = Commits(self._changed, self._runs, after_ms / 1000, self._export)

    @property
    def commits(self) -> int:
        return self._commits.done

    @property
    def failures(self) -> int:
        return self._commits.failed

    @property
    def prometheus_port(self) -> int | None:
        return None if self._exporter is None else self._exporter.port

    # Life

    def attach(self) -> Self:
        """Begin to listen. Harmless when repeated, until :meth:`close`."""
        if self._closed:
            raise RuntimeError("this GroupKafkaListener is closed: make a new one")
        if self._attached:
            return self
        require_found(self._session)
        if self._exporter is not None:
            self._exporter.start()
        try:
            self._session.streams.addListener(self)
        except BaseException:
            if self._exporter is not None:
                self._exporter.close()
            raise
        self._attached = True
        return self

    def metrics(self) -> dict[str, list[GroupMetrics]]:
        """Numbers of the queries that run and have made progress, by the query's name, or its id if it has none.

        Returns
        -------
        dict
            Of each query its groupkafka sources, in the order of ``sources`` in its progress. The numbers are those of
            the query's last trigger that Spark has reported: of every micro-batch, and while there is no data every ten
            seconds (``spark.sql.streaming.noDataProgressEventInterval``). Ages are as of now.
        """
        now_s = time.monotonic()
        with self._changed:
            return {
                reported[0].query: [
                    metrics_of(
                        r.query, r.latest, self._commits.counts_of(run, r.query_id, r.began_s),
                        (r.began_s + now_s) * 1000, self._handled.get(run, {}),
                        self._ended.get(run, {}).get(r.query_id, EndedBatches()),
                    )
                    for r in reported
                ]
                for run, reported in self._reported.items()
            }  # fmt: skip

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *error: object) -> None:
        self.close()

    def flush(self, timeout_s: float = CLOSE_WITHIN_S) -> bool:
        """Commit all waiting batches now, and those of queries that have ended.

        Returns
        -------
        bool
            False when that took longer than `timeout_s`. A commit that failed is not waited for any longer.
        """
        return not self._unflushed(timeout_s)

    def _unflushed(self, timeout_s: float) -> list[str]:
        """As :meth:`flush`; returns texts about the commits that were not done in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            seen = set(self._runs)
        ended = seen - self._running()
        self._commits.hurry()
        with self._changed:
            self._changed.wait_for(lambda: not ended & self._runs.keys(), timeout_s)
            silent = ended & self._runs.keys()
        left = self._commits.settle(max(0.0, deadline - time.monotonic()))
        return [f"the end of run {run} has not been heard of" for run in silent] + [str(batch) for batch in left]

    def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """:meth:`flush`, then stop listening: queries that still run are committed by the source alone.

        Harmless when repeated, and before :meth:`attach`.
        """
        if self._closed:
            return
        left = self._unflushed(timeout_s)
        if left:
            log.warning(
                "not committed within %s s: %s. The sources commit at their next trigger or start",
                timeout_s, "; ".join(left),
            )  # fmt: skip
        if self._attached:
            try:
                self._session.streams.removeListener(self)
            except SPARK_ERRORS as error:
                log.info("the Spark session is gone: %s", error)
        with self._changed:
            self._closed = True
            self._reported.clear()
        self._commits.close(timeout_s)
        if self._exporter is not None:
            self._exporter.close()

    def _running(self) -> set[uuid.UUID]:
        """Runs that have not ended: their QueryTerminatedEvent is not on its way."""
        try:
            return {uuid.UUID(str(query.runId)) for query in self._session.streams.active}
        except SPARK_ERRORS as error:
            log.info("the Spark session is gone, and its last events with it: %s", error)
            with self._changed:
                return set(self._runs)

    # Events, in Spark's threads

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self._follow(event.id, event.runId)
        self._refuse_output_of_another(event.id, event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        sources = [source for source in progress.sources if is_ours(source)]
        if not sources:
            return
        observed = progress.observedMetrics.get(OBSERVED)
        if observed is not None:
            with self._changed:
                self._handled[progress.runId] = handled(self._handled.get(progress.runId, {}), observed.asDict())
        self._count(progress, sources)
        self._report(progress, sources)
        with self._changed:
            known = progress.runId in self._runs
        if not known:  # it was started before this listener
            self._follow(progress.id, progress.runId)
        with self._changed:
            options = self._runs.get(progress.runId, [])
        if len(options) == 1:
            options = options * len(sources)
        if len(options) != len(sources):
            log.warning("query %s: batch %d: not committed before the next trigger", progress.id, progress.batchId)
            return
        for source, own in zip(sources, options, strict=True):
            self._note(progress, source, own)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Without new data Spark shows progress only in the query itself."""
        try:
            query = self._session.streams.get(str(event.id))
            progress = None if query is None else query.lastProgress
        except SPARK_ERRORS as error:
            log.info("query %s: its progress cannot be read: %s", event.id, error)
            return
        if progress is not None and progress.runId == event.runId:
            sources = [source for source in progress.sources if is_ours(source)]
            if sources:
                self._report(progress, sources)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._commits.hurry(event.runId)  # before flush() sees that the run has ended
        with self._changed:
            self._runs.pop(event.runId, None)
            self._reported.pop(event.runId, None)
            self._handled.pop(event.runId, None)
            self._ended.pop(event.runId, None)
            refused = self._refused.pop(event.runId, [])
            self._commits.forget(event.runId)
            self._changed.notify_all()
        for file, path in refused:
            remove(file, path)
        self._export()

    def _count(self, progress: StreamingQueryProgress, sources: Sequence[SourceProgress]) -> None:
        """Count a micro-batch that has ended."""
        with self._changed:
            ended = self._ended.setdefault(progress.runId, {})
            for source in sources:
                query_id = _query_id(source)
                before = ended.get(query_id, EndedBatches())
                ended[query_id] = before.then(source.numInputRows, progress.batchDuration, progress.observedMetrics)

    def _report(self, progress: StreamingQueryProgress, sources: Sequence[SourceProgress]) -> None:
        query = progress.name or str(progress.id)
        began_s = time.time() - time.monotonic()
        reported = [Reported(query, _query_id(source), offset_json(source.latestOffset), began_s) for source in sources]
        with self._changed:
            if not self._closed:
                self._reported[progress.runId] = reported
        self._export()

    def _export(self) -> None:
        if self._exporter is not None:
            self._exporter.changed()

    def _follow(self, spark_query_id: uuid.UUID, run_id: uuid.UUID) -> None:
        try:
            query = self._session.streams.get(str(spark_query_id))
            options = [] if query is None else options_of(query)
        except (*SPARK_ERRORS, GroupKafkaError) as error:
            log.warning(
                "query %s: its options cannot be read, so its commits are left to the source: %s", spark_query_id, error
            )
            options = []
        with self._changed:
            self._runs[run_id] = options

    def _refuse_output_of_another(self, spark_query_id: uuid.UUID, run_id: uuid.UUID) -> None:
        """Have the sources stop a query whose file sink would skip its next batch. Spark waits for this."""
        with self._changed:
            sources = self._runs.get(run_id, [])
        try:
            query = self._session.streams.get(str(spark_query_id)) if sources else None
            problem = None if query is None else why_its_sink_skips(self._session, query)
        except SPARK_ERRORS as error:
            log.warning("query %s: whether its sink skips batches cannot be seen: %s", spark_query_id, error)
            return
        if problem is not None:
            directory = Path(SparkFiles.getRootDirectory())
            files = [refuse(directory, source.source_key, problem) for source in sources]
            with self._changed:
                self._refused[run_id] = files

    def _note(self, progress: StreamingQueryProgress, source: SourceProgress, options: Options) -> None:
        try:
            end = offset(source.endOffset)
            # Without new data, the end is that of an earlier batch, and "from" says how that one began.
            ranges = end.ranges(offset(source.startOffset)) if source.startOffset != source.endOffset else []
        except GroupKafkaError as error:
            log.warning("query %s: batch %d: %s", progress.id, progress.batchId, error)
            return
        if ranges and options.group.transactional_id is None:  # else the sink has committed them
            self._commits.put(progress.runId, Succeeded(options, end, tuple(ranges)))


def _query_id(source: SourceProgress) -> str:
    query_id: str = offset_json(source.endOffset)[GROUP_KEY].get("reader", "")
    return query_id
