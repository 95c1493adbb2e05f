"""Transactions that brokers have aborted, or forgotten, between a batch's decision and its end: it is noticed."""

import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kafka.structs import TopicPartition as KafkaTopicPartition
from support import name, options
from support.exactly_once_runs import (
    Run,
    all_rows,
    killed,
    read,
    rows_of,
    set_transaction_version,
    transaction_options,
    unstable,
)
from support.transactions import Writer

from spark_kafka_group.__main__ import main
from spark_kafka_group.driver.steps.sink_transaction import SinkTransaction
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    ProducerFencedError,
    TransactionError,
    TransactionLostError,
)
from spark_kafka_group.options import Options, transacting
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.cluster import KafkaCluster
from spark_kafka_group.transactions import deciding, finishing
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import LAST_EPOCH, TransactionClient
from spark_kafka_group.wire.transactions.transaction_requests import init_producer_id

SHORT_MS = 3_000


@pytest.fixture(scope="module")
def impatient():
    """A broker that aborts transactions as soon as their time is over, and allows long ones."""
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "transaction.max.timeout.ms": "1234000",
    }
    with KafkaCluster(properties=settings) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def formerly():
    """The same, but with an aborted transaction's epoch being raised for good, as before Kafka 4."""
    with KafkaCluster(properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as kafka:
        set_transaction_version(kafka, 1)
        yield kafka


@pytest.fixture(scope="module")
def hurried():
    """A broker that allows transactions of some seconds alone, and takes records outside of any, as before 3.6."""
    settings = {"transaction.max.timeout.ms": "20000", "transaction.partition.verification.enable": "false"}
    with KafkaCluster(properties=settings) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def forgetful():
    """A broker that forgets transactional ids that are not used for some seconds."""
    forgetting = {
        "transactional.id.expiration.ms": "4000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with KafkaCluster(properties=forgetting) as kafka:
        yield kafka


def output_of(kafka):
    return kafka.create_topic(name("output"), partitions=2)


def run_on(kafka, output, timeout_ms=None):
    return Run(transaction_options(kafka.bootstrap_servers, name("w"), timeout_ms), output)


def wait_until_aborted(kafka, output):
    wait_until(lambda: unstable(kafka, output) == [], within=30)


def wait_until_forgotten(run):
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        ids = [f"{run.options.prefix}-{slot}-0-0" for slot in (0, 1)]
        wait_until(lambda: not client.describe(ids), within=60)


def test_a_batch_that_is_too_slow_is_not_published_and_is_written_again(impatient):
    output = output_of(impatient)
    run = run_on(impatient, output, SHORT_MS)
    messages = run.tasks(run.plan(), 0)
    wait_until_aborted(impatient, output)
    with pytest.raises(TransactionError, match=f"is not published: .* wrote to {output}-0, {output}-1 have ended") as e:
        run.commit(messages)
    assert "Raise kafka.transaction.timeout.ms" in str(e.value)
    run.abort(messages)
    run.batch(0)
    assert read(impatient, output) == all_rows(1)


def test_a_batch_of_which_all_was_aborted_after_the_decision_is_written_again(impatient):
    output = output_of(impatient)
    run = run_on(impatient, output, SHORT_MS)
    assert killed(run.options, output, 0, "decided", {}) == -9
    wait_until_aborted(impatient, output)
    plan = run.plan()
    assert read(impatient, output) == []
    run.commit(run.tasks(plan, 0))
    run.batch(1)
    assert read(impatient, output) == all_rows(2)


def test_a_commit_that_finds_all_aborted_after_its_decision_says_so_and_the_batch_is_written_again(
    impatient, monkeypatch
):
    output = output_of(impatient)
    run = run_on(impatient, output, SHORT_MS)
    messages = run.tasks(run.plan(), 0)
    finish = deciding.finish

    def late(client, decisions, decision):
        wait_until_aborted(impatient, output)
        return finish(client, decisions, decision)

    with monkeypatch.context() as patched:
        patched.setattr(deciding, "finish", late)
        with pytest.raises(TransactionError, match="batch 0 of query q is not published: .* written again"):
            run.commit(messages)
    run.abort(messages)
    run.batch(0)
    assert read(impatient, output) == all_rows(1)


def test_a_batch_of_which_a_part_was_aborted_after_the_decision_stops_the_query(impatient):
    output = output_of(impatient)
    run = run_on(impatient, output, SHORT_MS)
    assert killed(run.options, output, 0, "half ended", {}) == -9
    wait_until_aborted(impatient, output)
    for _ in range(2):
        with pytest.raises(TransactionLostError, match="was published in part") as error:
            run.plan()
    assert f"wrote to {output}-0, {output}-1 were aborted" in str(error.value)
    assert f"transactions --transactional-id {run.options.prefix} commit" in str(error.value)


def test_a_batch_that_was_published_is_known_to_be_when_brokers_have_forgotten_its_transactions(forgetful):
    output = output_of(forgetful)
    run = run_on(forgetful, output)
    assert killed(run.options, output, 0, "ended", {}) == -9
    wait_until_forgotten(run)
    plan = run.plan()
    assert plan.doubt is None
    run.commit(run.tasks(plan, 0))
    assert read(forgetful, output, "read_uncommitted") == all_rows(1)


def test_a_batch_of_which_nobody_knows_whether_it_was_published_stops_the_query_unless_spark_knows(forgetful):
    output = output_of(forgetful)
    run = run_on(forgetful, output)
    assert killed(run.options, output, 0, "ended", {}) == -9
    wait_until_forgotten(run)
    tps = [KafkaTopicPartition(output, number) for number in (0, 1)]
    forgetful.admin.delete_records(dict.fromkeys(tps, -1))
    plan = run.plan()
    with pytest.raises(TransactionError, match="it is not known whether all of batch 0 of query q was published"):
        run.tasks(plan, 0)
    messages = run.tasks(plan, 1)
    run.commit(messages)
    assert read(forgetful, output) == sorted(set(all_rows(2)) - set(all_rows(1)))


def test_the_driver_s_own_transaction_holds_offsets_up_for_no_longer_than_a_minute(kafka, tmp_path):
    """Where it tries for no longer than that to end it: by kafka.delivery.timeout.ms."""
    run = run_on(kafka, output_of(kafka))
    run.shared = tmp_path
    for batch in (0, 1):
        plan = run.plan()
        assert plan.timeout_ms == 900_000
        with TransactionClient(run.options.client, "tests", 30_000) as client:
            assert 60_000 <= client.describe([run.options.prefix])[run.options.prefix].timeout_ms <= 61_000
        run.commit(run.tasks(plan, batch))


def deciding_late(monkeypatch, wait_s):
    """Brokers that take so long until they have the decision's record."""
    write = PartitionClient.write

    def late(client, tp, *record):
        if tp.topic == DECISION_TOPIC:
            time.sleep(wait_s)
        return write(client, tp, *record)

    monkeypatch.setattr(PartitionClient, "write", late)


def test_the_driver_gives_a_decision_up_before_brokers_abort_its_transaction(impatient, monkeypatch):
    """Also where no single request of it takes as long as kafka.delivery.timeout.ms."""
    output = output_of(impatient)
    run = Run(transaction_options(impatient.bootstrap_servers, name("w"), limit_ms=3000), output)
    messages = run.tasks(run.plan(), 0)
    add = TransactionClient.add
    with monkeypatch.context() as patched:
        patched.setattr(TransactionClient, "add", lambda *given: (add(*given), time.sleep(1.7)))
        deciding_late(patched, 1.7)
        with pytest.raises(BrokerTimeoutError, match="kafka.delivery.timeout.ms is over"):
            run.commit(messages)
    run.abort(messages)
    run.batch(0)
    assert read(impatient, output) == all_rows(1)


def test_a_decision_that_brokers_have_aborted_for_its_age_is_not_taken_for_another_drivers(impatient, monkeypatch):
    output = output_of(impatient)
    run = run_on(impatient, output, SHORT_MS)
    messages = run.tasks(run.plan(), 0)
    with monkeypatch.context() as patched:
        deciding_late(patched, SHORT_MS / 1000 + 1)
        with pytest.raises(
            TransactionError, match="brokers took . s for the decision, and .* after 3 s. It is written"
        ):
            run.commit(messages)
    run.abort(messages)
    run.batch(0)
    assert read(impatient, output) == all_rows(1)


@pytest.mark.parametrize("broker", ["impatient", "formerly"])
def test_a_batch_whose_decision_was_aborted_for_its_age_leaves_nothing_open(broker, monkeypatch, request):
    kafka = request.getfixturevalue(broker)
    monkeypatch.setattr(transacting, "SHORTEST_MS", 2_000)
    output = output_of(kafka)
    run = Run(transaction_options(kafka.bootstrap_servers, name("w"), 600_000, limit_ms=2_000), output)
    messages = run.tasks(run.plan(), 0)
    with monkeypatch.context() as patched:
        deciding_late(patched, 3.0)
        with pytest.raises(BrokerTimeoutError, match="kafka.delivery.timeout.ms is over"):
            run.commit(messages)
    assert len(unstable(kafka, output)) == 2
    run.abort(messages)
    wait_until_aborted(kafka, output)
    run.batch(0)
    assert read(kafka, output) == all_rows(1)


def test_a_driver_whose_clock_is_ahead_publishes_its_batches(kafka, monkeypatch, caplog):
    output = output_of(kafka)
    run = run_on(kafka, output)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    run.batch(0)
    monkeypatch.undo()
    assert read(kafka, output) == all_rows(1)
    assert "kafka.transaction.timeout.ms allows" not in caplog.text


def test_the_timeout_is_the_longest_that_brokers_allow(impatient, hurried, forgetful):
    found = {kafka: run_on(kafka, output_of(kafka)).plan().timeout_ms for kafka in (impatient, hurried, forgetful)}
    assert found == {impatient: 1_234_000, hurried: 20_000, forgetful: 900_000}


def test_a_batch_that_used_most_of_its_time_is_published_and_warned_of(impatient, caplog):
    output = output_of(impatient)
    run = run_on(impatient, output, 2 * SHORT_MS)
    messages = run.tasks(run.plan(), 0)
    time.sleep(SHORT_MS / 1000)
    run.commit(messages)
    assert read(impatient, output) == all_rows(1)
    assert re.search(r"the batch took [345] s of the 6 s that kafka\.transaction\.timeout\.ms allows", caplog.text)


def test_a_timeout_that_brokers_do_not_allow_is_refused_before_any_task_starts(impatient):
    run = run_on(impatient, output_of(impatient), 2**31 - 1)
    with pytest.raises(BrokerError, match="transaction.max.timeout.ms: lower it"):
        run.plan()


def test_a_record_of_a_task_that_comes_after_its_transaction_was_aborted_is_refused(hurried):
    """It would be outside of any transaction, and readers of committed records would wait for its end for ever."""
    run, task = run_on(hurried, output_of(hurried)), name("task")
    tp = TopicPartition(run.topic, 0)
    with TransactionClient(run.options.client, "tests", 15_000) as client:
        logs, producer = PartitionClient(client), client.take_id(task, 10_000)
        client.add(task, producer, [tp])
        logs.write(tp, b"key", b"first", task, producer, 0)
        client.abort_all({task: producer})
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
            logs.write(tp, b"key", b"late", task, producer, 1)
    assert unstable(hurried, run.topic) == []


def test_brokers_that_allow_only_short_transactions_are_no_reason_not_to_start_again(hurried, tmp_path):
    """The source takes the sink's id, with a timeout of its own."""
    output, group = output_of(hurried), name("group")
    run = run_on(hurried, output)
    run.tasks(run.plan(), 0)
    query = SimpleNamespace(query_id="r", options=Options.parse(options(hurried, output, group)))
    assert SinkTransaction(query, run.options.prefix, tmp_path).decided(0) is None
    run.batch(0)
    assert read(hurried, output) == all_rows(1)


@pytest.mark.parametrize("where", ["flushed", "decided"])
def test_brokers_that_allow_only_short_transactions_are_no_reason_not_to_end_them_with_the_tool(hurried, where):
    output = output_of(hurried)
    run = run_on(hurried, output)
    assert killed(run.options, output, 0, where, {}) == -9
    given = ["--bootstrap-server", hurried.bootstrap_servers, "--transactional-id", run.options.prefix]
    assert main(["transactions", *given, "abort", "--execute"]) == 0
    assert unstable(hurried, output) == []
    run.batch(0 if where == "flushed" else 1)


def delete(kafka, topic):
    kafka.admin.delete_topics([topic])
    wait_until(lambda: topic not in kafka.admin.list_topics(), within=30)


@pytest.fixture
def soon(monkeypatch):
    """Lookups of partitions that are gone do not take long."""
    monkeypatch.setattr(finishing, "LOOKED_UP_WITHIN_S", 1.0)


@pytest.mark.parametrize("aborted", [0, 1])
def test_a_batch_of_which_nothing_was_committed_when_a_part_was_aborted_is_written_again_as_a_whole(forgetful, aborted):
    """Also where the part that is open began before the other one in the same partitions."""
    output = output_of(forgetful)
    run = run_on(forgetful, output)
    assert killed(run.options, output, 0, "decided", {}) == -9
    end_early(run, aborted)
    plan = run.plan()
    assert unstable(forgetful, output) == []
    assert read(forgetful, output) == []
    run.commit(run.tasks(plan, 0))
    run.batch(1)
    assert read(forgetful, output) == all_rows(2)


def end_early(run, *slots):
    """Abort transactions of tasks, as brokers do when their time is over."""
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        found = client.open_of(run.options.prefix)
        chosen = [found[f"{run.options.prefix}-{slot}-0-0"] for slot in slots]
        client.abort_all({one.transactional_id: one.producer for one in chosen})


def test_what_was_aborted_is_known_though_an_older_transaction_of_others_is_open(forgetful):
    output = output_of(forgetful)
    run = run_on(forgetful, output)
    with Writer(forgetful, output) as other:
        other.write(1)
        assert killed(run.options, output, 0, "decided", {}) == -9
        end_early(run, 0, 1)
        plan = run.plan()
        assert plan.doubt is None
        run.commit(run.tasks(plan, 0))
    assert read(forgetful, output) == all_rows(1)


def is_written_again_as_a_whole(kafka, monkeypatch, run, messages, output):
    """Its decision takes until brokers have aborted one of two transactions."""
    append = DecisionLog.append

    def late(self, key, *value, **more):
        offset = append(self, key, *value, **more)
        patched.undo()
        with TransactionClient(run.options.client, "tests", 30_000) as client:
            wait_until(lambda: len(client.open_of(key)) == 1, within=30)
        return offset

    with monkeypatch.context() as patched:
        patched.setattr(DecisionLog, "append", late)
        with pytest.raises(TransactionError, match="batch 0 of query q is not published: .* written again"):
            run.commit(messages)
    run.abort(messages)
    assert read(kafka, output) == []
    run.batch(0)
    assert read(kafka, output) == all_rows(1)


def test_a_batch_whose_decision_takes_so_long_that_a_part_is_aborted_is_written_again_as_a_whole(
    impatient, monkeypatch
):
    output = output_of(impatient)
    run = run_on(impatient, output, 60_000)
    plan = run.plan()
    short = replace(plan, timeout_ms=SHORT_MS)
    messages = [run.task(plan, 0, 0, rows_of(0, 0, 3)), run.task(short, 0, 1, rows_of(0, 1, 3))]
    is_written_again_as_a_whole(impatient, monkeypatch, run, messages, output)


@pytest.mark.parametrize("planned", [False, True], ids=["is behind", "is set back while the batch runs"])
@pytest.mark.soak
def test_a_batch_of_a_driver_whose_clock_is_wrong_is_written_again_as_a_whole(impatient, monkeypatch, planned):
    output = output_of(impatient)
    run = run_on(impatient, output, 2 * SHORT_MS)
    plan = run.plan() if planned else None
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 3600)
    plan = plan or run.plan()
    messages = [run.task(plan, 0, 0, rows_of(0, 0, 3))]
    time.sleep(SHORT_MS / 1000)
    messages.append(run.task(plan, 0, 1, rows_of(0, 1, 3)))
    is_written_again_as_a_whole(impatient, monkeypatch, run, messages, output)


@pytest.mark.parametrize("off_s", [-3600, 0, 3600])
@pytest.mark.soak
def test_a_batch_whose_time_is_almost_over_is_not_decided_whatever_the_drivers_clock_says(
    impatient, monkeypatch, off_s
):
    output = output_of(impatient)
    run = run_on(impatient, output, 4 * SHORT_MS)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + off_s)
    plan = run.plan()
    messages = [run.task(plan, 0, 0, rows_of(0, 0, 3))]
    time.sleep(4 * SHORT_MS / 1000 * 0.92)
    messages.append(run.task(plan, 0, 1, []))
    with pytest.raises(TransactionError, match="the batch is not published: the(ir)? time .* over"):
        run.commit(messages)
    run.abort(messages)
    run.batch(0)
    assert read(impatient, output) == all_rows(1)


def test_a_batch_write_long_after_the_last_one_needs_nothing_of_it(forgetful):
    output = output_of(forgetful)
    run = run_on(forgetful, output)
    Run(run.options, output, "write-1").batch(0)
    wait_until_forgotten(run)
    delete(forgetful, output)
    run.topic = output_of(forgetful)
    run.query = "write-2"
    run.batch(0)
    assert read(forgetful, run.topic) == all_rows(1)


@pytest.mark.soak
def test_a_topic_that_was_deleted_is_no_reason_to_wait(forgetful, soon):
    output = output_of(forgetful)
    run = Run(transaction_options(forgetful.bootstrap_servers, name("w"), limit_ms=600_000), output)
    run.batch(0)
    wait_until_forgotten(run)
    delete(forgetful, output)
    plan = run.plan()
    assert f"wrote to {output}-0, {output}-1 ended" in plan.doubt
    run.topic = output_of(forgetful)
    run.commit(run.tasks(plan, 1))
    assert read(forgetful, run.topic) == sorted(set(all_rows(2)) - set(all_rows(1)))


@pytest.mark.soak
def test_a_broker_that_is_slow_to_begin_a_transaction_makes_it_no_older(impatient, monkeypatch):
    """It was begun at the last of several attempts."""
    output = output_of(impatient)
    run = run_on(impatient, output, 2 * SHORT_MS)
    add = TransactionClient.add

    def late(self, *arguments):
        time.sleep(2 * SHORT_MS / 1000)
        add(self, *arguments)

    plan = run.plan()
    with monkeypatch.context() as patched:
        patched.setattr(TransactionClient, "add", late)
        messages = [run.task(plan, 0, 0, rows_of(0, 0, 1))]
    messages.append(run.task(plan, 0, 1, rows_of(0, 1, 3)))
    run.commit(messages)
    assert len(read(impatient, output)) == 4


@pytest.mark.soak
def test_the_last_epoch_of_a_producer_is_aborted_like_any_other(formerly):
    """Brokers raise it once more for that, and answer UNKNOWN_SERVER_ERROR to each request that names it."""
    output, one = output_of(formerly), name("id")
    run = run_on(formerly, output)
    with TransactionClient(run.options.client, "tests", 20_000) as client:
        producer = client.take_id(one, 60_000)
        wait_until(lambda: raised(client, one) >= LAST_EPOCH, within=120)
        producer = client.describe([one])[one].producer
        assert producer.epoch == LAST_EPOCH
        client.add(one, producer, [TopicPartition(output, 0)])
        client.abort_all({one: producer})
        assert not client.describe([one])[one].open
        client.abort_all({one: producer})
        aborted = client.aged(one, producer)
        assert client.take_id(one, 60_000, aborted).producer_id != producer.producer_id


def raised(client, transactional_id):
    """Take an id some hundred times; its epoch."""
    epoch = client.describe([transactional_id])[transactional_id].producer.epoch
    node_id = client.coordinators.node(transactional_id)

    async def taken():
        request = init_producer_id(transactional_id, 60_000, None)
        for future in [client.manager.send(request, node_id=node_id) for _ in range(min(300, LAST_EPOCH - epoch))]:
            await future

    client.run(30_000, taken)
    return client.describe([transactional_id])[transactional_id].producer.epoch


@pytest.mark.parametrize("aged", [False, True])
@pytest.mark.soak
def test_a_write_follows_one_whose_end_could_not_be_noted(formerly, tmp_path, monkeypatch, aged):
    """The driver's transaction is open then, or brokers have aborted it for its age."""
    options_ = transaction_options(formerly.bootstrap_servers, name("w"), SHORT_MS if aged else None)
    run = Run(options_, output_of(formerly), "write-1", tmp_path)
    write, written = PartitionClient.write, []

    def late(client, tp, *args):
        written.append(tp.topic)
        if written.count(DECISION_TOPIC) == 2:
            with TransactionClient(run.options.client, "tests", 30_000) as looking:
                one = run.options.prefix
                wait_until(lambda: looking.describe([one])[one].aborted or not aged, within=30)
            raise BrokerTimeoutError("writing: kafka.delivery.timeout.ms is over", "NOT_ENOUGH_REPLICAS")
        return write(client, tp, *args)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionClient, "write", late)
        run.batch(0)
    for number in (2, 3):
        run.query = f"write-{number}"
        run.batch(0)
    assert read(formerly, run.topic) == sorted(all_rows(1) * 3)
    assert unstable(formerly, run.topic) == []


@pytest.mark.soak
def test_a_note_that_arrives_late_is_not_written_outside_of_its_transaction(hurried, tmp_path, monkeypatch):
    """Brokers before Kafka 3.6 do that, and the topic could not be compacted any more."""
    run = Run(transaction_options(hurried.bootstrap_servers, name("w")), output_of(hurried), "write-1", tmp_path)
    write, take, decisions = PartitionClient.write, TransactionClient.take_id, TopicPartition(DECISION_TOPIC, 0)
    written, late = [], []

    def failing(client, tp, *args):
        if tp == decisions:
            written.append(args)
        if len(written) == 2:
            raise BrokerTimeoutError("writing: kafka.delivery.timeout.ms is over", "NOT_ENOUGH_REPLICAS")
        return write(client, tp, *args)

    def taken(client, *args, **named):
        if len(written) == 2 and not late:
            late.append(write(PartitionClient(client), decisions, *written[1]))
        return take(client, *args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionClient, "write", failing)
        patched.setattr(TransactionClient, "take_id", taken)
        run.batch(0)
    assert late
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        log = PartitionClient(client)
        wait_until(lambda: log.fetch(decisions, 0, committed=False).stable == log.end_offset(decisions), within=30)


@pytest.mark.soak
def test_a_batch_write_is_published_though_another_process_takes_its_id_right_behind(formerly, tmp_path, monkeypatch):
    """Whoever is told that a write has failed runs it again."""
    run = Run(transaction_options(formerly.bootstrap_servers, name("w")), output_of(formerly), "write-1", tmp_path)
    calls = []

    def another(client, prefix, driver, belonging):
        calls.append(driver)
        raise ProducerFencedError("another driver has taken it")

    monkeypatch.setattr(deciding, "left_open", another)
    run.batch(0)
    assert len(calls) == 1
    assert read(formerly, run.topic) == all_rows(1)


def test_a_batch_is_aborted_by_the_second_attempt_if_the_first_one_failed(formerly, tmp_path, monkeypatch):
    run = Run(transaction_options(formerly.bootstrap_servers, name("w")), output_of(formerly), shared=tmp_path)
    run.batch(0)
    plan = run.plan()
    messages = run.tasks(plan, 1)

    def away(*args):
        raise BrokerTimeoutError("reading: kafka.delivery.timeout.ms is over", "NOT_LEADER_FOR_PARTITION")

    with TransactionClient(run.options.client, "tests", 30_000) as client:
        client.add(run.options.prefix, plan.driver, [TopicPartition(DECISION_TOPIC, 0)])
    with monkeypatch.context() as patched:
        patched.setattr(deciding, "last_decision", away)
        with pytest.raises(BrokerTimeoutError):
            run.abort(messages)
    run.abort(messages)
    assert unstable(formerly, run.topic) == []


def test_a_batch_is_aborted_though_brokers_allow_no_transaction_as_long_as_its_own_any_more(impatient):
    run = run_on(impatient, output_of(impatient))
    messages = run.tasks(run.plan(), 0)
    longer = [replace(one, planned=replace(one.planned, timeout_ms=2_000_000)) for one in messages]
    run.abort(longer)
    assert unstable(impatient, run.topic) == []
