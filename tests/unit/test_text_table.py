"""Tables on a terminal, and where a script reads them."""

import os
import sys
from datetime import UTC, datetime, timedelta

import pytest

from spark_kafka_group.explore.decoded import decoded
from spark_kafka_group.explore.group_lag import Lag
from spark_kafka_group.explore.looking import Message, Messages
from spark_kafka_group.explore.record_rate import Interval, Rate
from spark_kafka_group.explore.shown_table import Laid, as_html
from spark_kafka_group.text import text_table
from spark_kafka_group.tools import describe, formatting
from spark_kafka_group.tools.describe import GroupReport, PartitionRow
from spark_kafka_group.values.commit_metadata import Writer
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import BrokerNode
from spark_kafka_group.wire.group.members import DescribedMember

READER = "0d6f7b8c-4c1e-4b62-9f3e-7d0a5b1c2e3f"
MEMBER_ID = f"groupkafka-{READER}-6a1f0c52-8a86-4f0e-9c3b-2f7f3a9d8e01"
HEADERS = ("TOPIC", "LAG", "OWNER")


def report(lag=280, partitions=3, position=None):
    tps = [TopicPartition("orders", partition) for partition in range(partitions)]
    member = DescribedMember(MEMBER_ID, f"groupkafka-{READER}", "spark-kafka-group", "/10.0.0.17", frozenset(tps))
    note = Writer(READER, 12, 345)
    rows = tuple(PartitionRow(tp, 120, 120 + lag, lag, 3.25, position, member, note) for tp in tps)
    return GroupReport("billing", "Stable", BrokerNode(1, "localhost", 9092), 12, "range", (member,), rows)


def test_counts_have_their_noun():
    assert [text_table.counted(n, "record") for n in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]
    assert [text_table.counted(n, "batch", "batches") for n in (1, 2)] == ["1 batch", "2 batches"]


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard output a terminal of so many columns."""
    master, slave = os.openpty()
    with os.fdopen(master, "rb", 0), os.fdopen(slave, "w") as screen:

        def of(columns):
            monkeypatch.setattr(sys, "stdout", screen)
            monkeypatch.setenv("COLUMNS", str(columns))

        yield of


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


def test_a_further_line_is_left_out_only_where_it_repeats_the_one_above():
    rows = [("orders", n, owner) for n, owner in enumerate(["a" * 20, "a" * 20, "b" * 20, "a" * 20])]
    lines = text_table.folded(HEADERS, rows, 24).splitlines()
    a, b = f"    {'a' * 20}", f"    {'b' * 20}"
    assert lines == ["TOPIC   LAG", "    OWNER", "orders    0", a, "orders    1", "orders    2", b, "orders    3", a]


def test_a_long_line_of_offsets_is_folded_on_a_terminal_only(terminal):
    line = "2026-01-31T09:30:00.000Z  generation     12  protocol range  " + "; ".join(
        [f"{MEMBER_ID} assigned t:0"] * 3
    )
    assert formatting.sentence(line) == line
    terminal(110)
    lines = formatting.sentence(line).splitlines()
    assert lines[0].startswith("2026-01-31T09:30:00.000Z  generation     12  protocol range")
    assert len(lines) == 4
    assert max(map(len, lines)) <= 110


def test_describe_on_a_pipe_has_a_whole_line_for_each_row(capsys):
    text = describe.as_text(report())
    assert "…" not in text
    rows = [line for line in text.splitlines() if line.startswith("orders ")]
    assert len(rows) == 3
    assert rows[0].split()[:7] == ["orders", "0", "120", "400", "280", "3.25", "-"]
    assert rows[0].endswith(f"{MEMBER_ID}  reader {READER}, generation 12, batch 345")


def test_a_whole_table_has_columns_as_wide_as_their_cells():
    rows = [("orders", 3, None), ("o", 12, "x" * 300)]
    assert text_table.whole(HEADERS, rows) == (f"TOPIC   LAG  OWNER\norders  3    -\no       12   {'x' * 300}")


def test_a_narrowed_table_shortens_its_widest_column_in_the_middle():
    table = text_table.narrowed(HEADERS, [("orders", 3, "groupkafka-1-of-many"), ("o", 12, "b")], 24)
    assert table == "TOPIC   LAG  OWNER\norders    3  group…-many\no        12  b"


def test_a_narrowed_table_keeps_times_whole():
    at = datetime(2026, 1, 31, tzinfo=UTC)
    table = text_table.narrowed(("TOPIC", "LAST"), [("orders-of-europe", at), ("o", None)], 34)
    assert str(at) in table
    assert max(map(len, table.splitlines())) <= 34


def test_characters_that_take_two_columns_are_counted_as_two():
    lines = text_table.narrowed(HEADERS, [("注文", 3, "請求書" * 9), ("o", 12, "b")], 24).splitlines()
    assert lines == ["TOPIC  LAG  OWNER", "注文     3  請求書…求書", "o       12  b"]
    assert text_table.clipped("請求書", 6) == "請求書"
    assert text_table.clipped("請求書", 5) == text_table.clipped("請求書a", 5) == "請求…"


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (59, "or…s  1,000,000,000,000  1,000,000,000,005    5  mm…m  rr…r"),
        (58, "orders  1,000,000,000,000  1,000,000,000,005    5  mmm…mmm"),
        (52, "orders  1,000,000,000,000  1,000,000,000,005    5"),
        (46, "orders  1,000,000,000,000  1,000,000,000,005"),
        (30, "orders  1,000,000,000,000"),
        (3, "or…s"),
    ],
)
def test_a_narrowed_table_keeps_numbers_whole_and_leaves_out_columns_without_room(width, row):
    headers = ("TOPIC", "COMMITTED", "END", "LAG", "MEMBER", "READER")
    cells = ("orders", 10**12, 10**12 + 5, 5, "m" * 40, "r" * 40)
    table = text_table.narrowed(headers, [cells], width, lambda cell: f"{cell:,}" if isinstance(cell, int) else cell)
    header, line = table.splitlines()
    assert " ".join(line.split()) == " ".join(row.split())
    assert len(header.split()) == len(row.split())


def test_texts_by_name_break_between_words_on_a_terminal(terminal, capsys):
    texts = {"drain": "reads what is new", "process": "calls a function"}
    assert formatting.texts("PURPOSE", texts) == (
        "NAME     PURPOSE\ndrain    reads what is new\nprocess  calls a function"
    )
    terminal(20)
    assert formatting.texts("PURPOSE", texts) == (
        "NAME     PURPOSE\ndrain    reads what\n         is new\nprocess  calls a\n         function"
    )


def test_a_commit_from_before_the_first_batch_has_no_number_of_a_batch():
    assert formatting.written_by(Writer("r", 3, -1)) == "reader r, generation 3, before its first batch"
    assert formatting.written_by(Writer("r", 3, 0)) == "reader r, generation 3, batch 0"


def test_the_lag_of_a_group_names_the_batch_on_a_terminal_and_also_the_generation_on_a_page():
    lag = Lag(report(lag=1_000_000).partitions, "billing", "Stable")
    header, *lines = str(lag).splitlines()[1:]
    assert header.split()[-2:] == ["written", "by"]
    assert all(line.endswith("f:345") and len(line) <= 80 for line in lines)
    page = lag._repr_html_()
    left, right = (f' style="text-align:{side}">' for side in ("left", "right"))
    assert f"<th{left}written by</th><th{right}generation</th></tr>" in page
    reader = text_table.shortened(f"{READER}:345", 26)
    assert f"<td{left}{reader}</td><td{right}12</td></tr>" in page
    assert READER in str(lag.values(lag[0]))


LONG = "spark-kafka-source-0d6f7b8c-4c1e-4b62-9f3e-7d0a5b1c2e3f-1234567890-driver-0"


def test_a_long_name_leaves_room_for_the_facts_behind_it():
    lag = Lag(report(lag=1_000_000).partitions, LONG, "Stable")
    assert str(lag).splitlines()[0] == "group spark-kafka-sour…567890-driver-0: Stable, 3,000,000 records behind"
    rate = Rate((Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), 9),), LONG)
    assert str(rate).splitlines()[0] == "topic spark-kafka-sour…567890-driver-0: 9 records"
    (place, _) = str(Messages((Message(LONG, 11, 1_234_567, None, decoded(b"k"), decoded(b"v")),))).splitlines()[1:]
    assert place == "spark-kafka-sour…567890-driver-0-11 offset 1234567  -  key k"


def test_intervals_are_gone_through_a_few_times_and_not_once_for_each_of_them():
    class Counted(tuple):
        times = 0

        def __iter__(self):
            Counted.times += 1
            return super().__iter__()

    start = datetime(2026, 1, 1, tzinfo=UTC)
    rate = Rate(Counted(Interval(start + timedelta(n), start + timedelta(n + 1), n) for n in range(100)), "orders")
    assert len(str(rate).splitlines()) == 102
    assert Counted.times < 10


def test_a_folded_table_has_more_lines_for_each_row_where_one_is_too_short():
    rows = [("orders", 3, "m" * 9 + "n" * 9), ("o", 12, None)]
    assert text_table.folded(HEADERS, rows, 40) == text_table.narrowed(HEADERS, rows, 40)
    assert text_table.folded(HEADERS, rows, 20) == (
        "TOPIC   LAG\n    OWNER\norders    3\n    mmmmmmmm…nnnnnnn\no        12\n    -"
    )


def test_a_table_without_rows_is_its_headers():
    for table in (
        text_table.whole(HEADERS, []),
        text_table.narrowed(HEADERS, [], 80),
        text_table.folded(HEADERS, [], 80),
    ):
        assert table == "TOPIC  LAG  OWNER"


def test_numbers_are_never_shortened_in_a_folded_table():
    assert "123456789012345678" in text_table.folded(("A", "B"), [(123456789012345678, "b" * 50)], 10)


def test_names_of_strangers_steer_no_terminal():
    row = ("\x1b[2J", 1, "a\nb")
    for table in (text_table.whole(HEADERS, [row]), text_table.folded(HEADERS, [row], 80)):
        assert table.split() == [*HEADERS, r"\x1b[2J", "1", r"a\nb"]


def test_a_page_has_numbers_at_the_right_and_keeps_the_lines_of_json():
    page = as_html(["partition", "value"], [(3, Laid('{\n  "<a>": 1\n}'))])
    assert '<th style="text-align:right">partition</th><th style="text-align:left">value</th>' in page
    assert '<td style="text-align:right">3</td><td style="text-align:left"><pre' in page
    assert ">{\n  &quot;&lt;a&gt;&quot;: 1\n}</pre></td>" in page


def test_an_unknown_value_stands_below_the_values_of_its_column():
    page = as_html(["lag", "member", "host"], [(3, "a", None), (None, None, None)])
    left, right = (f' style="text-align:{side}">' for side in ("left", "right"))
    assert f"<th{right}lag</th><th{left}member</th><th{left}host</th>" in page
    assert f"<tr><td{right}-</td><td{left}-</td><td{left}-</td></tr>" in page
