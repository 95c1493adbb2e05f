"""A run's checkpoint, sink, neighbours and proxies, as the fault matrix reads and uses them."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.cells.credentials import Endpoint, answering, away
from faults.cells.network import Rules, passed
from faults.cells.restarts import says_why
from faults.checkpoint import Checkpoint
from faults.evidence import Batch, Call, Plan, Row
from faults.gather import calls_in, plans_in, rows_in, shown_by
from faults.neighbours import Neighbour
from faults.programs.handling import Handler, HopelessError, RefusedError, outcome_of
from faults.running import Holding, Query, held_by, said_last
from faults.scene import leaks
from spark_kafka_group import Record
from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.options.security import Secret
from spark_kafka_group.options.security.credentials import ClientCredentials
from spark_kafka_group.wire.client.tokens import tokens_of

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
    assert [checkpoint.topics_since(ms) for ms in (0, 250_000)] == [{"t"}, set()]


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


def test_a_neighbour_has_what_it_has_committed_since_it_got_the_partition(tmp_path):
    neighbour = Neighbour(["true"], tmp_path / "out")
    neighbour.process.wait()
    zero, one = ({"topic": "t", "partition": p} for p in (0, 1))
    lines = [
        {"name": "record_data", **zero, "offset": 3, "value": "a"},
        {"name": "record_data", **one, "offset": 3, "value": "b"},
        {"name": "offsets_committed", "success": False, "offsets": [{**zero, "offset": 4}]},
        {"name": "partitions_revoked", "partitions": [one]},
        {"name": "offsets_committed", "success": True, "offsets": [{**zero, "offset": 4}]},
        {"name": "offsets_committed", "success": True, "offsets": [{**one, "offset": 9}]},
        {"name": "record_data", **zero, "offset": 4, "value": "c"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "out").write_text('no JSON\n{"read": "?"}\n' + text + '{"name": "cut')
    assert neighbour.delivered() == [(("t", 0, 3), "a")]
    assert neighbour.in_doubt() == [(("t", 1, 3), "b"), (("t", 0, 4), "c")]


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


def test_what_a_process_holds_is_counted(tmp_path):
    steps = """import socket, sys, threading
print(flush=True); input()
threading.Thread(target=threading.Event().wait, daemon=True).start(); pair = socket.socketpair()
file = open(sys.argv[1], "w"); print(flush=True); input()
"""
    command = [sys.executable, "-c", steps, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        before = held_by(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        now = held_by(process.pid)
        process.communicate("\n")
    assert now == Holding(before.threads + 1, before.descriptors + 3, before.sockets + 2)
    assert held_by(2**22 + 1) is None


def test_a_process_that_has_gained_more_than_comes_and_goes_leaks():
    before = {("reader", 1): Holding(5, 10, 5), ("JVM", 2): Holding(80, 350, 12), ("worker", 3): Holding(2, 10, 6)}
    now = {("reader", 1): Holding(11, 16, 11), ("JVM", 2): Holding(92, 362, 24), ("worker", 4): Holding(90, 90, 90)}
    assert leaks(before, now) == []
    now = {("reader", 1): Holding(12, 16, 11), ("JVM", 2): Holding(80, 363, 12), ("worker", 3): Holding(2, 10, 19)}
    assert leaks(before, now) == [
        "7 threads more in a reader process", "13 descriptors more in a JVM process",
        "13 sockets more in a worker process",
    ]  # fmt: skip
    assert leaks(before, {("worker", 3): Holding(2, 28, 24)}, brokers=3) == []
    assert leaks(before, {("worker", 3): Holding(2, 29, 24)}, brokers=3) != []


def test_a_call_of_a_handler_is_of_the_batch_whose_ranges_have_its_record(tmp_path):
    (tmp_path / "1.tsv").write_text(
        "5.000\tdone\t1\tt\t0\t9\tp0:t:0:9\n6.500\tfailed\t1\tt\t0\t10\tp0:t:0:10\n7.000\tdone\t1\tt\t1\t0\tx\n8.0\tdo"
    )
    batches = [Batch(0, {A: 0}, {A: 10}, 1), Batch(1, {A: 10}, {A: 20}, 2)]
    assert calls_in(tmp_path, batches) == [
        Call(Row(0, "t", 0, 9, "p0:t:0:9"), 1, 5.0, "done"),
        Call(Row(1, "t", 0, 10, "p0:t:0:10"), 1, 6.5, "failed"),
        Call(Row(-1, "t", 1, 0, "x"), 1, 7.0, "done"),
    ]


def test_a_handler_ends_as_the_records_name_says_and_writes_it_down(tmp_path):
    ends = {"done": 0, "failed": 0, "fatal": 0}
    handler = Handler(tmp_path)
    for n in range(400):
        value = f"p0:t:0:{n}"
        try:
            handler(Record(None, value.encode(), "t", 0, n, 7, 0))
            ends["done"] += 1
        except RefusedError:
            ends["failed"] += 1
        except HopelessError:
            ends["fatal"] += 1
    assert all(200 > ends[outcome] > 5 for outcome in ("failed", "fatal"))
    calls = calls_in(tmp_path, [])
    assert [call.row.offset for call in calls] == list(range(400))
    assert {name: sum(call.outcome == name for call in calls) for name in ends} == ends


def test_a_handlers_records_all_end_in_the_last_topic_at_most():
    names = [f"p0:t:0:{n}" for n in range(400)]
    assert {outcome_of(name, 2, True) for name in names} == {"done", "failed", "fatal"}
    for earlier, later in ((0, 1), (1, 2)):
        done = {name for name in names if outcome_of(name, earlier, True) == "done"}
        assert done < {name for name in names if outcome_of(name, later, True) == "done"}


def test_a_plan_that_a_full_disk_cut_off_was_not_planned(tmp_path):
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    plans = [json.dumps({"reader": "r", "batch": batch, "tasks": [[["t", 0, 0, 5]]]}) for batch in (0, 1)]
    (tasks / "query0-1.jsonl").write_text(f"{plans[0]}\n{plans[1][:30]}")
    assert plans_in(tmp_path) == [Plan("query0-1", "r", 0, [[["t", 0, 0, 5]]])]


def test_progress_is_of_the_batches_that_ran_and_of_the_last_trigger(tmp_path):
    def progress(batch, ran, ends, rows, latest):
        return {
            "batchId": batch, "durationMs": {"addBatch": 1} if ran else {}, "numInputRows": rows,
            "sources": [{"endOffset": {"t": ends}, "latestOffset": latest}],
        }  # fmt: skip

    query = Query(tmp_path / "query0", "groupkafka", {}, {}, "parquet")
    query.incarnation, query.began_ms = 2, 50.0
    group = {"@group": {"timestampMs": 70, "lag": 3}}
    first = [progress(0, True, {"0": 4}, 4, None), progress(1, False, {"0": 4}, 0, None)]
    second = [progress(1, True, {"0": 9}, 5, None), progress(2, False, {"0": 9}, 0, group)]
    for number, several in ((1, first), (2, second)):
        text = "".join(json.dumps(one) + "\n" for one in several)
        (query.directory / "progress" / f"query0-{number}.jsonl").write_text(text + '{"cut')
    shown = shown_by(query, at_rest=True, alone=True, until_ms=70)
    assert shown.batches == {0: ({A: 4}, 4), 1: ({A: 9}, 5)}
    assert (shown.sources, shown.since_ms) == ([group], 50.0)
    assert (query.lag(), query.seen_ms()) == (3, 70)
    assert shown_by(query, at_rest=False, alone=False, until_ms=70).batches == {}
    assert shown_by(query, at_rest=False, alone=False, until_ms=70).sources == ()


def test_a_token_endpoint_goes_away_and_comes_back_at_its_port(monkeypatch):
    with Endpoint() as endpoint:
        monkeypatch.setenv("SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS", endpoint.url)
        ask = tokens_of(ClientCredentials(endpoint.url, "query", Secret("a-secret"), None)).token
        with away(endpoint), pytest.raises(BrokerError, match="refused"):
            ask()
        with answering("fails")(endpoint), pytest.raises(BrokerError, match="HTTP 503"):
            ask()
        with answering("refuses")(endpoint), pytest.raises(AuthenticationError, match="HTTP 401"):
            ask()
        assert ask() == ask()
        assert endpoint.granted == 1


def test_a_process_that_was_replaced_has_to_say_it(tmp_path):
    log = tmp_path / "log"
    log.write_text("Traceback\n  at somewhere\ncommitting offsets: another process has joined with this query's id\n\n")
    assert says_why(1, said_last(log))
    assert not says_why(0, said_last(log))
    assert not says_why(1, "stopped; left group billing")
    log.write_text("")
    assert not says_why(1, said_last(log))


def test_a_batch_that_was_planned_when_its_query_was_stopped_is_interrupted(tmp_path):
    stopped = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(143)); print('up', flush=True); signal.pause()"
    )
    query = Query(tmp_path / "query0", "groupkafka", {}, {}, "parquet")
    logged(tmp_path / "query0" / "checkpoint", 0, {"t": {"0": 5}}, done=1.0)
    logged(tmp_path / "query0" / "checkpoint", 1, {"t": {"0": 9}})
    query.prefix = [sys.executable, "-c", stopped]
    query.launch()
    query.wait_for(lambda: "up" in query.log.read_text())
    assert query.stop() == []
    assert query.interrupted == {1}
