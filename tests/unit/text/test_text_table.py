"""Tables on a terminal, and where a script reads them."""

from datetime import UTC, datetime

import pytest

from spark_kafka_group.text import text_table

HEADERS = ("TOPIC", "LAG", "OWNER")


def test_counts_have_their_noun():
    assert [text_table.counted(n, "record") for n in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]
    assert [text_table.counted(n, "batch", "batches") for n in (1, 2)] == ["1 batch", "2 batches"]


def test_a_further_line_is_left_out_only_where_it_repeats_the_one_above():
    rows = [("orders", n, owner) for n, owner in enumerate(["a" * 20, "a" * 20, "b" * 20, "a" * 20])]
    lines = text_table.folded(HEADERS, rows, 24).splitlines()
    a, b = f"    {'a' * 20}", f"    {'b' * 20}"
    assert lines == ["TOPIC   LAG", "    OWNER", "orders    0", a, "orders    1", "orders    2", b, "orders    3", a]


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
