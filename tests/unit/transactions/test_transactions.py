"""Decisions of exactly-once writes, and what is made of them; nothing is started."""

import dataclasses
import threading
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.errors import OptionError, TransactionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.options.transacting import Transacting, TransactionOptions
from spark_kafka_group.transactions import checkpoint_log, last_batch, resolution
from spark_kafka_group.transactions.checkpoint_log import logged_batch
from spark_kafka_group.transactions.finishing import leftovers
from spark_kafka_group.transactions.last_batch import LastBatch
from spark_kafka_group.transactions.mending import Choice, SeenTransactions, steps
from spark_kafka_group.transactions.planning import digest
from spark_kafka_group.transactions.resolution import Kind, resolved, why_not_decided
from spark_kafka_group.values.exactly_once import (
    BatchId,
    Decision,
    ProducerIdAndEpoch,
    SourceBatch,
    State,
    TaskTransactionWritten,
)
from spark_kafka_group.values.files import make_folder, put, remove
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.planned_transactions import PlannedTransactions
from spark_kafka_group.values.source_offsets import LiveSource, SourceOffsets, folder_of
from spark_kafka_group.values.transactional_ids import TaskId, pattern
from spark_kafka_group.wire.transactions.transaction_ends import End
from spark_kafka_group.wire.transactions.transaction_requests import Described

OF_3 = BatchId("q", 3)


def written(number, epoch=0):
    tp = TopicPartition("out", number)
    return TaskTransactionWritten(f"w-{number}-0-0", ProducerIdAndEpoch(100 + number, epoch), {tp: 7})


def described(number, state="Ongoing", epoch=0, started_ms=0, timeout_ms=900_000):
    tps = (TopicPartition("out", number),)
    return Described(f"w-{number}-0-0", state, ProducerIdAndEpoch(100 + number, epoch), timeout_ms, started_ms, tps)


def plan(last=None, doubt=None):
    return PlannedTransactions("w", ProducerIdAndEpoch(1, 2), 900_000, last, 0, doubt, True, "write-1")


@pytest.mark.parametrize(
    ("rows", "more", "same"),
    [
        (5, {}, True),
        (4, {}, True),  # partitions that others have now may not be read again, and nothing tells
        (4, {"of": ()}, False),
        (4, {"of": (), "logged": ("a", "a")}, True),
        (4, {"of": (), "logged": ("a", "")}, False),
        (6, {}, False),
        (6, {"logged": ("a", "a")}, False),
        (6, {"of": (SourceBatch("r", 3, {}),)}, True),  # a handler makes more of the same records
        (6, {"of": (SourceBatch("r", 3, {}),), "logged": ("a", "a")}, True),
        (6, {"of": (SourceBatch("r", 3, {}),), "logged": ("a", "")}, False),
        (6, {"state": State.SETTLED}, True),
        (6, {"rows": -1}, True),
        (6, {"sources": "offsets"}, True),
    ],
)
def test_a_batch_that_was_decided_has_the_same_rows_when_it_is_run_again(rows, more, same):
    given = {"state": State.DECIDED, "rows": 5, "sources": "", "of": None, "logged": ("", "")} | more
    then, now = given["logged"]
    last = dataclasses.replace(decided(state=given["state"]), rows=given["rows"], logged=then, sources=given["of"])
    again = dataclasses.replace(plan(last), sources=given["sources"], logged=now)
    assert (again.why_not_the_same(rows) is None) == same


def decided(batch=OF_3, state=State.DECIDED, transactions=()):
    return Decision(batch, state, 1, tuple(transactions))


@pytest.mark.parametrize(
    ("ends", "kind", "because_of"),
    [
        ([], Kind.FINISHED, []),
        ([End.COMMITTED, End.COMMITTED], Kind.FINISHED, []),
        ([End.ABORTED, End.ABORTED], Kind.REVOKE, [0, 1]),
        ([End.COMMITTED, End.ABORTED], Kind.LOST, [1]),
        ([End.COMMITTED, End.UNKNOWN], Kind.DOUBTFUL, [1]),
        ([End.ABORTED, End.UNKNOWN], Kind.DOUBTFUL, [1]),
        ([End.ABORTED, End.UNKNOWN, End.COMMITTED], Kind.LOST, [0]),
    ],
)
def test_a_decided_batch_comes_to_what_its_transactions_came_to(ends, kind, because_of):
    every = [written(number) for number in range(len(ends))]
    found = resolved(every, {one.transactional_id: end for one, end in zip(every, ends, strict=True)})
    assert (found.kind, list(found.because_of)) == (kind, [every[number] for number in because_of])


def test_a_batch_is_decided_if_all_of_its_transactions_are_open_and_have_time():
    every = [written(0), written(1)]

    def why(*found, now_ms=1000):
        return why_not_decided(every, {one.transactional_id: one for one in found}, now_ms)

    assert why(described(0), described(1)) is None
    assert "wrote to out-1 have ended" in why(described(0))
    assert "wrote to out-1 have ended" in why(described(0), described(1, state="CompleteAbort"))
    assert "wrote to out-0 have ended" in why(described(0, epoch=1), described(1))
    assert why(described(0), described(1), now_ms=890_000) is None
    assert "wrote to out-0, out-1 is almost over" in why(described(0), described(1), now_ms=890_001)
    assert why(described(0, timeout_ms=1000), described(1), now_ms=900) is None
    assert "wrote to out-0 is almost over" in why(described(0, timeout_ms=1000), described(1), now_ms=901)


def test_a_batch_that_used_half_of_its_time_is_warned_of():
    found = [described(0), described(1, started_ms=400_000), described(2, state="Empty")]
    assert resolution.slowest(found, 450_000) is None
    assert resolution.slowest(found, 450_001) == found[0]


def test_tasks_write_unless_their_batch_was_decided():
    assert not plan().is_written(OF_3)
    assert plan(decided()).is_written(OF_3)
    assert plan(decided(state=State.SETTLED)).is_written(OF_3)
    assert not plan(decided(state=State.REVOKED)).is_written(OF_3)
    assert not plan(decided()).is_written(BatchId("q", 4))
    assert not plan(decided()).is_written(BatchId("another", 0))
    with pytest.raises(TransactionError, match="batch 1 of query another is not written: batch 3 of query q was"):
        plan(decided()).is_written(BatchId("another", 1))
    with pytest.raises(TransactionError, match="batch 2 comes after batch 3"):
        plan(decided()).is_written(BatchId("q", 2))


def test_a_doubt_stops_a_query_unless_spark_has_the_batch():
    for batch in (OF_3, BatchId("another", 0)):
        with pytest.raises(TransactionError, match="who knows"):
            plan(decided(), "who knows").is_written(batch)
    assert not plan(decided(), "who knows").is_written(BatchId("q", 4))


def test_a_batch_that_reads_other_offsets_than_the_decided_one_is_another_one():
    then = dataclasses.replace(decided(), logged="then")
    assert dataclasses.replace(plan(then), logged="then").is_written(OF_3)
    assert plan(then).is_written(OF_3)  # the checkpoint cannot be read
    now = dataclasses.replace(plan(then), logged="now")
    with pytest.raises(TransactionError, match="batch 3 of query q was written, and was to read other offsets then"):
        now.is_written(OF_3)
    assert not now.is_written(BatchId("q", 4))
    revoked = dataclasses.replace(then, state=State.REVOKED)
    assert not dataclasses.replace(now, last=revoked).is_written(OF_3)


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({"generation": 4, "member_id": "m-2", "metadata": "by 4"}, True),
        ({"offsets": {TopicPartition("t", 0): 6}}, False),
        ({"offsets": {}}, False),
        ({"batch": 8}, False),
        ({"query_id": "s"}, False),
        ({"group_id": "another"}, False),
    ],
)
def test_a_source_that_reads_the_same_batch_in_a_later_generation_is_the_one_that_was_planned(more, same):
    planned = SourceOffsets("g", 3, "m-1", None, "r", 7, "by 3", {TopicPartition("t", 0): 5})
    assert (digest([planned]) == digest([dataclasses.replace(planned, **more)])) is same
    assert digest([planned]) != digest([]) == ""


def test_decisions_that_are_gone_stop_queries_and_no_batch_write():
    gone = dataclasses.replace(plan(), forgotten="gone")
    assert not gone.is_written(BatchId("write-1", 0))
    with pytest.raises(TransactionError, match="gone"):
        gone.is_written(OF_3)


@pytest.mark.parametrize(("place", "found"), [("{}", True), ("file:{}", True), ("file://{}", True), ("s3:/{}", False)])
def test_what_spark_has_logged_of_a_batch_is_known_where_the_checkpoint_is_a_local_folder(tmp_path, place, found):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    checkpoint = place.format(tmp_path)
    assert logged_batch(checkpoint, OF_3) == ""
    (tmp_path / "offsets" / "3").write_text("v1")
    first = logged_batch(checkpoint, OF_3)
    (tmp_path / "offsets" / "3").write_text("v1 later")
    assert (first != "" and logged_batch(checkpoint, OF_3) not in ("", first)) == found
    assert logged_batch(checkpoint, BatchId("another", 3)) == ""
    assert logged_batch(None, OF_3) == ""


def test_ids_of_the_last_decision_are_left_alone():
    assert (plan().parity, plan(decided()).parity) == (0, 0)
    assert plan(dataclasses.replace(decided(), parity=0)).parity == 1


def test_leftovers_are_all_but_what_the_decision_names():
    found = {one.transactional_id: one for one in (described(0), described(1, epoch=5), described(2))}
    assert leftovers(found, [written(0), written(1)]) == {
        "w-1-0-0": ProducerIdAndEpoch(101, 5),
        "w-2-0-0": ProducerIdAndEpoch(102, 0),
    }


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b-1"]), st.integers(0, 99))
PRODUCERS = st.builds(ProducerIdAndEpoch, st.integers(0, 2**63 - 1), st.integers(0, 2**15))
TRANSACTIONS = st.builds(
    TaskTransactionWritten, st.text(max_size=9), PRODUCERS, st.dictionaries(PARTITIONS, st.integers(-1, 2**62))
)


SOURCES = st.builds(
    SourceBatch, st.text(max_size=9), st.integers(0, 2**40), st.dictionaries(PARTITIONS, st.integers(0, 2**62))
)


@given(
    st.text(min_size=1, max_size=20),
    st.integers(0, 2**40),
    st.sampled_from(State),
    st.integers(0, 1),
    st.lists(TRANSACTIONS, max_size=3),
    st.integers(-1, 2**40),
    st.text(max_size=20),
    st.text(max_size=20),
    st.none() | st.lists(SOURCES, max_size=2).map(tuple),
)
def test_a_decision_is_read_as_it_was_written(query, batch, state, parity, transactions, rows, run, logged, sources):
    decision = Decision(BatchId(query, batch), state, parity, tuple(transactions), rows, run, logged, sources)
    assert Decision.from_json(decision.to_json()) == decision


def test_a_decision_in_short_names_its_sources():
    source = SourceBatch("r", 7, {TopicPartition("in", 0): 5})
    whole = dataclasses.replace(decided(transactions=[written(0)]), sources=(source,))
    assert whole.in_short == dataclasses.replace(decided(), sources=(SourceBatch("r", 7, {}),))
    assert [dataclasses.replace(whole, sources=of).in_short.sources for of in ((), None)] == [(), None]


def test_a_decision_of_an_earlier_version_says_nothing_of_sources():
    raw = b'{"version":1,"query":"q","batch":3,"state":"decided","parity":1,"transactions":[]}'
    assert Decision.from_json(raw) == decided()
    assert decided().sources is None


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1}', b'{"version":1,"query":"q","batch":"x"}', b"\xff",
            b'{"version":1,"query":"q","batch":1,"state":"decided","parity":0,"transactions":[{"id":"a","producer":[1]}]}',
            b'{"version":1,"query":"q","batch":1,"state":"new","parity":0,"transactions":[]}'],
)  # fmt: skip
def test_a_decision_of_others_is_an_error(raw):
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds; the text follows the record's place
        Decision.from_json(raw)


@given(st.text(max_size=12), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 1))
def test_an_id_is_read_as_it_was_made(prefix, slot, number, parity):
    made = TaskId(slot, number, parity)
    assert TaskId.parsed(made.transactional_id(prefix), prefix) == made


@pytest.mark.parametrize(
    "other", ["w", "w-1", "w-1-2", "w-1-2-3-0", "w-1-2-2", "w-1-2-0 ", "v-1-2-0", "w-1--2-0", "w-a-2-0"]
)
def test_ids_of_others_are_not_taken_for_tasks(other):
    assert TaskId.parsed(other, "w") is None


@pytest.mark.parametrize(
    ("prefix", "refused"),
    [("job-2025-10-1", True), ("job-1-2-0", True), ("-1-2-0", True), ("job-2025-11-25", False), ("job-1-2-0-a", False)],
)
def test_an_id_that_a_task_of_another_write_may_have_is_no_prefix(prefix, refused):
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "deliveryGuarantee": "exactly-once"}
    source = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    for parse, options in ((SinkOptions.parse, given), (Options.parse, source)):
        with pytest.raises(OptionError, match="must not end as the id of a task does") if refused else nullcontext():
            parse(options | {"kafka.transactional.id": prefix})


def test_brokers_are_given_a_pattern_for_the_ids_of_a_prefix():
    import re

    assert re.fullmatch(pattern("a.b"), "a.b-1-0-1")
    assert re.fullmatch(pattern("a.b"), "a.b")
    assert not re.fullmatch(pattern("a.b"), "aXb")
    assert not re.fullmatch(pattern("a.b"), "a.b-1-0-1-0")


def test_a_commit_is_found_once_by_the_next_batch_of_the_same_prefix_cluster_and_timeout(tmp_path):
    def options(prefix="w", servers="h:1", timeout_ms=None):
        given = {"kafka.bootstrap.servers": servers, "subscribe": "t"}
        return TransactionOptions(Options.parse(given).client, Transacting(prefix, timeout_ms))

    planned = LastBatch(ProducerIdAndEpoch(1, 2), 900_000, True, decided(), 17, ended=False)
    last_batch.leave(options(), tmp_path, planned)
    assert last_batch.take_ended(options(), tmp_path) is None
    assert last_batch.planned_last(options(), tmp_path) == planned
    assert last_batch.planned_last(options(servers="other:1"), tmp_path) is None
    assert last_batch.planned_with("r", 7, "w", tmp_path) is None
    of_a_source = dataclasses.replace(planned, sources=(("r", 7),))
    last_batch.leave(options(), tmp_path, of_a_source)
    assert last_batch.planned_with("r", 7, "w", tmp_path) == of_a_source
    assert last_batch.planned_with("r", 8, "w", tmp_path) is None
    last = dataclasses.replace(planned, ended=True)
    last_batch.leave(options(), tmp_path, last)
    assert last_batch.take_ended(options("v"), tmp_path) is None
    assert last_batch.take_ended(options(servers="other:1"), tmp_path) is None
    assert last_batch.take_ended(options(timeout_ms=1_000), tmp_path) is None
    assert last_batch.take_ended(options(), tmp_path) == last
    assert last_batch.take_ended(options(), tmp_path) is None
    last_batch.leave(options(), None, last)
    assert last_batch.take_ended(options(), None) is None


BATCH = "of batch 3 of query q"
AGAIN = "have batch 3 of query q be written again at the next start"


@pytest.mark.parametrize(
    ("ends", "choice", "expected"),
    [
        ([None, None], Choice.COMMIT, [f"commit 2 open transactions {BATCH}"]),
        ([None, End.COMMITTED], Choice.ABORT, [f"commit 1 open transaction {BATCH}"]),
        ([End.COMMITTED, End.COMMITTED], Choice.ABORT, []),
        ([End.ABORTED, End.ABORTED], Choice.COMMIT, [AGAIN]),
        ([None, End.ABORTED], Choice.ABORT, [f"abort 1 open transaction {BATCH}", AGAIN]),
        ([End.COMMITTED, End.ABORTED], Choice.ABORT, [f"{AGAIN}; rows that it published to out-0 are there twice"]),
        ([End.COMMITTED, End.UNKNOWN], Choice.COMMIT, ["have batch 3 of query q count as published, though what"]),
    ],
)
def test_the_tool_says_what_it_does(ends, choice, expected):
    every = [written(number) for number in range(len(ends))]
    seen = SeenTransactions(
        "w", decided(transactions=every), {o.transactional_id: e for o, e in zip(every, ends, strict=True)}, ()
    )
    said = steps(seen, choice)
    assert len(said) == len(expected)
    assert all(step.startswith(start) for step, start in zip(said, expected, strict=True))


@pytest.fixture
def running_with(tmp_path):
    """A source of query r that has an id, and runs a batch, which is the newest one in a checkpoint."""
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    for batch, reader in ((9, "before"), (10, "r")):
        (tmp_path / "checkpoint" / "offsets" / str(batch)).write_text(
            f'v1\n{{}}\n{{"@group": {{"reader": "{reader}"}}}}'
        )
    made = []

    def make(transactional_id, reader="r"):
        path = folder_of(tmp_path, transactional_id) / f"{reader}.json"
        make_folder(path.parent, tmp_path)
        running = SourceOffsets("g", 1, "m", None, reader, 0, "", {})
        made.append((put(path, LiveSource(reader, 1, running=running).to_text()), path))
        return made[-1]

    yield make
    for file, path in made:
        if not file.closed:
            remove(file, path)


class TestIdOfSource:
    @pytest.mark.parametrize(("sink", "says"), [("d2", "give both the same"), (None, "give the sink the same one")])
    def test_a_sink_with_another_id_than_its_source_is_refused(self, running_with, tmp_path, monkeypatch, sink, says):
        monkeypatch.setattr(checkpoint_log, "GOES_WITHIN_S", 0.1)
        running_with("d1")
        for checkpoint in (tmp_path / "checkpoint", f"file:{tmp_path}/checkpoint"):
            with pytest.raises(OptionError, match=says):
                checkpoint_log.check(sink, str(checkpoint), tmp_path)

    def test_a_sink_that_is_not_of_the_same_query_is_not_refused_for_its_id(self, running_with, tmp_path):
        running_with("d1")
        running_with("d3", reader="of another query")
        checkpoint = str(tmp_path / "checkpoint")
        checkpoint_log.check("d1", checkpoint, tmp_path)
        checkpoint_log.check("d2", None, tmp_path)
        checkpoint_log.check("d2", f"{checkpoint}-of-nothing", tmp_path)
        checkpoint_log.check("d2", checkpoint, None)
        (tmp_path / "checkpoint" / "offsets" / "11").write_text('v1\n{}\n{"@group": {"reader": "another"}}')
        checkpoint_log.check("d2", checkpoint, tmp_path)

    def test_a_source_of_the_last_run_may_take_a_moment_to_end(self, running_with, tmp_path):
        ending = threading.Timer(0.3, remove, running_with("d1"))
        ending.start()
        checkpoint_log.check("d2", str(tmp_path / "checkpoint"), tmp_path)
        ending.join()
