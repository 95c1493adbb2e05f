"""`describe` on a terminal, and where a script reads it."""

import pytest

from spark_kafka_group.tools import describe
from spark_kafka_group.tools.describe import GroupReport, PartitionRow
from spark_kafka_group.values.commit_metadata import Writer
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import BrokerNode
from spark_kafka_group.wire.group.members import DescribedMember

READER = "0d6f7b8c-4c1e-4b62-9f3e-7d0a5b1c2e3f"
MEMBER_ID = f"groupkafka-{READER}-6a1f0c52-8a86-4f0e-9c3b-2f7f3a9d8e01"


def report(lag=280, partitions=3, position=None):
    tps = [TopicPartition("orders", partition) for partition in range(partitions)]
    member = DescribedMember(MEMBER_ID, f"groupkafka-{READER}", "spark-kafka-group", "/10.0.0.17", frozenset(tps))
    note = Writer(READER, 12, 345)
    rows = tuple(PartitionRow(tp, 120, 120 + lag, lag, 3.25, position, member, note) for tp in tps)
    return GroupReport("billing", "Stable", BrokerNode(1, "localhost", 9092), 12, "range", (member,), rows)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_describe_fits_a_terminal_and_keeps_kafkas_columns(columns, terminal):
    terminal(columns)
    text = describe.as_text(report())
    assert max(map(len, text.splitlines())) <= columns
    kafkas = {"TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"}
    assert kafkas <= set(text.split())
    assert text.startswith("group billing: Stable, generation 12")


def test_on_80_columns_the_offsets_of_a_partition_are_on_one_line(terminal):
    terminal(80)
    lines = describe.as_text(report(lag=1_234_567)).splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("TOPIC"))
    assert lines[header].split() == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "BEHIND"]
    assert lines[header + 1].split() == ["CONSUMER-ID", "WRITTEN-BY"]
    assert lines[header + 2].split() == ["orders", "0", "120", "1234687", "1234567", "4s"]
    owner = lines[header + 3]
    assert owner.endswith(", generation 12, batch 345"), "no word is cut"
    assert "groupkafka-" in owner
    assert f"{MEMBER_ID[-12:]} " in owner, "ids of members differ in their ends"


def test_a_group_of_12_partitions_and_a_member_fits_80_columns_and_24_lines(terminal):
    terminal(80)
    lines = describe.as_text(report(partitions=12)).splitlines()
    assert len(lines) < 24
    assert [line.split()[:2] for line in lines if line.startswith("orders ")] == [["orders", str(n)] for n in range(12)]


def test_a_terminal_shows_positions_only_where_they_are_known(terminal):
    terminal(80)
    assert "POSITION" not in describe.as_text(report())
    assert "POSITION" in describe.as_text(report(position=130))


def test_describe_on_a_pipe_has_a_whole_line_for_each_row(capsys):
    text = describe.as_text(report())
    assert "…" not in text
    rows = [line for line in text.splitlines() if line.startswith("orders ")]
    assert len(rows) == 3
    assert rows[0].split()[:7] == ["orders", "0", "120", "400", "280", "3.25", "-"]
    assert rows[0].endswith(f"{MEMBER_ID}  reader {READER}, generation 12, batch 345")
