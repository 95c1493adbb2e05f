"""Decisions of another query, of a batch with other offsets, without an attempt of a task, or gone with their topic."""

import json

import pytest
from support import committed, name
from support.exactly_once_runs import all_rows, killed, read, rows_of, running_source, transaction_options, unstable

from spark_kafka_group.errors import BrokerError, ProducerFencedError, TransactionError
from spark_kafka_group.executor.writing.task_transaction import TaskTransaction
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient


@pytest.fixture
def checkpoint(tmp_path):
    """Of query q, as Spark makes it."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    return tmp_path


def log(checkpoint, batch, text):
    (checkpoint / "offsets" / str(batch)).write_text(text)


@pytest.mark.parametrize("same_application", [False, True])
def test_of_two_queries_with_one_id_that_run_in_turn_the_first_is_refused(
    kafka, output, run_of, tmp_path, same_application
):
    shared = str(tmp_path) if same_application else None
    first, second = run_of("in-turn", "a", shared), run_of("in-turn", "b", shared)
    first.batch(0)
    messages = [second.task(second.plan(), 0, 0, [b"of b"])]
    second.commit(messages)
    plan = first.plan()
    with pytest.raises(TransactionError, match="batch 1 of query a is not written: batch 0 of query b was written"):
        first.tasks(plan, 1)
    second.commit([second.task(second.plan(), 1, 0, [b"of b, too"])])
    assert read(kafka, output) == sorted([*all_rows(1), b"of b", b"of b, too"])


def test_a_query_does_not_commit_offsets_of_another_ones_source(kafka, group, output, run_of, tmp_path):
    first, second = run_of("of-another", "a", str(tmp_path)), run_of("of-another", "b", str(tmp_path))
    read_from = TopicPartition(output, 0)
    with running_source(tmp_path, first, group, 0, 5):
        first.batch(0)
    with running_source(tmp_path, first, group, 1, 9):
        first.tasks(first.plan(), 1)
        messages = [second.task(second.plan(), 0, 0, [b"of b"])]
        with pytest.raises(TransactionError, match="batch 0 of query b is not published: it would .* of query a"):
            second.commit(messages)
        second.abort(messages)
        assert committed(kafka, group) == {read_from: 5}
        first.batch(1)
    assert committed(kafka, group) == {read_from: 9}
    assert read(kafka, output) == all_rows(2)


@pytest.mark.parametrize(
    ("logged", "refused"),
    [
        ('v1\n{}\n{"logOffset":7}', True),
        ('v1\n{}\n{"output":{"0":5},"@group":{"reader":"r","generation":1}}', False),
        ('v1\n{}\n{"logOffset":7}\n{"another":{"0":5},"@group":{"reader":"r","generation":1}}', False),
        ('v1\n{}\n{"output":{"0":5},"@group":{"reader":"another","generation":1}}', True),  # it reads the same topic
        ('v2\n{}\n0:{"output":{"0":5},"@group":{"reader":"r","generation":1}}', False),  # with names of sources
        ('v1\n{}\n{"output":{"0":5}}', False),  # Spark's own source has planned it
    ],
)
def test_a_query_commits_offsets_of_its_own_sources_alone_where_its_checkpoint_can_be_read(
    kafka, group, output, run_of, checkpoint, logged, refused
):
    run = run_of("own", "q", str(checkpoint), checkpoint=str(checkpoint))
    log(checkpoint, 0, logged.replace("output", output))
    with running_source(checkpoint, run, group, 0, 5):
        if not refused:
            run.batch(0)
        else:
            messages = run.tasks(run.plan(), 0)
            with pytest.raises(
                TransactionError, match="batch 0 of query q is not published: .* another query's source"
            ):
                run.commit(messages)
            run.abort(messages)
    expected = {} if refused else {TopicPartition(output, 0): 5}
    wait_until(lambda: committed(kafka, group) == expected, within=10)  # brokers end a transaction after their answer
    assert read(kafka, output) == ([] if refused else all_rows(1))


def test_where_another_query_came_first_the_error_does_not_say_whose_the_source_is(group, run_of, tmp_path):
    """Before the first decision of an id nothing tells whose its sources are."""
    first, second = run_of("came-first", "a", str(tmp_path)), run_of("came-first", "b", str(tmp_path))
    with running_source(tmp_path, first, group, 0, 5):
        second.batch(0)
        with pytest.raises(
            TransactionError, match="offsets of a source of which batch 0 of query b has committed some"
        ):
            first.batch(0)


def test_a_new_checkpoint_goes_on_with_the_id_also_where_its_first_batch_has_no_rows(kafka, output, run_of):
    run_of("begins", "a").batch(5)
    run = run_of("begins", "b")
    run.commit([run.task(run.plan(), 0, 0, [])])
    run.batch(1)
    assert read(kafka, output) == sorted([*rows_of(1, 0, 3), *rows_of(1, 1, 3), *rows_of(5, 0, 3), *rows_of(5, 1, 3)])


def test_a_batch_write_does_not_take_the_place_of_a_query(run_of):
    query, write = run_of("write", "a"), run_of("write", "write-1")
    query.batch(0)
    write.batch(0)
    with pytest.raises(TransactionError, match="batch 1 of query a is not written: batch write write-1 was written"):
        query.tasks(query.plan(), 1)


def test_a_batch_write_whose_id_was_taken_does_not_abort_the_one_that_has_it(output, kafka, run_of, tmp_path):
    """Both are of one application, and all tasks of the first one fail, so that none says what it has written."""
    replaced, newer = (run_of("taken", query, str(tmp_path)) for query in ("write-1", "write-2"))
    plan = replaced.plan()
    messages = newer.tasks(newer.plan(), 0)
    with pytest.raises(ProducerFencedError):
        replaced.tasks(plan, 0)
    replaced.abort([None, None], plan)
    newer.commit(messages)
    assert read(kafka, output) == all_rows(1)


@pytest.mark.parametrize("rows", [3, 2])
def test_a_batch_that_reads_other_offsets_is_refused_whatever_rows_it_has(kafka, output, run_of, checkpoint, rows):
    run = run_of(checkpoint=str(checkpoint))
    log(checkpoint, 0, "v1 offsets")
    run.batch(0)
    log(checkpoint, 0, "v1 others, as planned from a copy of the checkpoint from before")
    with pytest.raises(TransactionError, match="batch 0 of query q was written, and was to read other offsets then"):
        run.tasks(run.plan(), 0, rows=rows)
    log(checkpoint, 0, "v1 offsets")
    run.batch(0)
    log(checkpoint, 1, "v1 next offsets")
    run.batch(1)
    assert read(kafka, output) == all_rows(2)


def test_a_batch_that_has_fewer_rows_than_were_published_stops_the_query_unless_its_offsets_are_the_same(
    kafka, output, run_of, checkpoint
):
    run, seeing = run_of("fewer"), run_of("fewer", checkpoint=str(checkpoint))
    log(checkpoint, 0, "v1 offsets")
    seeing.batch(0)
    with pytest.raises(TransactionError, match="batch 0 of query q was published with 6 rows, and has 4 now"):
        run.batch(0, rows=2)
    seeing.batch(0, rows=2)
    assert read(kafka, output) == all_rows(1)


def test_decisions_that_were_deleted_with_their_topic_are_missed(kafka, output, run_of):
    run = run_of()
    topic = name("decisions")
    run.options = transaction_options(kafka.bootstrap_servers, run.options.prefix, topic=topic)
    assert killed(run.options, output, 0, "ended", {}) == -9
    kafka.delete_topic(topic)
    wait_until(lambda: topic not in kafka.admin.list_topics(), within=30)
    for _ in range(2):
        with pytest.raises(TransactionError, match=f"topic {topic} has no decision, though {run.options.prefix}-0-0-0"):
            run.tasks(run.plan(), 0)
    assert read(kafka, output) == all_rows(1)
    run.query = "write-1"
    run.commit([run.task(run.plan(), 0, 0, [b"of a batch write"])])
    assert b"of a batch write" in read(kafka, output)


def test_another_decision_topic_than_before_is_noticed(kafka, output, run_of):
    run_of("moved", topic=name("decisions")).batch(0)
    run = run_of("moved", topic=(other := name("decisions")))
    with pytest.raises(TransactionError, match=f"topic {other} has no decision"):
        run.tasks(run.plan(), 0)


@pytest.mark.parametrize("late", ["begins", "has written"])
def test_an_attempt_that_is_late_leaves_nothing_open_after_the_last_batch(kafka, output, run_of, monkeypatch, late):
    run = run_of()
    plan = run.plan()
    messages = run.tasks(plan, 0)
    begin = TaskTransaction.begin

    def begun(transaction):
        producer = begin(transaction)
        run.commit(messages)  # between its beginning and its last row
        return producer

    if late == "begins":
        run.commit(messages)
    else:
        monkeypatch.setattr(TaskTransaction, "begin", begun)
    with pytest.raises(ProducerFencedError, match="the batch was decided without this attempt of its task"):
        run.task(plan, 0, 1, rows_of(0, 1, 3), attempt=1)
    wait_until(lambda: unstable(kafka, output) == [], within=10)
    assert read(kafka, output) == all_rows(1)


@pytest.mark.parametrize(("query", "refuses_late_tasks"), [("q", True), ("write-1", True), ("write-1", False)])
def test_an_attempt_that_is_over_right_before_the_decision_leaves_nothing_open(
    kafka, output, run_of, monkeypatch, query, refuses_late_tasks
):
    run = run_of(query=query)
    plan = run.plan()
    messages = run.tasks(plan, 0)
    appended = DecisionLog.append

    def decided(*decision, **more):
        run.task(plan, 0, 1, rows_of(0, 1, 3), attempt=1)
        monkeypatch.setattr(DecisionLog, "append", appended)
        return appended(*decision, **more)

    def not_taken(client, transactional_id, *more):
        raise BrokerError("its coordinator is away")

    if not refuses_late_tasks:
        monkeypatch.setattr(TransactionClient, "take_id", not_taken)
    monkeypatch.setattr(DecisionLog, "append", decided)
    run.commit(messages)
    wait_until(lambda: unstable(kafka, output) == [], within=10)
    assert read(kafka, output) == all_rows(1)


def test_a_task_whose_driver_is_replaced_as_it_begins_takes_no_id_that_the_other_drivers_task_has(
    kafka, output, run_of, monkeypatch
):
    older, newer, messages = run_of("late-take"), run_of("late-take"), []
    plan, describe = older.plan(), TransactionClient.describe

    def described(client, transactional_ids):
        found = describe(client, transactional_ids)
        if not messages:
            messages.append(None)
            messages[:] = newer.tasks(newer.plan(), 0)
        return found

    monkeypatch.setattr(TransactionClient, "describe", described)
    with pytest.raises(ProducerFencedError, match="another driver has taken it since this task was planned"):
        older.task(plan, 0, 0, rows_of(0, 0, 3))
    newer.commit(messages)
    assert read(kafka, output) == all_rows(1)


def test_a_function_with_two_ids_is_told_of_no_other_one_and_a_lookup_that_fails_costs_no_batch(
    kafka, output, run_of, caplog, monkeypatch
):
    query = name("query")
    first, second, third = (run_of(prefix, query) for prefix in ("both-a", "both-b", "both-c"))
    first.batch(0)
    first.run = second.run = "one run"
    first.batch(1)
    second.batch(1)
    assert "before" not in caplog.text

    def fails(self, text):
        raise BrokerError("no answer")

    monkeypatch.setattr(DecisionLog, "last_with", fails)
    third.batch(1)
    assert read(kafka, output) == sorted(all_rows(2) + [row for slot in (0, 1) for row in rows_of(1, slot, 3)] * 2)


def test_a_batch_that_is_written_again_with_another_id_is_told(kafka, output, run_of, caplog):
    query = name("query")
    first, second, third = (run_of(prefix, query) for prefix in ("told-a", "told-b", "told-c"))
    for batch in (0, 1):
        first.batch(batch)
    assert "before" not in caplog.text
    second.batch(1)
    told = f"batch 1 of query {query} was published with kafka.transactional.id {first.options.prefix} before"
    assert f"{second.options.prefix}: {told}" in caplog.text
    caplog.clear()
    second.batch(2)
    third.batch(3)  # the one before it has ended
    assert "before" not in caplog.text
    assert read(kafka, output) == sorted(all_rows(4) + [row for slot in (0, 1) for row in rows_of(1, slot, 3)])
