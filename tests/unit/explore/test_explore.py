"""Tables of explored topics and groups, as text and on a page."""

from datetime import UTC, datetime, timedelta

from spark_kafka_group.explore.decoded import decoded
from spark_kafka_group.explore.group_lag import Lag
from spark_kafka_group.explore.looking import Message, Messages
from spark_kafka_group.explore.record_rate import Interval, Rate
from spark_kafka_group.explore.shown_table import Laid, as_html
from spark_kafka_group.text import text_table
from spark_kafka_group.tools.describe import PartitionRow
from spark_kafka_group.values.commit_metadata import Writer
from spark_kafka_group.values.offsets import TopicPartition

READER = "0d6f7b8c-4c1e-4b62-9f3e-7d0a5b1c2e3f"
LONG = "spark-kafka-source-0d6f7b8c-4c1e-4b62-9f3e-7d0a5b1c2e3f-1234567890-driver-0"


def row(partition, committed, end):
    lag = None if end is None else end - committed
    return PartitionRow(TopicPartition("orders", partition), committed, end, lag, None, None, None, None)


def written_rows():
    """Partitions of one member, with commits of a query."""
    note = Writer(READER, 12, 345)
    tps = [TopicPartition("orders", partition) for partition in range(3)]
    return tuple(PartitionRow(tp, 120, 1_000_120, 1_000_000, 3.25, None, None, note) for tp in tps)


def test_a_commit_beyond_the_end_takes_nothing_from_the_lag_in_a_table():
    lag = Lag((row(0, 900, 100), row(1, 50, 57), row(2, 5, None)), "billing", "Empty")
    assert lag.records == 7
    assert lag.title().endswith("7 records behind")
    assert str(lag).endswith("\n1 partition without a commit or a leader, whose lag is not known")
    assert Lag((row(1, 50, 57),), "billing", "Empty").remark() == ""


def test_the_lag_of_a_group_names_the_batch_on_a_terminal_and_also_the_generation_on_a_page():
    lag = Lag(written_rows(), "billing", "Stable")
    header, *lines = str(lag).splitlines()[1:]
    assert header.split()[-2:] == ["written", "by"]
    assert all(line.endswith("f:345") and len(line) <= 80 for line in lines)
    page = lag._repr_html_()
    left, right = (f' style="text-align:{side}">' for side in ("left", "right"))
    assert f"<th{left}written by</th><th{right}generation</th></tr>" in page
    reader = text_table.shortened(f"{READER}:345", 26)
    assert f"<td{left}{reader}</td><td{right}12</td></tr>" in page
    assert READER in str(lag.values(lag[0]))


def test_a_long_name_leaves_room_for_the_facts_behind_it():
    lag = Lag(written_rows(), LONG, "Stable")
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
