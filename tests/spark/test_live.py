"""Bars and lines of reads that run, in a terminal and without one."""

import os
import pty
import re
import signal
import sys
import termios
import threading

import pytest
from support import committed, numbered, options, produce, topic_with

from spark_kafka_group import group_batch, submit
from spark_kafka_group.live import RowCounts, bar, watch
from spark_kafka_group.live.watch import note
from spark_kafka_group.testing import wait_until


class Terminal:
    """A terminal of 80 columns, and the text that is written to it."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (24, 80))
        os.set_blocking(self.master, False)
        self._ends = [self.master, self.slave]
        self.path = os.ttyname(self.slave)
        self._text = b""

    @property
    def text(self):
        try:
            while read := os.read(self.master, 65536):
                self._text += read
        except BlockingIOError:
            pass
        return self._text.decode()

    def hang_up(self):
        while self._ends:
            os.close(self._ends.pop())


@pytest.fixture
def terminal(monkeypatch):
    made = Terminal()
    monkeypatch.setattr(bar, "TERMINAL", made.path)
    monkeypatch.setenv("COLUMNS", "80")
    yield made
    made.hang_up()


@pytest.fixture
def no_terminal(monkeypatch, tmp_path):
    monkeypatch.setattr(bar, "TERMINAL", str(tmp_path / "none" / "tty"))


@pytest.fixture
def query_of(spark, tmp_path):
    started = []

    def start(settings, name=None, **trigger):
        stream = spark.readStream.format("groupkafka").options(**settings).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / f"c{len(started)}"))
        started.append((writer.queryName(name) if name else writer).trigger(**trigger).start())
        return started[-1]

    yield start
    for query in started:
        query.stop()


def test_a_long_name_leaves_room_for_the_numbers_of_a_bar(terminal):
    with bar.bar(f"group spark-kafka-source-{'0d6f7b8c-' * 6}driver-0\x1b[2J") as drawn:
        drawn.show(RowCounts(5, 5), "lag 5")
    assert re.search(r"group spark-….*-0\\x1b\[2J:  50%.* 5\.00/10\.0 .*, lag 5\]", terminal.text)


def test_rows_of_before_a_view_are_in_its_count_and_not_in_its_rate(terminal):
    with bar.bar("query", 1_000_000) as drawn:
        drawn.show(RowCounts(1_000_000, 1_000_000), "")
    assert re.search(r"query:  50%.* 1\.00M/2\.00M \[.*\? rows/s", terminal.text)


def test_a_batch_of_a_group_has_a_bar_of_its_records(spark, kafka, group, terminal):
    topic = topic_with(kafka, numbered(300, 3))
    with group_batch(spark, options(kafka, topic, group, startingOffsets="group"), progress=True) as batch:
        batch.df.write.format("noop").mode("overwrite").save()
    assert f"group {group}:   0%" in terminal.text
    assert re.search(rf"group {group}: 100%\|.*\| 300/300 \[", terminal.text)


def test_a_block_that_raises_leaves_the_bar_where_it_was(spark, kafka, group, terminal):
    topic = topic_with(kafka, numbered(30, 3))
    settings = options(kafka, topic, group, startingOffsets="group")
    with pytest.raises(RuntimeError, match="no disk"), group_batch(spark, settings, progress=True):
        raise RuntimeError("no disk")
    assert "100%" not in terminal.text


def test_a_terminal_that_goes_away_leaves_the_read_alone(spark, kafka, group, terminal):
    topic = topic_with(kafka, numbered(300, 3))
    with group_batch(spark, options(kafka, topic, group, startingOffsets="group"), progress=True) as batch:
        terminal.hang_up()
        assert batch.df.count() == 300
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}


@pytest.mark.soak
def test_a_job_that_is_followed_has_its_lines_above_a_bar(kafka, group, terminal, query_of):
    topic = topic_with(kafka, numbered(300, 3))
    query = query_of(options(kafka, topic, group, maxOffsetsPerTrigger=150), f"q{group}", availableNow=True)
    submit.follow(query, progress=True)
    assert re.findall(r"generation +\d+  records +(\d+) .* lag +(\d+)", terminal.text) == [("150", "150"), ("150", "0")]
    assert re.search(rf"q{group}: 100%\|.*\| 300/300 \[.*, lag 0\]", terminal.text)
    assert max(len(line) for line in re.split(r"[\r\n]+", terminal.text)) <= 80


def test_without_a_terminal_there_are_lines_alone(kafka, group, no_terminal, query_of, capsys):
    topic = topic_with(kafka, numbered(30, 3))
    submit.follow(query_of(options(kafka, topic, group), availableNow=True), progress=True)
    watch(query_of(options(kafka, topic, f"{group}-2"), availableNow=True))
    shown = capsys.readouterr()
    assert re.fullmatch(r"(batch     0  generation    1  records        30 .* lag         0\n){2}", shown.out)
    assert shown.err == ""


def test_ctrl_c_ends_the_view_and_not_the_query(kafka, group, terminal, query_of, capsys):
    topic = topic_with(kafka, numbered(300, 3))
    query = query_of(options(kafka, topic, group), processingTime="200 milliseconds")

    def press():
        try:
            wait_until(lambda: "300/300" in terminal.text, within=60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=press)
    before = signal.getsignal(signal.SIGINT)
    presses.start()
    watch(query)
    presses.join()
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().out == "the view has ended; the query goes on: query.stop() stops it\n"
    assert "300/300" in terminal.text
    produce(kafka, topic, numbered(30, 3))
    wait_until(lambda: sum(p.numInputRows for p in query.recentProgress) == 330, within=60)


def test_a_notebooks_bar_is_as_full_as_its_numbers_say():
    made = pytest.importorskip("tqdm.notebook").tqdm(display=False)
    drawn = bar.Bar(made)
    (widget,) = [part for part in made.container.children if hasattr(part, "max")]
    for rows, lag in ((0, 0), (30, 70), (100, 20)):
        drawn.show(RowCounts(rows, lag), "")
        assert (widget.value, widget.max, widget.layout.width) == ((rows, rows + lag, None) if lag else (0, 1, "20px"))
    drawn.close()


@pytest.mark.soak
def test_a_view_of_some_seconds_ends_and_the_query_goes_on(kafka, group, terminal, query_of, capsys):
    topic = topic_with(kafka, numbered(300, 3))
    query = query_of(options(kafka, topic, group), processingTime="10000 days")
    wait_until(lambda: query.recentProgress, within=60)
    for _ in range(2):  # the cell runs again
        before = len(terminal.text)
        watch(query, seconds=0.1)
        assert re.search(r"query: 100%\|.*\| 300/300 \[.*, lag 0\]", terminal.text[before:])
        assert capsys.readouterr().out == "the view has ended; the query goes on: query.stop() stops it\n"
    assert query.isActive
    assert note(query, RowCounts()) == ""  # the lag is not known before the first micro-batch has ended
    assert note(query, RowCounts(1)) == "lag 0"


def test_a_batch_without_new_records_says_so(spark, kafka, group, terminal):
    topic = topic_with(kafka, [], partitions=1)
    with group_batch(spark, options(kafka, topic, group, startingOffsets="group"), progress=True) as batch:
        assert batch.records == 0
    assert "no new records]" in terminal.text


@pytest.mark.parametrize("ours", [True, False], ids=["beside groupkafka", "alone"])
@pytest.mark.soak
def test_a_source_of_others_has_rows_and_neither_lag_nor_generation(spark, kafka, group, no_terminal, capsys, ours):
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load().selectExpr("value")
    if ours:
        settings = options(kafka, topic_with(kafka, numbered(30, 3)), group)
        rows = rows.union(spark.readStream.format("groupkafka").options(**settings).load().selectExpr("offset"))
    query = rows.writeStream.format("noop").start()
    try:
        wait_until(lambda: any(batch.numInputRows for batch in query.recentProgress), within=60)
        watch(query, seconds=2)
    finally:
        query.stop()
    generation = r"\d+" if ours else "-"
    assert re.search(rf"^batch +\d+  generation +{generation}  records +\d+ .* lag +0$", capsys.readouterr().out, re.M)


def test_an_error_of_the_query_is_that_of_the_view(kafka, group, no_terminal, query_of):
    topic = topic_with(kafka, numbered(30, 3))
    query = query_of(options(kafka, topic, group, startingOffsets=f'{{"{topic}": {{"7": 1}}}}'), availableNow=True)
    with pytest.raises(Exception, match="7"):
        watch(query)


def test_a_bar_without_tqdm_names_the_extra(spark, kafka, group, terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    settings = options(kafka, topic, group, startingOffsets="group")
    with (
        pytest.raises(ImportError, match="pip install tqdm, or install this package with the extra notebook"),
        group_batch(spark, settings, progress=True),
    ):
        pass
