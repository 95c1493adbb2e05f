"""A query that is stopped while a batch of its exactly-once sink is not decided: its source aborts what is open."""

import pytest
from support import committed, name, numbered, topic_with
from support.exactly_once_runs import Run, all_rows, read, transaction_options, unstable

from spark_kafka_group.errors import TransactionError
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.tools.transactions import planned_writes
from spark_kafka_group.transactions import deciding, last_batch
from spark_kafka_group.values.files import PLANS_PREFIX
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient


class Query:
    """A query that reads with the id of its sink, up to the tasks of its first batch, as Spark runs it."""

    def __init__(self, kafka, driver_of, directory):
        self.kafka, self.out, self.group = kafka, kafka.create_topic(name("out"), partitions=2), name("group")
        decisions, prefix = name("decisions"), name("w")
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        servers = f"{kafka.bootstrap_servers},{kafka.bootstrap_servers}"  # as a sink may name them
        options = transaction_options(servers, prefix, topic=decisions, limit_ms=15_000)
        given = {"kafka.transactional.id": prefix, "decisionTopic": decisions, "startingOffsets": "earliest"}
        self.made = lambda: driver_of(kafka, topic, self.group, directory, **given)
        self.driver, self.run = self.made(), Run(options, self.out, shared=str(directory))
        self.start = self.driver.initial_offset()
        self.end = self.driver.latest_offset(self.start)

    def write(self):
        """The tasks of the batch, which write and leave their transactions open."""
        self.driver.plan(self.start, self.end)
        messages = self.run.tasks(self.run.plan(), 0)
        assert unstable(self.kafka, self.out) == [0, 1]
        return messages

    def nothing_is_open(self):
        wait_until(lambda: unstable(self.kafka, self.out) == [], within=10)


@pytest.fixture
def query(kafka, driver_of, tmp_path):
    return Query(kafka, driver_of, tmp_path)


def test_transactions_of_a_query_that_is_stopped_are_aborted_and_it_can_be_started_again(kafka, query):
    messages = query.write()
    query.driver.stop()
    query.nothing_is_open()
    assert list(query.run.shared.glob(f"{PLANS_PREFIX}*")) == []  # or the program would say that something is open
    with pytest.raises(TransactionError, match="not published"):  # a call of Spark's that goes on by itself
        query.run.commit(messages)
    assert read(kafka, query.out) == []
    query.driver = query.made()
    query.run.commit(query.write())
    assert read(kafka, query.out) == all_rows(1)
    query.driver.stop()
    assert sum(committed(kafka, query.group).values()) == 20


def test_transactions_of_a_later_start_are_not_aborted(kafka, query, tmp_path):
    query.write()
    later = Run(query.run.options, query.out, shared=str(tmp_path / "another application"))
    later.shared.mkdir()
    messages = later.tasks(later.plan(), 0)
    query.driver.stop()
    later.commit(messages)
    assert read(kafka, query.out) == all_rows(1)


def test_transactions_of_a_later_start_in_the_same_application_are_not_aborted(kafka, query):
    query.write()
    query.driver._session._sink.close()  # its stop has begun, and is slow
    messages = query.run.tasks(query.run.plan(), 0)
    query.driver.stop()
    query.run.commit(messages)
    assert read(kafka, query.out) == all_rows(1)


def test_transactions_of_the_next_run_are_not_aborted_where_the_process_of_the_last_one_is_slow_to_stop(kafka, query):
    query.write()
    last, query.driver = query.driver, query.made()
    messages = query.write()  # the same batch, which is run again
    last.stop()
    query.run.commit(messages)
    assert read(kafka, query.out) == all_rows(1)


def test_transactions_of_another_query_that_has_taken_the_id_over_are_not_aborted(kafka, query):
    query.run.commit(query.write())
    query.driver.latest_offset(query.end)  # nothing is new, so no batch runs
    other = Run(query.run.options, query.out, query="other", shared=str(query.run.shared))
    messages = other.tasks(other.plan(), 0)
    query.driver.stop()
    other.commit(messages)
    assert read(kafka, query.out) == sorted(all_rows(1) * 2)


def test_a_batch_that_has_ended_is_left_alone(kafka, query, tmp_path):
    query.run.commit(query.write())
    query.driver.stop()
    assert last_batch.take_ended(query.run.options, tmp_path) is not None
    assert read(kafka, query.out) == all_rows(1)


def test_a_batch_that_was_decided_is_not_aborted_but_named(kafka, query, monkeypatch):
    messages = query.write()
    monkeypatch.setattr(deciding, "finish", None)  # the commit's process dies there
    with pytest.raises(TypeError):
        query.run.commit(messages)
    query.driver.stop()
    assert unstable(kafka, query.out) == [0, 1]
    assert [prefix for prefix, _ in planned_writes(query.run.shared)] == [query.run.options.prefix]
    query.run.plan()
    assert read(kafka, query.out) == all_rows(1)


def test_what_brokers_do_not_list_is_not_aborted_but_named(query, monkeypatch):
    monkeypatch.setattr(TransactionClient, "describes", False)  # as of brokers before 3.0
    query.write()
    query.driver.stop()
    assert [prefix for prefix, _ in planned_writes(query.run.shared)] == [query.run.options.prefix]


@pytest.mark.soak
def test_brokers_that_are_away_do_not_hold_up_the_end(driver_of, tmp_path, caplog):
    with KafkaCluster() as kafka:
        query = Query(kafka, driver_of, tmp_path)
        query.write()
    query.driver.stop()
    assert "may stay open, until the next start or their timeout" in caplog.text
