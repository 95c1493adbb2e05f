"""Progress and options of groupkafka sources, read from Spark's events and plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_kafka_group.options import Options
from spark_kafka_group.text.json_text import parsed
from spark_kafka_group.values.file_sinks import FILE_SINK, why_batches_are_skipped
from spark_kafka_group.values.offsets import GROUP_KEY, GroupOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import SourceProgress
    from pyspark.sql.streaming.query import StreamingQuery

SOURCE_NAME = "groupkafka"


@dataclass(frozen=True)
class Reported:
    """One groupkafka source in the last progress of its query.

    Attributes
    ----------
    query
        The query's name, or its id.
    query_id
        The source's id, which its checkpoint keeps.
    latest
        Its ``latestOffset``; empty if there is none.
    began_s
        When time.monotonic() was 0, by the clock of the wall as the progress came. That may be set meanwhile.
    """

    query: str
    query_id: str
    latest: Mapping[str, Any]
    began_s: float


def is_ours(source: SourceProgress) -> bool:
    """Whether a source is a groupkafka source."""
    try:
        end = parsed(source.endOffset)
    except (ValueError, TypeError):
        return False
    return isinstance(end, dict) and GROUP_KEY in end


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
