"""A run's checkpoint, sink, neighbours and proxies, as the fault matrix reads and uses them."""

import json
import os
import socket
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from matrix.cells.neighbours import Neighbour
from matrix.cells.network import Rules, passed
from matrix.cells.restarts import says_why
from matrix.checkpoint import Checkpoint
from matrix.observed import Row
from matrix.running import said_last
from matrix.sink import rows_in

A, B = ("t", 0), ("t", 1)


def logged(directory, number, *sources, done=None):
    for log in ("offsets", "commits"):
        (directory / log).mkdir(parents=True, exist_ok=True)
    lines = [source if isinstance(source, str) else json.dumps(source) for source in sources]
    (directory / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines]))
    if done is not None:
        path = directory / "commits" / str(number)
        path.write_text("v1\n{}")
        os.utime(path, (done, done))


def test_a_batch_begins_where_the_last_one_ended_or_where_the_source_says(tmp_path):
    logged(tmp_path, 0, {"t": {"0": 10}, "@group": {"generation": 1, "batch": 0}}, done=100)
    moved = {"generation": 2, "batch": 1, "from": {"t": {"1": 5}}}
    logged(tmp_path, 1, {"t": {"0": 14, "1": 7}, "@group": moved}, done=200)
    logged(tmp_path, 2, {"t": {"0": 20, "1": 7}, "@group": {"generation": 3, "batch": 2}})
    checkpoint = Checkpoint(tmp_path, {A: 4, B: 0})
    first, second, third = checkpoint.batches()
    assert (first.starts, first.ends, first.done_ms, first.records) == ({A: 4}, {A: 10}, 100_000, 6)
    assert (second.starts, second.records, second.generation, second.of_source) == ({A: 10, B: 5}, 6, 2, 1)
    assert (third.done_ms, third.records) == (None, 6)
    assert checkpoint.ends() == {A: 14, B: 7}
    assert [checkpoint.done_since(ms) for ms in (0, 150_000, 250_000)] == [12, 6, 0]


def test_partitions_that_were_given_back_keep_their_position(tmp_path):
    logged(tmp_path, 0, {"t": {"0": 10, "1": 10}, "@group": {}}, done=1)
    logged(tmp_path, 1, {"t": {"0": 12}, "@group": {"left": {"t": {"1": 10}}}}, done=2)
    logged(tmp_path, 2, {"t": {"0": 12, "1": 15}, "@group": {}}, done=3)
    assert [batch.records for batch in Checkpoint(tmp_path, {}).batches()] == [20, 2, 5]


def test_several_sources_of_a_query_are_read_together(tmp_path):
    logged(tmp_path, 0, {"t": {"0": 10}, "@group": {}}, "-", done=1)
    logged(tmp_path, 1, {"t": {"0": 11}, "@group": {}}, {"u": {"0": 3}}, done=2)
    checkpoint = Checkpoint(tmp_path, {})
    assert checkpoint.ends() == {A: 11, ("u", 0): 3}
    assert [batch.records for batch in checkpoint.batches()] == [10, 4]


def file_of(path, *offsets):
    rows = {"topic": ["t"] * len(offsets), "partition": [0] * len(offsets), "offset": offsets}
    pq.write_table(pa.table(rows | {"value": [f"v{offset}" for offset in offsets]}), path)
    return path


def rows(batch, *offsets):
    return [Row(batch, "t", 0, offset, f"v{offset}") for offset in offsets]


def entry(path):
    return json.dumps({"path": path.as_uri(), "action": "add"})


def test_rows_of_the_file_sink_are_those_of_its_log_and_no_others(tmp_path):
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    first, second = (file_of(tmp_path / f"part {n}.parquet", n) for n in (1, 2))
    file_of(tmp_path / "of a batch that was killed.parquet", 3)
    (log / "0").write_text(f"v1\n{entry(first)}")
    (log / "1.compact").write_text(f"v1\n{entry(first)}\n{entry(second)}")
    (log / ".2.crc").write_text("")
    assert rows_in(tmp_path) == rows(0, 1) + rows(1, 2)


def test_rows_of_other_sinks_are_those_of_jobs_that_succeeded(tmp_path):
    for batch, success in ((0, True), (1, False)):
        folder = tmp_path / f"batch={batch}"
        folder.mkdir()
        file_of(folder / "a.parquet", batch)
        if success:
            (folder / "_SUCCESS").touch()
    assert rows_in(tmp_path) == rows(0, 0)


@pytest.mark.parametrize(
    "lines",
    [
        [{"read": ["a", "b"]}, {"committed": True}, {"read": ["c"]}, {"failed": "x"}, {"read": ["c"]}],
        [
            {"name": "record_data", "value": "a"}, {"name": "record_data", "value": "b"},
            {"name": "offsets_committed", "success": True}, {"name": "record_data", "value": "c"},
            {"name": "offsets_committed", "success": False},
        ],
    ],
)  # fmt: skip
def test_a_neighbours_records_are_its_own_once_it_says_that_they_are_committed(tmp_path, lines):
    neighbour = Neighbour(["true"], tmp_path / "out")
    neighbour.process.wait()
    (tmp_path / "out").write_text("noise\n" + "".join(json.dumps(line) + "\n" for line in lines) + '{"read": ["cut')
    assert neighbour.delivered() == ["a", "b"]
    assert set(neighbour.in_doubt()) == {"c"}


@pytest.fixture
def line():
    """A client and a broker with a proxy between them, its rules, and whether it goes on."""
    client, inner = socket.socketpair()
    outer, broker = socket.socketpair()
    rules = Rules()

    def serve():
        with inner, outer:
            passed(inner, outer, rules)

    thread = threading.Thread(target=serve)
    thread.start()
    client.settimeout(10)
    broker.settimeout(10)
    yield client, broker, rules
    rules.mend()
    client.close()
    broker.close()
    thread.join()


def test_a_proxy_passes_bytes_both_ways_delays_them_and_keeps_them_while_it_is_silent(line):
    client, broker, rules = line
    client.sendall(b"there")
    assert broker.recv(100) == b"there"
    rules.delay_s = 0.3
    began = time.monotonic()
    broker.sendall(b"back")
    assert client.recv(100) == b"back"
    assert time.monotonic() - began >= 0.3
    rules.silent = True
    client.sendall(b"later")
    broker.settimeout(0.3)
    with pytest.raises(TimeoutError):
        broker.recv(100)
    rules.mend()
    broker.settimeout(10)
    assert broker.recv(100) == b"later"


def test_a_proxy_cuts_a_connection_when_its_time_is_over(line):
    client, broker, rules = line
    rules.cut_every(0.1, 0.2)
    assert client.recv(100) == broker.recv(100) == b""


def test_a_process_that_was_replaced_has_to_say_it(tmp_path):
    log = tmp_path / "log"
    log.write_text("Traceback\n  at somewhere\ncommitting offsets: another process has joined with this query's id\n\n")
    assert says_why(1, said_last(log))
    assert not says_why(0, said_last(log))
    assert not says_why(1, "stopped; left group billing")
    log.write_text("")
    assert not says_why(1, said_last(log))
