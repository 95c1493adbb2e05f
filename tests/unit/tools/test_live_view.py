"""``top`` and the live view: rates from two looks, and rows that fit a terminal."""

import argparse
import math
import os
import pty
import re
import select
import sys
import threading
from dataclasses import replace

import pytest

from spark_kafka_group.explore.group_lag import Lag
from spark_kafka_group.text.text_table import duration
from spark_kafka_group.tools.describe import PartitionRow
from spark_kafka_group.tools.live_view import LiveView, Observer, Screen, Seen, print_found
from spark_kafka_group.tools.terminal import Terminal
from spark_kafka_group.tools.top import (
    OVER_S,
    SORTS,
    GroupLook,
    Speed,
    brief,
    group_rows,
    kept,
    of_groups,
    of_partitions,
)
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.all_groups import GroupOffsets
from spark_kafka_group.wire.group.membership import Committed

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def look(at_s, committed, ends, group="billing"):
    offsets = {tp: Committed(offset, commit_metadata("r", 1, 2)) for tp, offset in committed.items()}
    return GroupLook(at_s, {group: GroupOffsets("Stable", 1, offsets)}, ends)


def many(count, name="group-{}"):
    groups = {name.format(n): GroupOffsets("Stable", 2, {ONE: Committed(n, "")}) for n in range(count)}
    return GroupLook(0.0, groups, {ONE: 123_456_789})


def screen_of(servers="localhost:9092", sort="lag"):
    return Screen(LiveView(None, of_groups, 2.0, sort, SORTS), servers)


def drawn(looks, size, screen=None, now=0.0, shown=of_groups, **seen):
    screen = screen or screen_of()
    return screen.lines(Seen(looks, **{"at": 0.0} | seen), shown(looks, screen.sort), now, size)[0]


def test_rates_are_records_between_two_looks_in_a_second():
    looks = (look(10, {ONE: 5, TWO: 50}, {ONE: 100, TWO: 50}), look(12, {ONE: 45, TWO: 60}, {ONE: 110, TWO: 60}))
    (row,) = group_rows(looks)
    assert (row.lag, row.partitions, row.writer.query_id) == (65, 2, "r")
    assert row.speed == Speed(committed=25.0, produced=10.0)
    assert row.speed.seconds_for(row.lag) == pytest.approx(65 / 15)


def test_a_first_look_has_no_rates_and_a_group_that_was_set_back_has_passed_nothing():
    first = look(10, {ONE: 50}, {ONE: 100})
    (row,) = group_rows((first,))
    assert (row.speed, row.speed.seconds_for(row.lag)) == (Speed(None, None), None)
    (row,) = group_rows((first, look(11, {ONE: 0}, {ONE: 100})))
    assert row.speed == Speed(0.0, 0.0)
    assert row.speed.seconds_for(row.lag) == math.inf
    (row,) = group_rows((first, look(11, {ONE: 0}, {ONE: 100}, group="new")))
    assert row.speed == Speed(None, None)


def test_a_commit_beyond_the_end_takes_nothing_from_the_lag_of_other_partitions():
    looks = (look(10, {ONE: 900, TWO: 50}, {ONE: 100, TWO: 57}),)
    (row,) = group_rows(looks)
    assert row.lag == 7
    assert of_groups(looks, "lag").facts == ("1 group", "1 member", "7 behind")


def test_rates_are_of_the_last_half_minute_or_of_two_looks():
    looks = ()
    for at_s in range(0, 100, 10):
        looks = kept(looks, look(at_s, {ONE: at_s}, {ONE: 100}))
    assert [each.at_s for each in looks] == [60, 70, 80, 90]
    assert [each.at_s for each in kept(looks, look(90 + 2 * OVER_S, {ONE: 0}, {ONE: 100}))] == [90, 150]


@pytest.mark.parametrize("count", [0, 3, 300])
@pytest.mark.parametrize("size", [(80, 24), (40, 10), (132, 50), (20, 3), (5, 1)])
def test_the_screen_fits_and_shows_numbers_whole_or_not_at_all(count, size):
    lines = drawn((many(count, "a-group-with-a-long-name-{}-in-Vienna"),), size)
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    assert not any("…" in cell for line in lines[4:] for cell in line.split()[1:])


def test_rows_move_and_their_order_changes_by_keys():
    screen, looks = screen_of(sort="group"), (many(300, "{:03}"),)
    assert drawn(looks, (80, 24), screen)[4].startswith("000")
    screen.apply_keys(["page down", "down"])
    assert drawn(looks, (80, 24), screen)[4].startswith("021")
    screen.apply_keys(["page down"] * 99)
    assert drawn(looks, (80, 24), screen)[-1].startswith("299")
    screen.apply_keys(["home", "r"])
    assert "by rate" in drawn(looks, (80, 24), screen)[1]
    assert not screen.ended
    screen.apply_keys(["q"])
    assert screen.ended


def test_names_of_strangers_steer_no_terminal():
    hostile = "\x1b[2J\nx\u202e{}"
    assert all(line.isprintable() for line in drawn((many(3, hostile),), (80, 24)))
    lines = drawn((many(3, hostile),), (80, 24), screen_of("\x1b"), problem="gone: \x1b[2J")
    assert lines[2] == r"as of 00:00:00Z: gone: \x1b[2J"
    assert all(line.isprintable() for line in lines)


def test_a_view_without_new_numbers_says_since_when():
    lines = drawn((many(1),), (80, 24), now=70.0, at=60.0)
    assert lines[2] == "as of 00:01:00Z: no broker has answered for 10 s"
    assert drawn((many(1),), (80, 24), now=70.0, at=60.0, took_s=5.0)[2] == "", "a look may take long"


def received(terminal, end):
    """What was written to a terminal, up to `end`: the kernel hands it over in pieces."""
    text = ""
    while not text.endswith(end):
        assert select.select([terminal], [], [], 10)[0], f"no {end!r} at the end of {text!r}"
        text += os.read(terminal, 65_536).decode()
    return text


def seen_on(terminal, columns, end):
    """Lines of a terminal that does not wrap, after a drawing that ends so."""
    cells, line, column = {}, 0, 0
    for text in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[^\x1b]", received(terminal, end)):
        match text:
            case "\x1b[H":
                line = column = 0
            case "\x1b[J":
                cells = {at: cell for at, cell in cells.items() if at < (line, column)}
            case "\x1b[2K":
                cells = {at: cell for at, cell in cells.items() if at[0] != line}
            case "\r":
                column = 0
            case "\n":
                line += 1
            case _ if text[0] != "\x1b":
                cells[line, column] = text
                column = min(column + 1, columns - 1)
    return ["".join(cells[at] for at in sorted(cells) if at[0] == n) for n in range(line + 1)]


@pytest.mark.parametrize("before", [[], ["x" * 20] * 5])
def test_a_last_line_as_wide_as_the_terminal_keeps_its_last_digit(monkeypatch, before):
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as drawn_on, os.fdopen(master, "rb", 0), monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", drawn_on)
        with Terminal() as terminal:
            if before:
                terminal.draw(before, 3)
            terminal.draw(["TOPIC      PART  LAG", "big-…aef7     0  200"], 0)
            assert seen_on(master, 20, "200") == ["TOPIC      PART  LAG", "big-…aef7     0  200"]


def of_a_group(offsets, name="billing"):
    """The looks at a group whose partitions have these committed offsets, or None, and ends of their logs, or None."""
    rows = tuple(
        PartitionRow(TopicPartition("orders", number), at, end, None if None in (at, end) else end - at, None, None,
                     None, None)
        for number, (at, end) in enumerate(offsets)
    )  # fmt: skip
    committed = {row.tp: Committed(row.current_offset, "") for row in rows if row.current_offset is not None}
    ends = {row.tp: row.log_end_offset for row in rows if row.log_end_offset is not None}
    return (GroupLook(0.0, {name: GroupOffsets("Stable", 1, committed)}, ends, rows),)


def first_line(looks, shown, width):
    return drawn(looks, (width, 24), shown=shown)[0]


def test_a_group_with_a_long_name_has_its_lag_on_the_screen():
    name = "spark-kafka-source-0d6f7b8c-4c1e-4b62-9f3e-7d0a5b1c2e3f-1234567890-driver-0"
    looks = of_a_group([(5, 9)], name)
    line = "00:00:00Z  spark-kafka-source-…234567890-driver-0: Stable, 1 member, 4 behind  …"
    assert first_line(looks, of_partitions, 80) == line
    assert of_partitions(looks, "lag").heading(10_000) == f"{name}: Stable, 1 member, 4 behind"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "00:00:00Z  billing: Stable, 1 member, 1,204,311 behind  localhost:9092"),
        (50, "00:00:00Z  billing: Stable, 1,204,311 behind  loc…"),
        (40, "00:00:00Z  billing: 1,204,311 behind  l…"),
        (39, "00:00:00Z  billing: 1,204,311 behind  …"),
        (38, "00:00:00Z  1,204,311 behind  localhos…"),
        (20, "1,204,311 behind  l…"),
    ],
)
def test_the_lag_of_a_group_is_the_last_that_a_narrow_terminal_leaves_out(width, line):
    assert first_line(of_a_group([(0, 1_204_311)]), of_partitions, width) == line


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "00:00:00Z  3 groups, 6 members, 370,370,364 behind  localhost:9092"),
        (44, "00:00:00Z  3 groups, 370,370,364 behind  lo…"),
        (40, "00:00:00Z  370,370,364 behind  localhos…"),
        (30, "3 groups, 370,370,364 behind …"),
        (24, "370,370,364 behind  loc…"),
    ],
)
def test_the_lag_of_all_groups_is_the_last_that_a_narrow_terminal_leaves_out(width, line):
    assert first_line((many(3),), of_groups, width) == line


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([(None, 9), (None, 4)], "nothing committed"),
        ([], "nothing committed"),
        ([(5, None)], "lag not known"),
        ([(9, 9), (None, 4)], "0 behind, 1 of 2 partitions not known"),
        ([(9, 9), (4, 4)], "0 behind"),
    ],
)
def test_a_lag_that_is_not_known_is_not_0(offsets, said):
    looks = of_a_group(offsets)
    assert of_partitions(looks, "lag").facts == ("Stable", "1 member", said)
    title = said.partition(", ")[0].replace("0 behind", "0 records behind")  # it has a remark about single partitions
    assert Lag(looks[-1].partitions, "billing", "Stable").title() == f"group billing: Stable, {title}"


@pytest.mark.parametrize(
    ("offsets", "said"), [([(None, 9)], "nothing committed"), ([(5, None)], "lag not known"), ([(9, 9)], "0 behind")]
)
def test_a_lag_of_all_groups_that_is_not_known_is_not_0(offsets, said):
    assert of_groups(of_a_group(offsets), "lag").facts == ("1 group", "1 member", said)


def test_a_view_says_which_facts_are_missing():
    looks = (many(1), replace(many(1), problem="groups are missing"))
    assert drawn(looks, (80, 24))[2] == "groups are missing"
    assert drawn(looks, (80, 24), at=60.0, problem="gone")[2] == "as of 00:01:00Z: gone"


def test_each_fact_that_is_missing_has_a_line_with_settings_as_the_command_names_them(capsys):
    args = argparse.Namespace(bootstrap_server_as_written="--bootstrap-server")
    failed = [f"group {n} cannot be shown: no records within kafka.request.timeout.ms" for n in "ab"]
    print_found("", [None, *failed], args)
    said = [f"group {n} cannot be shown: no records within request.timeout.ms" for n in "ab"]
    assert capsys.readouterr() == ("", "\n".join([*said, ""]))
    assert drawn((many(1),), (80, 24), problem=failed[0])[2] == f"as of 00:00:00Z: {said[0]}"


def test_a_look_that_fails_in_any_way_is_said_and_the_next_one_is_made():
    told, waiting, going_on = threading.Event(), threading.Event(), threading.Event()

    def looked(before):
        if before is None:
            return "first"
        if told.is_set():
            waiting.set()
            going_on.wait(10)
        raise KeyError("orders")

    observer = Observer(LiveView(looked, None, 0.001))
    observer.start(told.set)
    assert waiting.wait(10)
    assert (observer.seen.problem, observer.seen.found) == ("KeyError: 'orders'", "first")
    going_on.set()
    assert observer.close()


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0, "0"), (999_999, "999,999"), (1_000_000, "1.00M"), (123_456_789, "123M"), (2.5e9, "2.50G"),
     (12.4, "12"), (9e15, "9.00P"), (999_999_999, "999M"), (2**63 - 1, "9.22E")],
)  # fmt: skip
def test_large_numbers_are_short(number, text):
    assert brief(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (math.inf, "never"), (0.0, "0s"), (0.2, "1s"), (61, "1m01s"), (7260, "2h01m"), (90_000, "1d01h")],
)
def test_times_are_in_their_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_a_lag_of_weeks_is_days_on_a_screen_and_seconds_through_a_pipe():
    table = of_partitions(of_a_group([(0, 4)]), "lag")
    place = table.headers.index("LAG-S")
    late = replace(table, cells=tuple((*row[:place], 28324027.9, *row[place + 1 :]) for row in table.cells))
    header, (row,) = late.for_screen(80)
    assert header.split()[:4] == ["TOPIC", "PART", "LAG", "BEHIND"]
    assert row.split()[:4] == ["orders", "0", "4", "327d19h"]
    assert "28324027.9" in late.as_text(0.0)
