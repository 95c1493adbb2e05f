"""Filters as less to read: values, and every filter against brute force."""

import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.driver import batch_read
from spark_kafka_group.driver.filters import describe, narrow, understood
from spark_kafka_group.errors import BrokerError
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)
RANGES = [OffsetRange(TopicPartition(topic, p), 0, 100) for topic in ("clicks", "orders") for p in range(2)]


def at(microseconds):
    return EPOCH + timedelta(microseconds=microseconds)


def unasked(times):
    raise AssertionError(f"asked for {times}")


def narrowed(*filters, ranges=RANGES, offsets_at=unasked):
    constraints, left = understood(filters)
    kept = narrow(ranges, constraints, offsets_at)
    return " ".join(f"{r.tp.topic[0]}{r.tp.partition}[{r.start},{r.end})" for r in kept), left


def test_topics_and_partitions_are_dropped_offsets_are_cut_and_nothing_is_left_for_spark():
    filters = [IsNotNull(TOPIC), EqualTo(TOPIC, "orders"), In(PARTITION, [1, 7, None]), GreaterThan(OFFSET, 9)]
    assert narrowed(*filters, LessThanOrEqual(OFFSET, 20)) == ("o1[10,21)", [])
    assert narrowed(StringStartsWith(TOPIC, "ord"), Not(EqualTo(PARTITION, 0)), EqualTo(OFFSET, 7)) == ("o1[7,8)", [])
    assert narrowed(Not(StringContains(TOPIC, "lick")), LessThan(OFFSET, 5))[0] == "o0[0,5) o1[0,5)"
    # Neither true nor false is what SQL says of these.
    assert narrowed(Not(In(PARTITION, [0, None]))) == narrowed(Not(EqualTo(TOPIC, None))) == ("", [])


def test_a_list_of_offsets_is_read_from_its_first_to_its_last_and_spark_picks():
    filters = [EqualTo(PARTITION, 0), In(OFFSET, [30, 10, None])]
    assert narrowed(EqualTo(TOPIC, "orders"), *filters) == ("o0[10,31)", [filters[1]])
    assert narrowed(EqualTo(TOPIC, "orders"), EqualTo(PARTITION, 0), In(OFFSET, [5, 4, 6])) == ("o0[4,7)", [])


def test_a_lower_bound_of_the_timestamp_starts_the_read_and_an_upper_one_does_not_end_it():
    asked = []

    def offsets_at(times):
        asked.append(times)
        return {tp: {0: 40, 1: None}[tp.partition] for tp in times}

    filters = [GreaterThan(TIMESTAMP, at(5_000_000)), LessThan(TIMESTAMP, at(9_000_000))]
    assert narrowed(EqualTo(TOPIC, "orders"), *filters, offsets_at=offsets_at) == ("o0[40,100)", filters)
    assert asked == [{TopicPartition("orders", p): 5001 for p in range(2)}]


@pytest.mark.parametrize(
    ("filters", "first_ms"),
    [
        ([GreaterThanOrEqual(TIMESTAMP, at(5_000_000))], 5000),
        ([GreaterThanOrEqual(TIMESTAMP, at(5_000_001))], 5001),
        ([GreaterThan(TIMESTAMP, at(5_000_999))], 5001),
        ([EqualTo(TIMESTAMP, at(5_000_000))], 5000),
        ([In(TIMESTAMP, [at(9_000_000), None, at(7_000_000)])], 7000),
        ([GreaterThan(TIMESTAMP, datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))))], 3_600_001),
    ],
)
def test_timestamps_are_rounded_to_the_milliseconds_that_records_can_have(filters, first_ms):
    constraints, left = understood(filters)
    assert (constraints.timestamp_ms.low, left, constraints.contradictory) == (first_ms, filters, False)


@pytest.mark.parametrize(
    "filters",
    [
        [LessThan(OFFSET, 5), GreaterThan(OFFSET, 4)],
        [In(OFFSET, [])],
        [EqualTo(OFFSET, None)],
        [IsNull(OFFSET)],
        [GreaterThan(TIMESTAMP, at(2000)), LessThan(TIMESTAMP, at(3000))],
        [EqualTo(TIMESTAMP, at(1_500))],
    ],
)
def test_a_filter_that_no_record_can_pass_takes_no_request(filters):
    nowhere = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    assert batch_read.plan(nowhere, understood(filters)[0]) == []
    assert narrowed(*filters)[0] == ""


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "element", "key"), "x"),
        GreaterThanOrEqual(OFFSET, "5"),
        GreaterThanOrEqual(OFFSET, True),
        GreaterThanOrEqual(OFFSET, 5.5),
        GreaterThanOrEqual(TIMESTAMP, datetime(2024, 1, 1)),
        Not(EqualTo(OFFSET, 5)),
        Not(In(OFFSET, [5])),
        Not(GreaterThan(TIMESTAMP, at(5_000_000))),
        IsNull(TIMESTAMP),
        IsNotNull(TIMESTAMP),
        Not(Not(EqualTo(TOPIC, "t"))),
        StringStartsWith(PARTITION, 1),
        EqualTo(TOPIC, 5),
        Ellipsis,
    ],
    ids=repr,
)
def test_what_is_not_understood_narrows_nothing_and_is_left_to_spark(one):
    assert narrowed(one) == ("c0[0,100) c1[0,100) o0[0,100) o1[0,100)", [one])


def test_brokers_that_cannot_say_offsets_of_timestamps_are_no_error():
    def refusing(times):
        raise BrokerError("too old")

    assert narrowed(GreaterThan(TIMESTAMP, at(5_000_000)), EqualTo(PARTITION, 1), offsets_at=refusing)[0] == (
        "c1[0,100) o1[0,100)"
    )


def test_a_partition_that_is_gone_is_left_to_the_reader():
    assert narrowed(GreaterThan(TIMESTAMP, at(5_000_000)), offsets_at=lambda times: {})[0].count("[0,100)") == 4


class Changing:
    """An interceptor."""

    def on_consume(self, batch):
        return batch


def test_spark_keeps_the_filters_where_interceptors_may_change_the_rows():
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "pushDownPredicate": "true"}
    filters = [EqualTo(TOPIC, "t"), LessThan(TIMESTAMP, at(0))]
    assert list(GroupKafkaDataSource(settings).reader(None).pushFilters(filters)) == filters[1:]
    intercepted = GroupKafkaDataSource(settings | {"interceptors": f"{__name__}:Changing"}).reader(None)
    assert list(intercepted.pushFilters(filters)) == filters


def test_filters_do_not_cross_to_executors():
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "pushDownPredicate": "true"}
    reader = GroupKafkaDataSource(settings).reader(None)
    before = pickle.dumps(reader)
    reader.pushFilters([In(OFFSET, list(range(1000)))])
    assert pickle.dumps(reader) == before


def test_filters_in_a_line_of_the_log():
    result = [describe(f) for f in (Not(EqualTo(TOPIC, "t")), IsNull(OFFSET), In(PARTITION, [1]), In(OFFSET, [1] * 9))]
    assert result == ["Not(EqualTo(topic, t))", "IsNull(offset)", "In(partition, [1])", "In(offset, 9 values)"]


# Brute force: SQL's three values of logic over rows, written down once more.


def passes(one, row):
    """True, False, or None for null."""
    if isinstance(one, Not):
        passed = passes(one.child, row)
        return None if passed is None else not passed
    value = row[one.attribute[0]]
    if isinstance(one, (IsNull, IsNotNull)):
        return (value is None) == isinstance(one, IsNull)
    if isinstance(one, EqualNullSafe):
        return value == one.value
    if isinstance(one, In):
        equal = [None if None in (value, other) else value == other for other in one.value]
        return True if True in equal else None if None in equal else False
    if None in (value, one.value):
        return None
    return {
        EqualTo: lambda: value == one.value,
        GreaterThan: lambda: value > one.value,
        GreaterThanOrEqual: lambda: value >= one.value,
        LessThan: lambda: value < one.value,
        LessThanOrEqual: lambda: value <= one.value,
        StringStartsWith: lambda: value.startswith(one.value),
        StringEndsWith: lambda: value.endswith(one.value),
        StringContains: lambda: one.value in value,
    }[type(one)]()


VALUES = {
    "topic": st.sampled_from(["", "a", "ab", "b", "ba", "c"]),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-2, 25),
    "timestamp": st.integers(-2_000, 12_000).map(at),
}
COMPARING = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]


@st.composite
def any_filter(draw):
    column = draw(st.sampled_from(sorted(VALUES)))
    value = VALUES[column] | st.none() if draw(st.integers(0, 5)) == 0 else VALUES[column]
    kinds = [
        *COMPARING,
        In,
        IsNull,
        IsNotNull,
        *([StringStartsWith, StringEndsWith, StringContains] * (column == "topic")),
    ]
    kind = draw(st.sampled_from(kinds))
    if kind in (IsNull, IsNotNull):
        made = kind((column,))
    else:
        made = kind((column,), draw(st.lists(value, max_size=4) if kind is In else value))
    return Not(made) if draw(st.integers(0, 3)) == 0 else made


BEYOND = 10**18
LOGS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "ab", "b"]), st.integers(0, 2)),
    # Offsets with gaps; timestamps in milliseconds, in any order, -1 for a record without one, null for BEYOND.
    st.dictionaries(st.integers(0, 20), st.integers(-1, 12) | st.just(BEYOND), max_size=12),
    max_size=5,
)


@example([EqualNullSafe(TIMESTAMP, None)], {TopicPartition("a", 0): {0: 5, 1: BEYOND}}, 0, 10)
@given(st.lists(any_filter(), max_size=4), LOGS, st.integers(0, 5), st.integers(10, 22))
def test_narrowed_ranges_and_the_filters_left_give_the_rows_that_all_filters_give(filters, logs, start, end):
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "offset": offset, "tp": tp}
        | {"timestamp": None if ms == BEYOND else at(ms * 1000)}
        for tp, records in logs.items()
        for offset, ms in records.items()
        if start <= offset < end
    ]

    def offsets_at(times):
        return {
            tp: min((offset for offset, ms in logs[tp].items() if ms >= first), default=None)
            for tp, first in times.items()
        }

    constraints, left = understood(filters)
    read = narrow([OffsetRange(tp, start, end) for tp in logs], constraints, offsets_at)
    assert all(r.size > 0 for r in read)
    ends = {r.tp: r for r in read}
    within = [row for row in rows if row["tp"] in ends and ends[row["tp"]].start <= row["offset"] < ends[row["tp"]].end]
    assert all(f in filters for f in left)
    got = [row for row in within if all(passes(f, row) for f in left)]
    assert got == [row for row in rows if all(passes(f, row) for f in filters)]
