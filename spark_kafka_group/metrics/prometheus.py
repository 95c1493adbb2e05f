"""Numbers of queries as Prometheus text: on a port, in a file for node_exporter's textfile collector, or both."""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import ListeningError, MissingPackageError
from spark_kafka_group.metrics.group_metrics import GroupMetrics
from spark_kafka_group.metrics.metric_table import COUNTER, METRICS, PARTITION_METRICS, Metric
from spark_kafka_group.metrics.scraped_port import ScrapedPort
from spark_kafka_group.text.foreign_text import excerpt

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

log = logging.getLogger(__name__)

PREFIX = "kafka_consumer_"
LABELS = ("group", "query", "source")
PARTITION_LABELS = (*LABELS, "topic", "partition")
OBSERVATION, OBSERVED = "groupkafka_observed", ("group", "query", "observation", "metric")
WRITE_EVERY_S = 15.0  # how old the file becomes while nothing happens: ages in it are as of then
AT_MOST_EVERY_S = 1.0
HIGHEST_PORT = 65_535
IN_USE = (
    "it is in use: close() the earlier GroupKafkaListener if this program has one, as when a notebook's "
    "cell is run again, or take another port (0 for any free one)"
)
PIP = "pip install prometheus_client"


def prometheus_name(name: str) -> str:
    """A metric's name as Prometheus allows it: ``records-lag`` is ``kafka_consumer_records_lag``."""
    return PREFIX + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("-", "_")


class Exporter:
    """Shows numbers of queries, and the listener's commits, from :meth:`start` to :meth:`close`.

    `commits`: as `queries`: commits of the listener that succeeded and that failed, of all queries, ended ones
    included.
    Raises MissingPackageError with advice, when prometheus_client is not installed. Raises ValueError when the port is
    not valid.
    """

    def __init__(
        self,
        queries: Callable[[], Sequence[Sequence[GroupMetrics]]],  # called at each scrape, from several threads
        commits: Callable[[], tuple[int, int]],
        port: int | None,  # the port to listen on; 0 for any free one, None for none
        address: str,  # the address to listen on
        file: Path | None,  # the file to write; None for none
    ) -> None:
        try:
            import prometheus_client  # noqa: F401
        except ImportError as error:
            wanted = f"prometheus_file={file}" if port is None else f"prometheus_port={port}"
            raise MissingPackageError(f"{wanted} needs prometheus_client: {PIP}") from error
        if port is not None and (not isinstance(port, int) or not 0 <= port <= HIGHEST_PORT):
            raise ValueError(f"prometheus_port ({excerpt(port)}) must be a whole number between 0 and {HIGHEST_PORT}")
        self._queries = queries
        self._commits = commits
        self._port = port
        self._address = address
        self._file = file
        self._server: ScrapedPort | None = None
        self._writing: threading.Thread | None = None
        self._changed = threading.Event()
        self._closed = threading.Event()

    @property
    def port(self) -> int | None:
        """The port listened on; None when there is none, and before :meth:`start` and after :meth:`close`."""
        return None if self._server is None else self._server.port

    def start(self) -> None:
        """Listen and write. Raises ListeningError when the port is taken, OSError when the file cannot be written."""
        from prometheus_client import CollectorRegistry, MetricsHandler, write_to_textfile

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        if self._file is not None:
            write_to_textfile(str(self._file), registry)
        if self._port is not None:
            try:
                self._server = ScrapedPort(self._address, self._port, MetricsHandler.factory(registry))
            except UnicodeError:
                self._remove_file()
                raise ListeningError(
                    f"prometheus_address ({excerpt(self._address)}) is no address", errno.EINVAL
                ) from None
            except OSError as error:
                self._remove_file()
                way_out = IN_USE if error.errno == errno.EADDRINUSE else str(error)
                raise ListeningError(
                    f"prometheus_port={self._port} on {self._address}: {way_out}", error.errno
                ) from None
            self._server.start()
        if self._file is not None:
            self._writing = threading.Thread(
                target=self._write, args=(registry,), name="groupkafka-prometheus", daemon=True
            )
            self._writing.start()

    def changed(self) -> None:
        """New numbers have come: write the file soon."""
        self._changed.set()

    def close(self) -> None:
        """Free the port, end connections, and remove the file, whose numbers would be old. Harmless when repeated."""
        self._closed.set()
        self._changed.set()
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if self._writing is not None:
            self._writing.join()
        self._remove_file()

    def collect(self) -> Iterator[Family]:
        """The numbers of this moment, as prometheus_client asks for them."""
        queries = [(query, str(number)) for sources in self._queries() for number, query in enumerate(sources)]
        for metric in METRICS:
            family = _family(metric, LABELS)
            for query, number in queries:
                value = query.values[metric.name]
                if value is not None:
                    family.add_metric((query.group, query.query, number), value)
            yield family
        for metric in PARTITION_METRICS:
            family = _family(metric, PARTITION_LABELS)
            for query, number in queries:
                for tp, values in query.partitions.items():
                    family.add_metric(
                        (query.group, query.query, number, tp.topic, str(tp.partition)), values[metric.name]
                    )
            yield family
        yield from _observed([query for query, number in queries if number == "0"])
        yield from self._listeners()

    def _listeners(self) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily

        names = ("groupkafka_listener_commit", "groupkafka_listener_failed_commit")
        docs = ("Commits that the listener made, of all queries.", "Commits of the listener's that failed.")
        for name, doc, value in zip(names, docs, self._commits(), strict=True):
            yield CounterMetricFamily(name, doc, value=value)

    def _write(self, registry: CollectorRegistry) -> None:
        from prometheus_client import write_to_textfile

        while not self._closed.is_set():
            self._changed.wait(WRITE_EVERY_S)
            self._changed.clear()
            if self._closed.is_set():
                return
            try:
                write_to_textfile(str(self._file), registry)  # beside it, then renamed
            except OSError as error:
                log.warning("prometheus_file=%s cannot be written, so its metrics are old: %s", self._file, error)
            self._closed.wait(AT_MOST_EVERY_S)

    def _remove_file(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _observed(queries: Sequence[GroupMetrics]) -> Iterator[Family]:
    """What queries observe: of all sources of a query, so one of them stands for all."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    last = GaugeMetricFamily(f"{OBSERVATION}_last", "A number of observe(), in the last micro-batch.", labels=OBSERVED)
    total = CounterMetricFamily(OBSERVATION, "A number of observe(), added up over micro-batches.", labels=OBSERVED)
    for query in queries:
        for names, (number, added_up) in query.batches.observed.items():
            last.add_metric((query.group, query.query, *names), number)
            total.add_metric((query.group, query.query, *names), added_up)
    yield from (last, total)


def _family(metric: Metric, labels: tuple[str, ...]) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
    doc = metric.doc.replace("`", "")
    return kind(prometheus_name(metric.name), f"{doc} Unit: {metric.unit}.", labels=labels)
