"""Options of reading: topics, starts and ends, micro-batches, tasks and columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from spark_kafka_group.options import parsing
from spark_kafka_group.options.bounds import Bound
from spark_kafka_group.options.java_pattern import in_python
from spark_kafka_group.options.option import Section, boolean, choice, integer, names, option
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.values.offsets import EARLIEST, TopicPartition
from spark_kafka_group.values.retry_topics import dead_letter_topic, delay_of, main_topic, retry_topic


@dataclass(frozen=True)
class Subscription:
    """One of three kinds of subscription; the first two take part in group management."""

    topics: tuple[str, ...] = ()  # topics by name (`subscribe`)
    # A regular expression of Java to find in topics' names (`subscribePattern`). Internal topics never match, nor does
    # that of the sink's decisions: with an exactly-once sink each micro-batch would write a record for the next one.
    pattern: str | None = None
    # Partitions by name (`assign`): without membership, so no other member gets or takes them
    partitions: frozenset[TopicPartition] = frozenset()
    # Delays of retry topics (`retryTopics`) that are read too: those of `topics` are among these, and those of topics
    # that the pattern finds need not be found by it. Dead-letter topics of its matches are not read then.
    delays_ms: tuple[int, ...] = ()

    @property
    def manual(self) -> bool:
        """Whether the caller, and not the group, says which partitions are read."""
        return bool(self.partitions)

    def includes(self, topic: str) -> bool:
        """Whether `topic` is, or would be, read."""
        if self.pattern is not None:
            return self._is_found_with_retries(topic) if self.delays_ms else self._is_found(topic)
        return topic in self.topics or any(tp.topic == topic for tp in self.partitions)

    def _is_found(self, topic: str) -> bool:
        return self.pattern is not None and topic != DECISION_TOPIC and bool(in_python(self.pattern).search(topic))

    def _is_found_with_retries(self, topic: str) -> bool:
        given_up = topic.removesuffix(dead_letter_topic(""))
        if given_up != topic and self._is_found(given_up):
            return False
        retried = main_topic(topic, self.delays_ms)
        has_retries = retried != topic and delay_of(retried, self.delays_ms) is None
        return self._is_found(topic) or (has_retries and self._is_found(retried))

    def has(self, tp: TopicPartition) -> bool:
        """Whether `tp` is, or would be, read."""
        return tp in self.partitions if self.manual else self.includes(tp.topic)

    def named(self) -> set[str]:
        """Topics that were named one by one, so that each is expected to exist."""
        return set(self.topics) | {tp.topic for tp in self.partitions}

    def missing(self, existing: Collection[TopicPartition]) -> list[str]:
        """Named topics, or named partitions, that do not exist."""
        if self.manual:
            return sorted(map(str, self.partitions - set(existing)))
        return sorted(set(self.topics) - {tp.topic for tp in existing})

    def missing_topics(self, existing: Collection[TopicPartition]) -> list[str]:
        """Topics of `subscribe` that do not exist. Retry topics are made for the first record that fails."""
        if self.manual:
            return []
        return [topic for topic in self.missing(existing) if main_topic(topic, self.delays_ms) == topic]


def no_topics(topics: Collection[str]) -> str:
    """An error's text about topics of `subscribe` that a read of all records up to now would miss."""
    return f"subscribe names {', '.join(topics)}, which the cluster does not have: create it, or correct its name"


INTERCEPTOR_METHODS = ("on_consume", "on_commit")
FAIL, SKIP, DEAD_LETTER = "fail", "skip", "deadLetter"
ONE_OF_THREE = "one of `subscribe`, `subscribePattern` and `assign`"


@dataclass(frozen=True, repr=False)
class Reading(Section):
    """Topics, starts and ends, limits, columns, and the handling of missing and corrupt records."""

    topics: tuple[str, ...] = option(
        "subscribe", parsing.topics, "Topics to read, comma-separated.",
        default=(), shown=ONE_OF_THREE,
    )  # fmt: skip
    topic_pattern: str | None = option(
        "subscribePattern", parsing.pattern,
        "A regular expression of Java. The query reads each topic whose name matches it anywhere, also topics made "
        "later, but no internal topic, nor `__groupkafka_decisions`. `^` and `$` match whole names.",
        shown=ONE_OF_THREE,
    )  # fmt: skip
    assigned: frozenset[TopicPartition] = option(
        "assign", parsing.partitions,
        'Partitions, `{"orders": [0, 1]}`, read [without '
        "membership](sharing-a-group.md#partitions-without-membership). The source still commits offsets, to a group "
        "that no other program may use.",
        default=frozenset(), shown=ONE_OF_THREE,
    )  # fmt: skip
    retry_delays_ms: tuple[int, ...] = option(
        "retryTopics", parsing.delays_ms,
        "Streams only. Delays in milliseconds, such as `60000,600000`. With each topic the query reads its retry "
        "topics, `orders-retry-60000` and `orders-retry-600000`, and each of their records after that delay. See "
        "[Retry topics](record-by-record.md#retry-topics).",
        default=(), shown="none",
    )  # fmt: skip
    starting_timestamp: Bound | None = option(
        "startingTimestamp", parsing.timestamp("startingTimestamp"),
        "Where a new query starts: at the first record with this timestamp or a later one, in milliseconds since the "
        "epoch. Goes before `startingOffsetsByTimestamp`, which goes before `startingOffsets`.",
        shown="none",
    )  # fmt: skip
    starting_offsets_by_timestamp: Bound | None = option(
        "startingOffsetsByTimestamp", parsing.timestamps("startingOffsetsByTimestamp"),
        'As `startingTimestamp`, for each partition, `{"orders": {"0": 1700000000000, "1": 1700000060000}}`, or for '
        'each topic, `{"orders": 1700000000000}`.',
        shown="none",
    )  # fmt: skip
    starting_by_timestamp_strategy: str = option(
        "startingOffsetsByTimestampStrategy", choice("error", "latest"),
        "What to do in a partition without a record as new as the timestamp: stop with an `error`, or start at "
        "`latest`.",
        default="error",
    )  # fmt: skip
    starting_offsets: Bound | None = option(
        "startingOffsets", parsing.offsets("startingOffsets", parsing.GROUP, "earliest", "latest"),
        "Where a new query starts: `group` (the group's committed offsets, or else `kafka.auto.offset.reset`), "
        '`earliest`, `latest`, or JSON per partition or topic, `{"orders": {"0": 23, "1": -2}, "bills": "latest"}` '
        "(-2 earliest, -1 latest). See [Where a query starts](guarantees.md#where-a-query-starts).",
        shown="`group`, or `earliest` if a batch read has no `kafka.group.id`",
    )  # fmt: skip
    ending_timestamp: Bound | None = option(
        "endingTimestamp", parsing.timestamp("endingTimestamp"),
        "Where reading ends: before the first record with this timestamp or a later one. Goes before "
        "`endingOffsetsByTimestamp`, which goes before `endingOffsets`. Without such a record a batch read ends at "
        "latest, and a stream goes on until it comes.",
        shown="none",
    )  # fmt: skip
    ending_offsets_by_timestamp: Bound | None = option(
        "endingOffsetsByTimestamp", parsing.timestamps("endingOffsetsByTimestamp"),
        "As `endingTimestamp`, for each partition or topic.", shown="none",
    )  # fmt: skip
    ending_offsets: Bound | None = option(
        "endingOffsets",
        parsing.offsets("endingOffsets", "latest", refused={EARLIEST: "reading cannot end at earliest (-2)"}),
        "Where reading ends, exclusive: `latest` or JSON per partition or topic (-1 latest). A stream makes no "
        "progress from there on, and ends with `trigger(availableNow=True)`. For a stream `latest` is the end of the "
        "logs when it starts.",
        shown="`latest` on a batch read; a stream has no end",
    )  # fmt: skip
    auto_offset_reset: str | None = option(
        "kafka.auto.offset.reset", choice("latest", "earliest", "none"),
        "Where `startingOffsets=group` starts a partition without a committed offset. `none` is an error that names "
        "the partitions.",
        shown="`latest` on a stream, `earliest` on a batch read",
    )  # fmt: skip
    on_offset_conflict: str = option(
        "onOffsetConflict", choice("auto", "checkpoint", "group", "fail"),
        "Streams only. Which offset is right when a query starts again, and checkpoint and group differ: `auto` (it "
        "depends on [who wrote the group's](guarantees.md#where-a-query-starts)), `checkpoint`, `group`, or `fail`.",
        default="auto",
    )  # fmt: skip
    paused: frozenset[TopicPartition] = option(
        "pausePartitions", parsing.partitions,
        'Streams only. Partitions that the query does not read for now, `{"orders": [0, 1]}`. See [Pausing '
        "partitions](sharing-a-group.md#pausing-partitions).",
        default=frozenset(), shown="none",
    )  # fmt: skip
    pause_file: str | None = option(
        "pauseFile", parsing.writable_file,
        "Streams only. A file on the driver with JSON as in `pausePartitions`, which you may change while the query "
        "runs.",
        shown="none",
    )  # fmt: skip
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger", integer(1, 2**63 - 1),
        "Most offsets in one micro-batch. Partitions share them in proportion to their backlog, and none starves.",
        shown="no limit",
    )  # fmt: skip
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger", integer(1, 2**63 - 1),
        "A micro-batch waits for this many offsets, at most until `maxTriggerDelay` after the micro-batch before. "
        "`trigger(availableNow=True)` reads the rest anyway.",
        shown="none",
    )  # fmt: skip
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger", parsing.byte_count,
        "About the most bytes in one micro-batch, `64m` or `10g`, as brokers store them: compressed. See [Bytes in a "
        "micro-batch](performance.md#bytes-in-a-micro-batch).",
        shown="no limit",
    )  # fmt: skip
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", parsing.duration_ms,
        "How long `minOffsetsPerTrigger` may hold data back, such as `200ms`, `30s` or `15m`.", default=900_000,
        shown="`15m`",
    )  # fmt: skip
    fail_on_data_loss: bool = option(
        "failOnDataLoss", boolean,
        "Whether a query stops if records are gone that it has not read (retention, a deleted topic). With `false` it "
        "warns and goes on with the records that are there. See [Records that are "
        "gone](guarantees.md#records-that-are-gone).",
        default=True,
    )  # fmt: skip
    on_corrupt_record: str = option(
        "onCorruptRecord", choice(FAIL, SKIP, DEAD_LETTER),
        "What to do with records that cannot be read (a wrong checksum, an impossible length, a codec that fails): "
        "`fail`, `skip` (leave them out, with a warning in the executor's log), or `deadLetter` (also send their "
        "bytes to `<topic>-dlt`, which must exist). See [Damaged records](damaged-records.md).",
        default=FAIL,
    )  # fmt: skip
    selected_columns: tuple[str, ...] = option(
        "columns", parsing.columns,
        "The columns to read, comma-separated, in this order: some of `key`, `value`, `topic`, `partition`, `offset`, "
        "`timestamp`, `timestampType` and `headers`. The source neither decodes nor sends the others. A `select` does "
        "not do that. Of [typed columns](values.md) also single fields, `value.id`, and the bytes, `rawValue` and "
        "`rawKey`.",
        default=(), shown="all but `headers`",
    )  # fmt: skip
    include_headers: bool = option("includeHeaders", boolean, "Adds the `headers` column.", default=False)
    interceptors: tuple[str, ...] = option(
        "interceptors", names,
        "`module:Class`, comma-separated, called for record batches on executors or for commits on the driver: see "
        "[Hooks](sharing-a-group.md#hooks).",
        default=(), shown="none",
    )  # fmt: skip
    min_partitions: int | None = option(
        "minPartitions", integer(1),
        "Least number of tasks: the source cuts large ranges of offsets into equal parts, like Spark's own. Without "
        "it `recordsPerTask` decides.",
        shown="none",
    )  # fmt: skip
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", integer(1, 2**63 - 1),
        "Most offsets in one task: the source cuts larger ranges into equal parts, like Spark's own.",
        shown="none",
    )  # fmt: skip
    records_per_task: int = option(
        "recordsPerTask", integer(1, 2**63 - 1),
        "How many offsets a task should have at least. One task reads a small micro-batch, because the start of a "
        "task takes as long as reading many records.",
        default=200_000,
    )  # fmt: skip
    max_tasks: int | None = option(
        "maxTasks", integer(1), "Most tasks of one micro-batch or batch read.", shown="number of partitions"
    )
    push_down_predicate: bool = option(
        "pushDownPredicate", boolean,
        "Batch reads only. Whether filters on `topic`, `partition`, `offset` and `timestamp` narrow the read. It "
        "needs a setting of Spark, and `read_where` does not: see [Spark's own filter "
        "push-down](batch-and-exploring.md#sparks-own-filter-push-down).",
        default=False,
    )  # fmt: skip
    decoder: str = option(
        "decoder", choice("auto", "c", "python"),
        "`c` is compiled. `python` gives the same rows slowly. `auto` takes `c` if it was built.",
        default="auto",
    )  # fmt: skip
    event_log: str | None = option(
        "eventLog", parsing.writable_file,
        "Streams only. A file on the driver to which the query appends every assignment, planned batch and commit, a "
        "line of JSON each. `python -m spark_kafka_group verify` checks them, `plot` draws them.",
        shown="none",
    )  # fmt: skip

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a DataFrame, in order."""
        from spark_kafka_group.values.schema import USUAL  # with pyarrow, which few tools need

        more = ("headers",) if self.include_headers else ()
        selected = [name.partition(".")[0] for name in self.selected_columns or USUAL]
        return tuple(dict.fromkeys((*selected, *more)))

    def fields_of(self, column: str) -> tuple[str, ...] | None:
        """The fields of a typed column that ``columns`` names, dotted; None where it has all."""
        if not self.selected_columns or column in self.selected_columns:
            return None
        return tuple(name.partition(".")[2] for name in self.selected_columns if name.startswith(f"{column}."))

    @property
    def subscription(self) -> Subscription:
        """The subscription, by any of the three options, retry topics included."""
        delays = self.retry_delays_ms
        of = [topic for topic in self.topics if delay_of(topic, delays) is None] if delays else []
        topics = dict.fromkeys((*self.topics, *(retry_topic(topic, delay) for topic in of for delay in delays)))
        return Subscription(tuple(topics), self.topic_pattern, self.assigned, delays)

    @property
    def starting(self) -> Bound | None:
        """Where a new query starts, whichever of the three options said it."""
        return self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets

    @property
    def ending(self) -> Bound | None:
        """Where reading ends, whichever of the three options said it."""
        return self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets
