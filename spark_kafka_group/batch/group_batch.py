"""A batch read that commits its end offsets if, and only if, the work on its rows succeeds."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_group.errors import CommitError, GroupKafkaError, MembershipLostError, OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.bounds import fix_ranges
from spark_kafka_group.options.checks import check_for_batch
from spark_kafka_group.spark.installation import require_found
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.values.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_kafka_group.driver.hooks import Hooks
    from spark_kafka_group.wire import GroupClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupBatch:
    """A bounded read as a member of the group.

    Attributes
    ----------
    df
        The records; every action on it reads the same ones.
    ranges
        The ranges of this member's partitions, empty ranges included.
    generation
        Generation of the group it reads, and will commit, under.
    """

    df: DataFrame
    ranges: tuple[OffsetRange, ...]
    generation: int

    @property
    def records(self) -> int:
        """Number of offsets in the ranges; compaction and transactions leave gaps, so rows may be fewer."""
        return sum(r.size for r in self.ranges)


@contextlib.contextmanager
def group_batch(spark: SparkSession, options: Mapping[str, str], *, progress: bool = False) -> Iterator[GroupBatch]:
    """Join the group, read from its committed offsets to now, and commit when the block ends without an error.

    ::

        options = {"kafka.bootstrap.servers": ..., "kafka.group.id": "billing", "subscribe": "orders"}
        with group_batch(spark, options) as batch:
            batch.df.write.parquet(...)

    When the block raises, nothing is committed and the next batch reads the same records again. The driver is a member
    of the group for the time of the block, so that other members read other partitions.

    Parameters
    ----------
    options
        Those of a batch read; kafka.group.id is required.
    progress
        Draw a bar with rows, rate and the time to the end, in a notebook or a terminal.

    Raises
    ------
    OptionError
        Before any network call when an option is wrong.
    WorkersPythonError
        Before any network call when Spark's workers cannot import this package.
    NoOffsetForPartitionError, MembershipError, BrokerError
        On entering the block.
    CommitError
        On leaving it: the work is done, and its records will be read again.
    """
    try:
        with _batch_of_group(spark, options, progress) as batch:
            yield batch
    except GroupKafkaError as error:
        raise error from None  # its text has what its causes say


@contextlib.contextmanager
def _batch_of_group(spark: SparkSession, options: Mapping[str, str], progress: bool) -> Iterator[GroupBatch]:
    # Importing kafka-python takes a while, and every Python worker imports this package.
    from spark_kafka_group.assignors import resolve
    from spark_kafka_group.driver.batch_read import batch_ranges, check_named, starting
    from spark_kafka_group.driver.hooks import Hooks
    from spark_kafka_group.driver.membership.member_protocol import others_in_group
    from spark_kafka_group.driver.reporting.query_metrics import Metrics
    from spark_kafka_group.wire import GroupClient

    parsed = Options.parse(options)
    group_id = _checked(parsed)
    require_found(spark)
    hooks = Hooks(parsed, Metrics())
    client = GroupClient(parsed, group_id, parsed.group.instance_id, resolve(parsed.group.assignment_strategy))
    try:
        check_named(parsed, client.partitions(parsed.reading.subscription))
        client.subscribe(parsed.reading.subscription)
        generation = client.join_first(client.join)
        # Other members go on from this batch's start and commits.
        others = () if starting(parsed).group else others_in_group(client, generation, parsed.group.instance_id)
        committed = client.committed(generation.assignment) if starting(parsed).group or others else {}
        ranges, moved = batch_ranges(parsed, client, set(generation.assignment), committed, others)
        epochs = client.leader_epochs([r.tp for r in ranges])
        log.info("group %s: generation %d: batch of %s", group_id, generation.id, " ".join(map(str, ranges)))
        batch = GroupBatch(_rows(spark, options, parsed, ranges), tuple(ranges), generation.id)
        with _bar(spark, group_id, batch.records) if progress else contextlib.nullcontext():
            yield batch
        # With latest the next batch has to begin at the ends of empty ranges too, or no batch would ever read a record.
        ends = {r.tp: r.end for r in ranges if r.size or r.tp in moved or parsed.reading.auto_offset_reset == "latest"}
        if ends:
            _commit(client, ends, epochs, group_id, generation.id, hooks)
    finally:
        try:
            if parsed.group.instance_id is None:
                client.leave()
        finally:
            client.close()


def _bar(spark: SparkSession, group_id: str, records: int) -> contextlib.AbstractContextManager[None]:
    from spark_kafka_group.live import bar_of_batch

    return bar_of_batch(spark, f"group {group_id}", records)


def _checked(options: Options) -> str:
    """The group's id, if a member of it may read with these options. Raises OptionError."""
    check_for_batch(options)
    if options.group.id is None:
        raise OptionError("group_batch needs kafka.group.id: it commits to that group")
    if options.reading.subscription.manual:
        raise OptionError("group_batch joins the group, so the group assigns: take subscribe, not assign")
    if options.reading.push_down_predicate:
        raise OptionError(
            "pushDownPredicate cannot be used with group_batch: Spark may reuse the ranges that the filters of one "
            "action have narrowed. The next action would lack records, and they would be committed nevertheless"
        )
    return options.group.id


def no_rows(spark: SparkSession, options: Mapping[str, str], parsed: Options) -> DataFrame:
    """A DataFrame with the columns of the source, and no plan of a read."""
    if parsed.values.given():
        return spark.createDataFrame([], spark.read.format("groupkafka").options(**options).load().schema)
    return spark.createDataFrame(arrow_schema(parsed.reading.columns).empty_table())


def _rows(spark: SparkSession, options: Mapping[str, str], parsed: Options, ranges: Sequence[OffsetRange]) -> DataFrame:
    if not ranges:
        return no_rows(spark, options, parsed)
    return spark.read.format("groupkafka").options(**fix_ranges(options, ranges)).load()


def _commit(
    client: GroupClient,
    ends: dict[TopicPartition, int],
    epochs: dict[TopicPartition, int],
    group_id: str,
    generation: int,
    hooks: Hooks,
) -> None:
    try:
        client.commit(ends, commit_metadata(f"batch-{uuid.uuid4().hex}", generation, 0), generation, epochs=epochs)
    except MembershipLostError as error:
        hooks.committed(ends, error)
        raise CommitError(
            f"group {group_id}: the group went on without this batch ({error}), probably because another "
            f"member joined and the batch took longer than kafka.max.poll.interval.ms; nothing was committed, so its "
            f"records will be read again"
        ) from error
    except CommitError as error:
        hooks.committed(ends, error)
        raise
    hooks.committed(ends, None)
    log.info(
        "group %s: generation %d: committed %s",
        group_id, generation, " ".join(f"{t}={o}" for t, o in sorted(ends.items())),
    )  # fmt: skip
