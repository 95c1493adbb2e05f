"""A look into Kafka from a notebook: what a real broker holds, and nothing of it is changed by the look."""

import dataclasses
import time
from datetime import UTC, datetime, timedelta

import pytest
from kafka.structs import TopicPartition as KafkaTopicPartition
from support import Record, commit_for, name, numbered, produce, topic_with
from support.transactions import Writer

from spark_kafka_group import explore
from spark_kafka_group.errors import BrokerError, GroupKafkaError, OptionError, ReadError
from spark_kafka_group.explore import looking
from spark_kafka_group.explore.record_samples import to_look_at
from spark_kafka_group.explore.shown_table import WIDTH
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools import few_records
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.topic_admin import TopicAdmin

AT_MS = 1_700_000_000_000
SCRIPT = b"<script>alert(1)</script>"


def at(second):
    return datetime.fromtimestamp(AT_MS / 1000, UTC) + timedelta(seconds=second)


def servers(kafka, **more):
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers} | more


def looked_in_every_way(kafka, topic, group):
    options = servers(kafka, subscribe=topic) | {"kafka.group.id": group, "startingOffsets": "earliest"}
    return [
        explore.topics(options),
        explore.look(options, topic),
        explore.groups(options),
        explore.lag(options, group),
        explore.rate(options, topic),
    ]


def offsets_asked_for(monkeypatch):
    """Sizes of the ranges that are read from now on."""
    sizes = []

    def noted(options, ranges):
        sizes.extend(found.size for found in ranges)
        return few_records.read(options, ranges)

    monkeypatch.setattr(looking, "read", noted)
    return sizes


def assert_it_fits(value):
    assert max(map(len, str(value).splitlines())) <= WIDTH
    assert repr(value) == str(value)


class TestTopics:
    def test_a_topic_has_its_counts_times_and_a_sample(self, kafka):
        records = [Record(0, b"k%d" % n, b"v", (("h", b"x"),), AT_MS + 1000 * n) for n in range(6)]
        topic = topic_with(kafka, [*records, Record(1, b"other", b"v")], compression="gzip")
        (found,) = explore.topics(servers(kafka, subscribe=topic))
        assert (found.topic, found.partitions, found.records) == (topic, 3, 7)
        assert (found.first, found.last, found.compression) == (at(0), at(5), "gzip")
        assert found.skew == pytest.approx(6 * 3 / 7)
        assert found.bytes > 7 * 61 / 7
        assert found.key.text in {"k1", "k2", "k3", "k4", "k5"}
        assert [(header, value.text) for header, value in found.headers] == [("h", "x")]
        assert found.records_per_second == (0.0, 0.0)

    def test_the_last_minute_and_the_last_hour_have_their_rates(self, kafka):
        now = round(time.time() * 1000)
        new, old = [Record(0, None, b"", (), now)] * 30, [Record(0, None, b"", (), now - 1_800_000)] * 330
        (found,) = explore.topics(servers(kafka, subscribe=topic_with(kafka, [*old, *new])))
        assert found.records_per_second == pytest.approx((0.5, 0.1))

    def test_all_topics_are_shown_where_none_is_named_and_empty_ones_too(self, kafka):
        full, empty = topic_with(kafka, numbered(3, 3)), kafka.create_topic(name("empty"))
        found = {topic.topic: topic for topic in explore.topics(servers(kafka))}
        assert found[full].records == 3
        assert OFFSETS_TOPIC not in found
        of_empty = found[empty]
        assert (of_empty.records, of_empty.first, of_empty.skew, of_empty.key) == (0, None, None, None)

    def test_partitions_can_be_named(self, kafka):
        topic = topic_with(kafka, numbered(9, 3))
        (found,) = explore.topics(servers(kafka, assign=f'{{"{topic}": [0, 2]}}'))
        assert (found.partitions, found.records) == (2, 6)

    def test_brokers_that_do_not_know_the_newest_record_are_asked_by_halves(self, kafka):
        topic = topic_with(kafka, [Record(n % 2, None, b"", (), AT_MS + n * 7) for n in range(9)])
        parsed = to_look_at(servers(kafka), topic)
        with TopicAdmin(parsed) as admin:
            tps = admin.partitions(parsed.reading.subscription)
            assert admin.newest_searched(tps) == admin.newest(tps)
            assert admin.newest(tps)[TopicPartition(topic, 2)] is None


class TestLook:
    def test_the_newest_messages_of_all_partitions_are_in_order(self, kafka):
        topic = topic_with(kafka, [Record(n % 3, b"k", b"%d" % n, (), AT_MS + n) for n in range(20)])
        found = explore.look(servers(kafka), topic, last=5)
        assert [message.value.text for message in found] == ["15", "16", "17", "18", "19"]
        assert found == explore.look(servers(kafka), topic, last=5)
        assert [m.value.text for m in explore.look(servers(kafka), topic, last=2)] == ["18", "19"]

    def test_messages_from_a_time_and_from_an_offset_on(self, kafka):
        topic = topic_with(kafka, [Record(n % 2, b"k", b"%d" % n, (), AT_MS + n * 1000) for n in range(10)])
        options = servers(kafka)
        assert [m.value.text for m in explore.look(options, topic, 3, at=at(4))] == ["4", "5", "6"]
        assert list(explore.look(options, topic, at=at(100))) == []
        assert [m.offset for m in explore.look(options, topic, 2, offset=3, partition=1)] == [3, 4]
        with pytest.raises(OptionError, match=rf"^offset \(7\): {topic}-1 has the offsets from 0 up to 4$"):
            explore.look(options, topic, offset=7, partition=1)
        with pytest.raises(OptionError, match="cannot both be given"):
            explore.look(options, topic, offset=7, at=at(0))
        with pytest.raises(OptionError, match="has partitions 0 to 2, and no partition 9"):
            explore.look(options, topic, partition=9)
        for wrong in ("2026-01-31", datetime.min):
            with pytest.raises(OptionError, match=r"^at \(.*\) must be a datetime of the years 2 to 9999"):
                explore.look(options, topic, at=wrong)
            with pytest.raises(OptionError, match=r"^since \(.*\) must be a datetime"):
                explore.rate(options, topic, since=wrong)

    @pytest.mark.parametrize("in_one", [False, True], ids=["even", "the newest in one partition"])
    def test_the_newest_of_many_partitions_are_exact_and_few_records_are_read(self, kafka, monkeypatch, in_one):
        count, partitions, last = 3000, 30, 100
        where = [0 if in_one and n >= count - last else n % partitions for n in range(count)]
        records = [Record(p, None, b"%d" % n, (), AT_MS + n) for n, p in enumerate(where)]
        topic = topic_with(kafka, records, partitions=partitions)
        asked = offsets_asked_for(monkeypatch)
        found = explore.look(servers(kafka), topic, last=last)
        assert [m.value.text for m in found] == [str(n) for n in range(count - last, count)]
        assert sum(asked) < 8 * last

    def test_a_partition_of_aborted_records_is_not_read_to_its_beginning(self, kafka, monkeypatch):
        topic = topic_with(kafka, [Record(1, None, b"%d" % n, (), AT_MS + n) for n in range(100)])
        with Writer(kafka, topic) as writer:
            writer.write(*range(500))
            writer.producer.abort_transaction()
            writer.open = False
        asked = offsets_asked_for(monkeypatch)
        found = explore.look(servers(kafka) | {"kafka.isolation.level": "read_committed"}, topic, last=10)
        assert [m.value.text for m in found] == [str(n) for n in range(90, 100)]
        assert sum(asked) < 100

    def test_json_text_bytes_and_tombstones_are_said_to_be_what_they_are(self, kafka):
        values = [b'{"a": [1.10, {}], "a": "x"}', b"plain", b"\x00\x01\xff", None, "café".encode()[:-1]]
        topic = topic_with(kafka, [Record(0, b"k", value, (), AT_MS + n) for n, value in enumerate(values)])
        found = explore.look(servers(kafka), topic)
        assert [(m.value.kind, m.value.text) for m in found] == [
            ("json", '{\n  "a": [\n    1.10,\n    {}\n  ],\n  "a": "x"\n}'),
            ("text", "plain"),
            ("hex", "0001ff"),
            ("null", "null"),
            ("hex", "636166c3"),
        ]
        assert [m.is_tombstone for m in found] == [False, False, False, True, False]
        assert "tombstone" in str(found)
        assert "tombstone" in found._repr_html_()

    def test_a_time_that_no_calendar_has_is_none(self, kafka):
        """As of producers that write microseconds or nanoseconds."""
        times = [AT_MS, AT_MS * 1000, AT_MS * 1_000_000]
        topic = kafka.create_topic(name("times"), configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
        produce(kafka, topic, [Record(0, b"k", b"v%d" % n, (), at) for n, at in enumerate(times)])
        found = explore.look(servers(kafka), topic)
        assert [(m.timestamp, m.value.text) for m in found] == [(at(0), "v0"), (None, "v1"), (None, "v2")]
        assert "v1" in str(found)
        assert "v1" in found._repr_html_()
        group = name("late")
        for offset in (1, 2):
            commit_for(kafka, group, {(topic, 0): offset})
            for shown in looked_in_every_way(kafka, topic, group):
                assert str(shown)
                assert shown._repr_html_()
            assert [(row.lag, row.lag_s) for row in explore.lag(servers(kafka), group)] == [(3 - offset, 0.0)]

    def test_a_record_of_ten_megabytes_is_a_line(self, kafka):
        topic = kafka.create_topic(name("large"), configs={"max.message.bytes": str(2**24)})
        size = 10_000_000
        produce(kafka, topic, [Record(0, None, b"x" * size)], max_request_size=2**24)
        (message,) = found = explore.look(servers(kafka), topic)
        assert (message.value.size, len(message.value.text), message.value.cut) == (size, 2000, size - 2000)
        assert "9,998,000 more" in found._repr_html_()
        assert len(found._repr_html_()) < 5000
        assert_it_fits(found)

    def test_names_and_values_of_strangers_steer_neither_page_nor_terminal(self, kafka):
        hostile = SCRIPT + b"\x1b[2J\n"
        topic = topic_with(kafka, [Record(0, hostile, hostile, ((SCRIPT.decode(), hostile),))])
        options = servers(kafka, subscribe=topic)
        for found in (explore.look(options, topic), explore.topics(options)):
            assert "<script>" not in found._repr_html_()
            assert "&lt;script&gt;" in found._repr_html_()
            assert "\x1b" not in found._repr_html_() + str(found)
            assert_it_fits(found)


class TestGroups:
    def test_a_group_has_its_lag_in_records_and_seconds_and_the_writer_of_its_commits(self, kafka, group):
        topic = topic_with(kafka, numbered(9, 3))
        commit_for(kafka, group, {(topic, 0): 3, (topic, 1): 1}, commit_metadata("reader-1", 4, 7))
        found = explore.lag(servers(kafka), group)
        assert (found.state, found.records) == ("Empty", 2)
        assert [(row.tp.partition, row.lag) for row in found] == [(0, 0), (1, 2)]
        assert found[0].lag_s == 0.0
        assert found[1].lag_s > time.time() - AT_MS / 1000 - 60
        assert (found[0].note.query_id, found[0].note.generation, found[0].note.batch) == ("reader-1", 4, 7)
        (listed,) = [row for row in explore.groups(servers(kafka)) if row.group == group]
        assert (listed.kind, listed.state, listed.members) == ("classic", "Empty", ())
        for value in (found, explore.groups(servers(kafka))):
            assert_it_fits(value)
            assert group in value._repr_html_()

    def test_a_group_whose_unread_records_are_all_deleted_is_shown_at_once(self, kafka, group):
        topic = topic_with(kafka, numbered(9, 3))
        commit_for(kafka, group, {(topic, 0): 3, (topic, 1): 1})
        kafka.admin.delete_records({KafkaTopicPartition(topic, 1): 3})
        begun = time.monotonic()
        found = explore.lag(servers(kafka) | {"kafka.request.timeout.ms": "20000"}, group)
        assert [(row.lag, row.lag_s) for row in found] == [(0, 0.0), (2, 0.0)]
        assert time.monotonic() - begun < 15

    def test_a_member_is_named(self, kafka, group, neighbour_of):
        topic = topic_with(kafka, numbered(3, 3))
        neighbour = neighbour_of(kafka, topic, group)
        wait_until(neighbour.assignment, within=30)
        wait_until(lambda: any(row.owner for row in explore.lag(servers(kafka), group)), within=30)
        (listed,) = [row for row in explore.groups(servers(kafka)) if row.group == group]
        assert (listed.state, len(listed.members)) == ("Stable", 1)
        assert {row.owner.member_id for row in explore.lag(servers(kafka), group)} == set(listed.members)


class TestRate:
    def test_records_are_counted_in_the_interval_of_their_time(self, kafka):
        counts = [3, 0, 0, 5, 1, 0, 0, 2]
        records = [
            Record(n % 3, None, b"", (), AT_MS + i * 1000 + 10 * n) for i, c in enumerate(counts) for n in range(c)
        ]
        topic = topic_with(kafka, records)
        found = explore.rate(servers(kafka), topic, at(0), at(8), points=8)
        assert [row.records for row in found] == counts
        assert (found[0].start, found[-1].end, found[3].per_second) == (at(0), at(8), 5.0)
        assert [row.records for row in explore.rate(servers(kafka), topic, at(3), at(5), points=2)] == [5, 1]
        assert_it_fits(found)

    def test_an_empty_topic_has_a_rate_of_nothing(self, kafka):
        found = explore.rate(servers(kafka), kafka.create_topic(name("empty")), points=3)
        assert [row.records for row in found] == [0, 0, 0]
        assert_it_fits(found)

    def test_wrong_times_are_refused(self, kafka, topic):
        with pytest.raises(OptionError, match="must be at least 96 ms before until"):
            explore.rate(servers(kafka), topic, at(1), at(0))
        with pytest.raises(OptionError, match=r"points \(0\)"):
            explore.rate(servers(kafka), topic, points=0)


class TestErrors:
    def test_a_topic_that_is_not_there_is_an_error_that_names_the_nearest_one(self, kafka, topic):
        with pytest.raises(OptionError, match=f"^the cluster has no topic {topic}s, or .* nearest name is {topic}$"):
            explore.look(servers(kafka), f"{topic}s")
        with pytest.raises(OptionError, match=f"{topic}s, which the cluster does not have"):
            explore.topics(servers(kafka, subscribe=f"{topic}s"))

    @pytest.mark.parametrize(
        ("step", "look"),
        [
            ("partitions", lambda options, topic: explore.look(options, topic)),
            pytest.param("partitions", lambda options, topic: explore.rate(options, topic), marks=pytest.mark.soak),
            pytest.param(
                "partitions",
                lambda options, topic: explore.topics(options | {"subscribe": topic}),
                marks=pytest.mark.soak,
            ),
            pytest.param("lookups", lambda options, topic: explore.look(options, topic), marks=pytest.mark.soak),
            ("lookups", lambda options, topic: looking.newest_rows(options, topic, 5)),
        ],
    )
    def test_a_topic_that_is_deleted_meanwhile_is_an_error_within_seconds(self, kafka, monkeypatch, step, look):
        topic = topic_with(kafka, numbered(20, 2))
        deleted = self._after_first(monkeypatch, step, lambda: kafka.admin.delete_topics([topic]))
        began = time.monotonic()
        with pytest.raises(BrokerError, match=f"^topic {topic} was deleted while it was looked at: .* any more$"):
            look(servers(kafka), topic)
        assert deleted
        assert time.monotonic() - began < 20  # 5 s on an idle machine; kafka.request.timeout.ms is 30 s

    def test_records_that_are_deleted_meanwhile_are_an_error_that_advises_no_query(self, kafka, monkeypatch):
        topic = topic_with(kafka, numbered(20, 1))
        self._after_first(
            monkeypatch, "lookups", lambda: kafka.admin.delete_records({KafkaTopicPartition(topic, 0): 15})
        )
        with pytest.raises(ReadError, match=f"^{topic}-0: offset 0: records from here .*deleted.*: look again$"):
            explore.look(servers(kafka), topic)
        assert len(explore.look(servers(kafka), topic)) == 5

    @staticmethod
    def _after_first(monkeypatch, step, happens):
        """Have something happen after the first call of a step; returns whether it has, as a list."""
        as_it_is, happened = getattr(TopicAdmin, step), []

        def then(*arguments):
            result = as_it_is(*arguments)
            if not happened:
                happened.append(happens())
            return result

        monkeypatch.setattr(TopicAdmin, step, then)
        return happened

    def test_a_group_that_is_not_there_is_an_error(self, kafka, group):
        with pytest.raises(GroupKafkaError, match=f"there is no group {group}"):
            explore.lag(servers(kafka), group)

    def test_options_are_those_of_the_source(self, kafka):
        with pytest.raises(OptionError, match="the nearest is kafka.bootstrap.servers"):
            explore.topics({"kafka.bootstrap.server": kafka.bootstrap_servers})

    def test_no_broker_is_an_error(self):
        with pytest.raises(BrokerError):
            explore.topics({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "1000"})


def test_a_look_joins_no_group_commits_nothing_and_makes_no_topic(kafka, group):
    topic = topic_with(kafka, numbered(9, 3))
    commit_for(kafka, group, {(topic, 0): 1})
    with TopicAdmin(to_look_at(servers(kafka), topic)) as admin:

        def state():
            (internal,) = [dataclasses.replace(t) for t in explore.topics(servers(kafka, subscribe=OFFSETS_TOPIC))]
            return admin.groups().keys(), internal.records, set(kafka.admin.list_topics())

        wait_until(lambda: state() == state(), within=30)  # members of other tests are leaving
        before = state()
        looked_in_every_way(kafka, topic, group)
        with pytest.raises(OptionError):
            explore.look(servers(kafka), name("typo"))
        assert state() == before
