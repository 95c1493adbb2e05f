"""Exactly-once writes of queries that a program has stopped: what they have left open is aborted.

Spark calls for that itself, but not where it stops a query that waits for the commit (`deciding.abort_left`). The
source of the query does it where it commits its offsets with the write; this is for the queries with other sources.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_group.values.files import PLANS_PREFIX

ABORTED_WITHIN_S = 5.0
"""How long the end of a program may wait for brokers."""


def planned_writes(folder: Path) -> Iterator[tuple[str, int]]:
    """Of the exactly-once writes that were planned, and not ended: kafka.transactional.id, and the timeout in
    milliseconds of their transactions.

    Parameters
    ----------
    folder
        Shared by the processes of the Spark application.
    """
    for path in sorted(folder.glob(f"{PLANS_PREFIX}*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads(path.read_bytes())
            if not value["ended"]:
                yield value["prefix"], value["timeout_ms"]


def abort_planned(folder: Path, queries: Iterable[StreamingQuery]) -> None:
    """Abort what these queries have left open, now that they have stopped; what cannot be aborted stays planned."""
    until = time.monotonic() + ABORTED_WITHIN_S
    for query in queries:
        left_s = until - time.monotonic()
        if left_s > 0 and any(planned_writes(folder)):
            with contextlib.suppress(Exception):  # of Spark's, by its inner names, and of brokers': see planned_writes
                _abort(folder, _written_with(query), int(left_s * 1000))


def _written_with(query: StreamingQuery) -> dict[str, str]:
    """The options that its sink has; empty where Spark has not begun a batch.

    Spark tells them to no one but the sink, so they are taken from the plan that it repeats for each batch.
    """
    execution: Any = query._jsq.streamingQuery()
    if execution.lastExecution() is None or SparkContext._jvm is None:
        return {}  # before that, to ask for the plan would make it
    options = execution.logicalPlan().writeOptions()
    return dict(SparkContext._jvm.scala.jdk.javaapi.CollectionConverters.asJava(options))


def _abort(folder: Path, written_with: dict[str, str], limit_ms: int) -> None:
    from spark_kafka_group.options.sink_options import SinkOptions
    from spark_kafka_group.transactions import last_batch
    from spark_kafka_group.transactions.deciding import abort_left

    options = SinkOptions.parse(written_with)
    write = replace(options.transactions, limit_ms=limit_ms)
    planned = last_batch.planned_last(write, folder) if options.is_exactly_once else None
    if planned is not None:
        abort_left(write, planned, lambda: last_batch.planned_last(write, folder), folder)
