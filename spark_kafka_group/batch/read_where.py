"""A batch read of the rows that pass a condition. It reads few other rows."""

from __future__ import annotations

import logging
import pickle
import re
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spark_kafka_group.batch.group_batch import no_rows
from spark_kafka_group.options import Options
from spark_kafka_group.options.bounds import fix_ranges
from spark_kafka_group.options.checks import check_for_batch
from spark_kafka_group.spark.installation import require_found
from spark_kafka_group.values.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
OWN_ERRORS = "spark_kafka_group.errors."

_planning = threading.Lock()  # held while this module overrides a setting of the session, which all its threads share


def read_where(spark: SparkSession, options: Mapping[str, str], condition: str | Column) -> DataFrame:
    """As ``spark.read.format("groupkafka").options(**options).load().where(condition)``, in less time.

    Comparisons of ``topic``, ``partition`` and ``offset`` with constants, and lower bounds of ``timestamp``, decide
    which offsets are read::

        read_where(spark, options, "topic = 'orders' and timestamp >= current_timestamp() - interval 10 seconds")

    The offsets are looked up once, now: every action on the DataFrame, and on DataFrames made of it, reads the same.

    Parameters
    ----------
    options
        Those of a batch read.
    condition
        As of ``DataFrame.where``. Spark evaluates the parts that cannot narrow the read on the rows.

    Raises
    ------
    OptionError
        Before any network call.
    WorkersPythonError
        Before any network call when Spark's workers cannot import this package.
    pyspark.errors.AnalysisException
        When the condition is wrong, or brokers cannot be asked; the message holds the source's own error.
    """
    parsed = Options.parse(options)
    check_for_batch(parsed)
    require_found(spark)
    # Spark keeps the narrowed ranges of one query with the DataFrame that load() made, and reuses them for the next
    # query. So callers never get a DataFrame that Spark itself has narrowed.
    kept = {name: value for name, value in options.items() if name.lower() != "pushdownpredicate"}
    ranges = _planned_ranges(spark, kept, condition) if _can_tell(spark, parsed) else None
    if ranges is not None:
        log.info("where %s: reads %s", condition, " ".join(map(str, ranges)) or "nothing")
        if not ranges:
            return no_rows(spark, kept, parsed).where(condition)
        kept = fix_ranges(kept, ranges)
    return spark.read.format("groupkafka").options(**kept).load().where(condition)


def _can_tell(spark: SparkSession, options: Options) -> bool:
    """Whether Spark shows its plan for a condition, and the condition is about the records as they were read."""
    if options.reading.interceptors:
        log.info("the condition does not narrow the read: interceptors may change its columns")
    elif not hasattr(spark, "_jsparkSession"):
        log.info("the condition does not narrow the read: Spark Connect does not show how a query is planned")
    else:
        return True
    return False


def _planned_ranges(
    spark: SparkSession, options: Mapping[str, str], condition: str | Column
) -> list[OffsetRange] | None:
    """The ranges that Spark plans to read for `condition`; None where its plan does not show them."""
    read = spark.read.format("groupkafka").options(**options, pushDownPredicate="true")
    with _planning:
        before = str(spark.conf.get(FILTER_PUSHDOWN))
        spark.conf.set(FILTER_PUSHDOWN, "true")
        try:
            rows = read.load().where(condition)
            plan = _plan(rows, condition)
            if plan is None:
                return None
            leaves = list(_elements(plan.collectLeaves()))
            kinds = [leaf.getClass().getSimpleName() for leaf in leaves]
            if kinds == ["LocalTableScanExec"]:  # the condition is never true
                return []
            if kinds != ["BatchScanExec"]:  # with a subquery it is planned while it runs
                return None
            tasks = [pickle.loads(task.pickedPartition()) for task in _elements(leaves[0].inputPartitions())]
        finally:
            spark.conf.set(FILTER_PUSHDOWN, before)
    return _joined(sorted(r for task in tasks for r in task.ranges))


def _plan(rows: DataFrame, condition: str | Column) -> Any:
    """How Spark runs a query; None where it cannot hand the condition to a Python source, but can evaluate it."""
    from pyspark.errors import AnalysisException

    try:
        return rows._jdf.queryExecution().executedPlan()
    except AnalysisException as error:
        # Spark's Python half may fail where its other half does not, for example at times beyond Python's datetime. And
        # Spark parses names of columns again: with enforceReservedKeywords offset is a syntax error then.
        if error.getCondition() not in ("PYTHON_DATA_SOURCE_ERROR", "PARSE_SYNTAX_ERROR") or OWN_ERRORS in str(error):
            raise
        message = [line for line in str(error).splitlines() if re.search("(?i)error", line)]
        log.warning("the condition (%s) does not narrow the read, as Spark cannot plan it: %s", condition, message[-1])
        return None


def _elements(seq: Any) -> Iterator[Any]:
    """Elements of Scala's Seq."""
    return (seq.apply(i) for i in range(seq.size()))


def _joined(ranges: list[OffsetRange]) -> list[OffsetRange]:
    """The parts of a partition that minPartitions cut, as one."""
    joined: list[OffsetRange] = []
    for r in ranges:
        if joined and joined[-1].tp == r.tp:
            joined[-1] = OffsetRange(r.tp, joined[-1].start, r.end)
        else:
            joined.append(r)
    return joined
