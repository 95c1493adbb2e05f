"""Every client connects as its options say: those of tasks, the listener, tools, the driver, and of records sent on."""

import contextlib
import dataclasses
import pickle
import socket

import pytest

from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.executor.writing.sending.routes import receivers_for
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import sink_options
from spark_kafka_group.options.transacting import Transacting, TransactionOptions
from spark_kafka_group.source import GroupKafkaStreamReader
from spark_kafka_group.wire import GroupClient
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.group.non_member import NonMemberCommitter
from spark_kafka_group.wire.transactions.kept_clients import close_all, kept_client

GIVEN = {
    "kafka.client.id": "mine", "kafka.request.timeout.ms": "4321", "kafka.connections.max.idle.ms": "54321",
    "kafka.retry.backoff.ms": "12", "kafka.reconnect.backoff.ms": "13", "kafka.reconnect.backoff.max.ms": "14",
    "kafka.socket.connection.setup.timeout.ms": "4001", "kafka.socket.connection.setup.timeout.max.ms": "4002",
    "kafka.receive.buffer.bytes": "100001", "kafka.send.buffer.bytes": "100002",
    "kafka.client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
}  # fmt: skip


def of_a_task(options, opened):
    brokers = brokers_for(pickle.loads(pickle.dumps(GroupKafkaStreamReader(options)))._options)
    opened.callback(brokers.close)
    return brokers._bootstrapped()._manager


def of_the_listener(options, opened):
    return opened.enter_context(NonMemberCommitter(options, "billing"))._manager


def of_tools(options, opened):
    return opened.enter_context(GroupAdmin(options))._manager


def of_the_driver(options, opened):
    return opened.enter_context(contextlib.closing(GroupClient(options, "billing")))._manager


def of_hand_off(options, opened):
    brokers = receivers_for(sink_options(options, outlives=True).client).brokers
    return opened.enter_context(contextlib.closing(brokers))._bootstrapped()._manager


def of_transactions(options, opened):
    opened.callback(close_all)
    return opened.enter_context(
        kept_client(TransactionOptions(options.client, Transacting("w"), 15_000), "driver")
    ).manager


@pytest.mark.parametrize("client", [of_a_task, of_the_listener, of_tools, of_the_driver, of_hand_off, of_transactions])
def test_a_client_connects_as_its_options_say(broker, client):
    options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"} | GIVEN)
    with contextlib.ExitStack() as opened:
        config = client(options, opened).config
        passed_on = options.connection.passed_on()
        del passed_on["retry_backoff_ms"]  # of whoever asks, not of the connection
        assert {name: config[name] for name in passed_on} == passed_on
        assert config["client_id"].startswith("mine-")
        assert config["request_timeout_ms"] == 4321
        assert {(socket.SOL_SOCKET, socket.SO_RCVBUF, 100001), (socket.SOL_SOCKET, socket.SO_SNDBUF, 100002)} <= set(
            config["socket_options"]
        )


def test_all_of_what_is_passed_on_is_given_here():
    options = Options.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "orders"} | GIVEN)
    passed_on = {f.metadata["name"] for f in dataclasses.fields(options.connection) if f.metadata["passed_on"]}
    assert passed_on - set(options.given()) == {"kafka.proxy.url"}  # security/test_proxy.py has it
