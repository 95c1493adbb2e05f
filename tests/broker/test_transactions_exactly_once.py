"""Exactly-once batches on real brokers: each row is published once, whatever dies, and whenever."""

import dataclasses
import os

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import TopicPartition
from support import name
from support.exactly_once_runs import KILL_POINTS, all_rows, killed, read, rows_of, transaction_options, unstable

from spark_kafka_group.errors import BrokerError, ProducerFencedError, TransactionError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire.transactions import transaction_client
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient


def test_batches_are_published_once_each(kafka, output, run_of):
    run = run_of()
    for batch in range(3):
        run.batch(batch)
    assert read(kafka, output) == all_rows(3)
    assert unstable(kafka, output) == []


def test_batches_of_one_application_take_the_prefix_once_each(kafka, output, run_of, tmp_path):
    run = run_of(shared=str(tmp_path))
    epochs = []
    for batch in range(3):
        epochs.append(run.batch(batch)[0].planned.driver.epoch)
        assert len(list(tmp_path.iterdir())) == 1
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]
    assert read(kafka, output) == all_rows(3)


@pytest.mark.parametrize("where", KILL_POINTS)
def test_a_driver_that_is_killed_at_any_step_publishes_each_row_once(kafka, output, run_of, where):
    run = run_of()
    run.batch(0)
    assert killed(run.options, output, 1, where, {}) == -9
    run.batch(1)
    run.batch(2)
    assert read(kafka, output) == all_rows(3)
    assert unstable(kafka, output) == []


@pytest.mark.parametrize("where", ["flushed", "deciding", "decided", "half ended"])
@pytest.mark.soak
def test_a_driver_that_is_killed_again_and_again_publishes_each_row_once(kafka, output, run_of, where):
    run = run_of()
    for _ in range(3):
        killed(run.options, output, 0, where, {})
    run.batch(0)
    assert read(kafka, output) == all_rows(1)


def test_tasks_of_a_batch_that_was_decided_write_nothing(kafka, output, run_of):
    run = run_of()
    killed(run.options, output, 0, "decided", {})
    plan = run.plan()
    assert read(kafka, output) == all_rows(1)
    messages = run.tasks(plan, 0)
    assert [message.transaction for message in messages] == [None, None]
    run.commit(messages)
    assert read(kafka, output, "read_uncommitted") == all_rows(1)


def test_two_drivers_of_one_prefix_cannot_both_decide(kafka, output, run_of):
    older, newer = run_of("two-drivers"), run_of("two-drivers")
    messages = older.tasks(older.plan(), 0)
    again = newer.tasks(newer.plan(), 0)
    with pytest.raises((ProducerFencedError, TransactionError)):
        older.commit(messages)
    older.abort(messages)
    newer.commit(again)
    assert read(kafka, output) == all_rows(1)
    assert unstable(kafka, output) == []


@pytest.mark.parametrize("marks", ["different", "the same"])
def test_a_driver_that_was_replaced_between_its_batches_is_refused_and_the_other_goes_on(
    kafka, output, run_of, tmp_path, monkeypatch, marks
):
    if marks == "the same":
        monkeypatch.setattr(transaction_client, "randbelow", lambda limit: 7)
    older, newer = run_of("replaced", shared=str(tmp_path)), run_of("replaced")
    older.batch(0)
    newer.batch(1)
    messages = newer.tasks(newer.plan(), 2)
    with pytest.raises(ProducerFencedError, match="another process"):
        older.plan()
    newer.commit(messages)
    assert read(kafka, output) == all_rows(3)


@pytest.mark.parametrize("ends", ["plans", "aborts"])
def test_a_driver_that_was_replaced_leaves_the_decision_of_the_other_alone(
    kafka, output, run_of, tmp_path, monkeypatch, ends
):
    older, newer = run_of("replaced-while", shared=str(tmp_path)), run_of("replaced-while")
    older.batch(0)
    late = older.tasks(older.plan(), 1) if ends == "aborts" else None
    messages = newer.tasks(newer.plan(), 1)
    write, come_back = PartitionClient.write, []

    def meanwhile(self, *arguments):
        """The older one is back while the transaction of the decision is open."""
        if not come_back:
            come_back.append(ends)
            if late is None:
                with pytest.raises(ProducerFencedError, match="another process"):
                    older.plan()
            else:
                older.abort(late)
        return write(self, *arguments)

    monkeypatch.setattr(PartitionClient, "write", meanwhile)
    newer.commit(messages)
    assert come_back
    assert read(kafka, output) == all_rows(2)
    assert unstable(kafka, output) == []


def test_transactions_of_a_producer_that_was_replaced_are_aborted_and_not_those_of_the_other(kafka, output, run_of):
    run, one = run_of(), name("task")
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        older, newer = client.take_id(one, 60_000), client.take_id(one, 60_000)
        client.add(one, newer, [TopicPartition(output, 0)])
        client.abort_all({one: older})
        assert client.commit(one, newer)
        again = client.take_id(one, 60_000, expected=newer)
        client.add(one, again, [TopicPartition(output, 0)])
        client.abort_all({one: again})
        assert not client.commit(one, again)


def test_a_late_task_of_a_driver_that_was_replaced_touches_no_task_of_the_other(kafka, output, run_of):
    older, newer = run_of("late-task"), run_of("late-task")
    plan = older.plan()
    messages = newer.tasks(newer.plan(), 0)
    with pytest.raises(ProducerFencedError, match="another driver"):
        older.task(plan, 0, 0, rows_of(0, 0, 3))
    newer.commit(messages)
    assert read(kafka, output) == all_rows(1)


def test_a_second_attempt_aborts_nothing_and_only_the_reported_one_is_published(kafka, output, run_of):
    run = run_of()
    plan = run.plan()
    reported = run.task(plan, 0, 0, rows_of(0, 0, 3), attempt=0)
    run.task(plan, 0, 0, rows_of(0, 0, 3), attempt=1)  # speculative: it flushed, and Spark denied its commit
    other_stage = run.task(plan, 0, 1, rows_of(0, 1, 3), attempt=0)
    again = run.task(plan, 0, 1, rows_of(0, 1, 3), attempt=0)  # an attempt of the stage made again has the same number
    assert other_stage.transaction.transactional_id != again.transaction.transactional_id
    run.commit([reported, again])
    assert read(kafka, output) == all_rows(1)
    assert unstable(kafka, output) == []


def test_abort_after_a_failed_commit_leaves_a_batch_that_was_decided(kafka, output, run_of, monkeypatch):
    from spark_kafka_group.transactions import deciding

    run = run_of()
    messages = run.tasks(run.plan(), 0)

    def lost(*_):
        raise ConnectionError("the driver's network is gone")

    with monkeypatch.context() as patched:
        patched.setattr(deciding, "finish", lost)
        with pytest.raises(ConnectionError):
            run.commit(messages)
    run.abort([*messages, None])
    assert read(kafka, output) == []
    run.batch(0)
    assert read(kafka, output) == all_rows(1)


def test_abort_of_a_batch_that_was_not_decided_aborts_all_of_it(kafka, output, run_of):
    run = run_of()
    messages = run.tasks(run.plan(), 0)
    run.task(messages[0].planned, 0, 2, rows_of(0, 2, 3))  # a task that Spark says nothing about
    run.abort([*messages, None])
    assert unstable(kafka, output) == []
    run.batch(0)
    assert read(kafka, output) == all_rows(1)


def test_another_query_with_the_same_prefix_writes_its_first_batches(kafka, output, run_of):
    run_of("new-checkpoint", query="a").batch(5)
    run = run_of("new-checkpoint", query="b")
    run.commit([run.task(run.plan(), 0, 0, [b"of b"])])
    assert b"of b" in read(kafka, output)


def test_a_checkpoint_that_is_older_than_the_last_batch_is_refused(kafka, output, run_of):
    run = run_of()
    run.batch(7)
    with pytest.raises(TransactionError, match="batch 5 comes after batch 7 of query q was written"):
        run.tasks(run.plan(), 5)


def test_ids_are_used_again_by_later_batches(kafka, output, run_of):
    run = run_of()
    used = {m.transaction.transactional_id for batch in range(6) for m in run.batch(batch)}
    prefix = run.options.prefix
    assert used == {f"{prefix}-{slot}-0-{parity}" for slot in (0, 1) for parity in (0, 1)}


@pytest.mark.parametrize("lacking", [["describes"], ["describes", "takes_expected"]])
def test_rows_are_published_once_without_the_requests_that_older_brokers_lack(
    kafka, output, run_of, tmp_path, monkeypatch, lacking
):
    for ability in lacking:
        monkeypatch.setattr(TransactionClient, ability, property(lambda _: False))
    run, other = run_of("older-brokers", shared=str(tmp_path)), run_of("older-brokers")
    run.batch(0)
    run.tasks(run.plan(), 1)
    run.batch(1)
    run.abort(run.tasks(run.plan(), 2))
    messages = run.tasks(run.plan(), 2)
    other.plan()
    with pytest.raises(ProducerFencedError):
        run.commit(messages)
    other.batch(2)
    assert read(kafka, output) == all_rows(3)
    assert unstable(kafka, output) == []


def test_a_batch_of_which_no_task_has_said_anything_is_aborted_in_the_same_application(kafka, output, run_of, tmp_path):
    run = run_of(shared=str(tmp_path))
    run.batch(0)
    run.tasks(run.plan(), 1)
    assert unstable(kafka, output) == [0, 1]
    run.abort([None, None])
    assert unstable(kafka, output) == []
    run.batch(1)
    assert read(kafka, output) == all_rows(2)


def set_policy(kafka, topic, policy):
    """Set cleanup.policy, and wait until the broker, which hears of it from its controller, says so."""
    kafka.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": policy})])
    topics = [ConfigResource(ConfigResourceType.TOPIC, topic)]
    described = kafka.admin.describe_configs
    wait_until(lambda: described(topics)["topic"][topic]["cleanup.policy"]["value"] == policy, within=30)


def test_decisions_are_found_behind_records_that_were_deleted(kafka, output, run_of):
    run = run_of()
    topic = kafka.create_topic(name("decisions"), configs={"cleanup.policy": "compact,delete"})
    run.options = transaction_options(kafka.bootstrap_servers, run.options.prefix, topic=topic)
    with pytest.raises(BrokerError, match=f"topic {topic} has cleanup.policy=compact,delete"):
        run.plan()
    set_policy(kafka, topic, "compact")
    run.batch(0)
    run.batch(1)
    set_policy(kafka, topic, "delete")
    kafka.admin.delete_records({TopicPartition(topic, 0): 2})  # the first decision, and its marker
    set_policy(kafka, topic, "compact")
    run.batch(1)
    assert read(kafka, output) == all_rows(2)


def test_a_plan_that_stands_still_after_it_has_taken_the_prefix_aborts_nothing_of_the_next_one(
    kafka, output, run_of, monkeypatch
):
    older, newer = run_of("still"), run_of("still")
    open_of, messages = TransactionClient.open_of, []

    def late(client, prefix):
        if not messages:
            messages.append(None)  # the newer plan lists, too
            messages[:] = newer.tasks(newer.plan(), 0)
        return open_of(client, prefix)

    monkeypatch.setattr(TransactionClient, "open_of", late)
    with pytest.raises(ProducerFencedError, match="another driver has taken it since"):
        older.plan()
    newer.commit(messages)
    assert read(kafka, output) == all_rows(1)


def test_a_batch_without_rows_that_ends_late_aborts_nothing_of_the_next_driver(kafka, output, run_of):
    older, newer = run_of("empty"), run_of("empty")
    without_rows = [older.task(older.plan(), 0, 0, [])]
    messages = newer.tasks(newer.plan(), 0)
    with pytest.raises(ProducerFencedError, match="another driver has taken it since this batch was planned"):
        older.commit(without_rows)
    newer.commit(messages)
    assert read(kafka, output) == all_rows(1)


def test_a_batch_that_has_more_rows_than_were_published_stops_the_query(kafka, output, run_of):
    run = run_of()
    run.batch(0)
    for _ in range(2):
        messages = run.tasks(run.plan(), 0, rows=4)
        with pytest.raises(TransactionError, match="batch 0 of query q was published with 6 rows, and has 8 now"):
            run.commit(messages)
        run.abort(messages)
    assert read(kafka, output) == all_rows(1)
    run.batch(0)
    run.batch(1)
    assert read(kafka, output) == all_rows(2)


def test_a_batch_is_written_once_in_a_run_of_a_query_and_by_none_that_follows(kafka, output, run_of):
    first, second = run_of("runs"), run_of("runs")
    first.run, second.run = "run-1", "run-2"
    first.batch(0)
    plan = first.plan()
    with pytest.raises(TransactionError, match="a write before this one has written batch 0 of query q"):
        first.tasks(plan, 0)
    assert [message.transaction for message in second.batch(0)] == [None, None]
    second.batch(1)
    assert read(kafka, output) == all_rows(2)


def test_a_decision_may_be_longer_than_topics_take_by_default(kafka, run_of):
    run = run_of()
    value = os.urandom(3 * 1024 * 1024)
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        decisions = DecisionLog(client, name("decisions"))
        decisions.prepare()
        decisions.append(run.options.prefix, value, client.take_id(run.options.prefix, 60_000), 0)
        assert decisions.last(run.options.prefix) == (0, value)


def test_a_decision_is_found_by_a_leader_that_does_not_know_yet_how_far_its_records_are_readable(
    kafka, run_of, monkeypatch
):
    run = run_of()
    run.batch(0)
    fetch, asked = PartitionClient.fetch, []

    def lagging(client, tp, offset, committed):
        found = fetch(client, tp, offset, committed)
        if tp.topic == run.options.transacting.decision_topic and len(asked) < 2:
            asked.append(tp)
            return dataclasses.replace(found, records=b"")
        return found

    monkeypatch.setattr(PartitionClient, "fetch", lagging)
    assert run.plan().last.batch == ("q", 0)
    assert len(asked) == 2


def test_a_batch_of_which_a_task_says_nothing_is_not_published(kafka, output, run_of):
    run = run_of()
    messages = run.tasks(run.plan(), 0)
    with pytest.raises(TransactionError, match="1 of its tasks have not said what they wrote"):
        run.commit([messages[0], None])
    run.abort([messages[0], None])
    run.batch(0)
    assert read(kafka, output) == all_rows(1)


def test_an_attempt_that_begins_after_the_end_of_a_batch_write_is_refused(kafka, output, run_of, tmp_path):
    run = run_of(query="write-1", shared=str(tmp_path))
    plan = run.plan()
    run.commit(run.tasks(plan, 0))
    with pytest.raises(ProducerFencedError, match="another driver has taken it since this task was planned"):
        run.task(plan, 0, 1, rows_of(0, 1, 3), attempt=1)
    assert unstable(kafka, output) == []
    run.query = "write-2"
    run.batch(0)
    assert read(kafka, output) == sorted([*all_rows(1), *all_rows(1)])
