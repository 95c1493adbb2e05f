"""The end of a transaction at a coordinator that refuses it for a while, or for good."""

import pytest

from spark_kafka_group import BrokerTimeoutError
from spark_kafka_group.options import Options
from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.wire.reactions import Request
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

PRODUCER = ProducerIdAndEpoch(1, 0)
FOR_A_WHILE = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS", "UNKNOWN"]


def client_of(broker, limit_ms):
    options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    return TransactionClient(options.client, "tests", limit_ms)


@pytest.mark.parametrize("error", FOR_A_WHILE)
def test_a_commit_is_repeated_until_the_coordinator_takes_it(broker, error):
    broker.answer(Request.END_TRANSACTION, error, times=2)
    with client_of(broker, 30_000) as client:
        assert client.commit_all({"a": PRODUCER}) == {"a": True}
    assert [request.committed for request in broker.received(Request.END_TRANSACTION)] == [True] * 3


def test_the_last_answer_is_said_if_the_coordinator_takes_no_commit_in_time(broker):
    broker.answer(Request.END_TRANSACTION, "UNKNOWN", times=10_000)
    with (
        client_of(broker, 2_000) as client,
        pytest.raises(BrokerTimeoutError, match="kafka.delivery.timeout.ms is over, last answer: UNKNOWN_SERVER_ERROR"),
    ):
        client.commit_all({"a": PRODUCER})
