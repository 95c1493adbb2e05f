"""Answers of coordinators that no broker should give: an error names the id and the answer, and nothing is taken."""

import pytest
from kafka.protocol.admin import DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorResponse
from support import scripted
from support.exactly_once_runs import transaction_options
from support.scripted import ScriptedBroker

from spark_kafka_group import BrokerError
from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

EXPECTED = ProducerIdAndEpoch(5, 7)
STATE = {
    "error_code": 0, "transaction_state": "Empty", "transaction_timeout_ms": 1, "transaction_start_time_ms": -1,
    "producer_id": 5, "producer_epoch": 7, "topics": [],
}  # fmt: skip


class OddBroker(ScriptedBroker):
    """Coordinates all transactional ids, until it is told otherwise: by kind of request, what it answers."""

    def __init__(self):
        super().__init__({"t": 1})
        self.odd = {}

    def _FindCoordinator(self, message):
        one = FindCoordinatorResponse.Coordinator
        port = self._nodes[0].port
        found = [one(key=key, node_id=1, host="127.0.0.1", port=port) for key in message.coordinator_keys]
        return self.odd.get("find", {"coordinators": found})

    def _DescribeTransactions(self, message):
        state = DescribeTransactionsResponse.TransactionState
        states = [state(transactional_id=one, **STATE) for one in message.transactional_ids]
        return self.odd.get("describe", {"transaction_states": states})

    def _InitProducerId(self, message):
        return self.odd.get("take", {"producer_id": 5, "producer_epoch": 8})


@pytest.fixture
def broker(monkeypatch):
    for kind in (DescribeTransactionsRequest, ListTransactionsRequest):
        monkeypatch.setitem(scripted.VERSIONS, kind, 0)
        monkeypatch.setitem(scripted.SPOKEN, kind.API_KEY, kind)
    with OddBroker() as started:
        yield started


@pytest.fixture
def client(broker):
    options = transaction_options(broker.bootstrap_servers, "w")
    with TransactionClient(options.client, "tests", 700) as made:
        yield made


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ({"find": {"coordinators": []}}, r"\(of a\): .* last answer: UNKNOWN_SERVER_ERROR"),
        ({"describe": {"transaction_states": []}}, r"\(of a\): .* last answer: UNKNOWN_SERVER_ERROR"),
        ({"take": {"producer_id": -1, "producer_epoch": -1}}, r"\(of a\): .* last answer: UNKNOWN_SERVER_ERROR"),
        ({"take": {"error_code": 999}}, "taking transactional id a: error code 999"),
    ],
)
def test_an_id_is_not_taken_where_its_coordinator_does_not_answer_the_question(broker, client, odd, says):
    assert client.take_id("b", 60_000, EXPECTED) == ProducerIdAndEpoch(5, 8)
    broker.odd = odd
    with pytest.raises(BrokerError, match=says):
        client.take_id("a", 60_000, EXPECTED)


def test_an_error_names_the_id_that_its_coordinator_does_not_describe(broker, client):
    broker.odd = {"describe": {"transaction_states": []}}
    with pytest.raises(BrokerError, match=r"describing transactions \(of [ab]\): UNKNOWN_SERVER_ERROR"):
        client.describe(["a", "b"])
