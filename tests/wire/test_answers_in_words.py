"""What is said of answers that nobody expects: each of them for what it is."""

import contextlib
import socketserver

import pytest
from support import serving
from support.scripted import ScriptedBroker
from test_outages import BRIEF

from spark_kafka_group.errors import AuthenticationError, BrokerError, BrokerTimeoutError
from spark_kafka_group.options import Options
from spark_kafka_group.tools import coordinators
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import LogClient
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.reactions import Request
from spark_kafka_group.wire.topic_admin import TopicAdmin

ORDERS = TopicPartition("orders", 0)
ANSWERS = {
    bytes.fromhex("15 03 03 00 02 02 32"): "a TLS alert, so it is a TLS listener: set kafka.security.protocol to SSL",
    b"HTTP/1.1 400 Bad Request\r\n\r\n": "its answer is HTTP, so it is no Kafka broker: correct kafka.boot",
    b"SSH-2.0-OpenSSH_9.2\r\n": r"not Kafka's protocol as this client knows it \(Invalid frame .*Kafka broker\?",
    bytes.fromhex("0000000a 00000001 0000 00ff ffff"): "not Kafka's protocol as this client knows it",
}


def parsed(servers, **more):
    return Options.parse({"kafka.bootstrap.servers": servers, "subscribe": "orders"} | BRIEF | more)


@pytest.mark.parametrize("answer", ANSWERS)
def test_only_an_answer_that_begins_as_a_tls_alert_is_one(answer):
    class Answering(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(10_000)
            self.request.sendall(answer)
            self.request.recv(10_000)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering)
    with serving(server), pytest.raises(AuthenticationError, match=ANSWERS[answer]) as raised:
        LogClient(parsed(f"127.0.0.1:{server.server_address[1]}"))
    assert ("TLS" in str(raised.value)) == answer.startswith(b"\x15")


@pytest.mark.parametrize("error", ["POLICY_VIOLATION", "OFFSET_NOT_AVAILABLE"])
def test_a_lookup_whose_time_is_over_has_the_last_answer(error):
    brief = {"fetchOffset.numRetries": "1", "kafka.request.timeout.ms": "1500"}
    with ScriptedBroker({"orders": 1}) as broker:
        options = parsed(broker.bootstrap_servers, **brief)
        broker.answer(Request.LIST_OFFSETS, error, times=10_000)
        with contextlib.closing(LogClient(options)) as client, pytest.raises(BrokerTimeoutError) as raised:
            client.end_offsets([ORDERS])
        assert str(raised.value).endswith(f"kafka.request.timeout.ms is over, last answer: {error} for orders-0")
        with TopicAdmin(options) as admin:
            admin.leaders(["orders"])
            with pytest.raises(BrokerError, match=f"^looking: {error}$"):
                admin.lookups("looking", [{ORDERS: -1}])


def test_an_attempt_that_gets_no_answer_any_more_leaves_the_answer_before_it():
    class FallsSilent(ScriptedBroker):
        def on_the_wire(self, message, response):
            return (b"" if len(self.received(Request.LIST_OFFSETS)) > 1 else response), False

    with FallsSilent({"orders": 1}) as broker:
        broker.answer(Request.LIST_OFFSETS, "OFFSET_NOT_AVAILABLE")
        with TopicAdmin(parsed(broker.bootstrap_servers, **{"kafka.request.timeout.ms": "1500"})) as admin:
            admin.leaders(["orders"])
            with pytest.raises(BrokerError, match="^looking: OFFSET_NOT_AVAILABLE$"):
                admin.lookups("looking", [{ORDERS: -1}])


def test_a_cluster_without_a_topic_of_offsets_is_said_to_have_none_once():
    with ScriptedBroker({"orders": 1}) as broker, GroupAdmin(parsed(broker.bootstrap_servers)) as admin:
        found = coordinators.newest(admin, ["a", "b", "c"])
    assert [*found] == ["a"]
    assert "the cluster shows no topic __consumer_offsets: its brokers are not Apache Kafka's, or" in str(found["a"])
