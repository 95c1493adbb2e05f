"""Brokers that cannot be reached: said once, within seconds, by one line and not by one for every attempt."""

import contextlib
import gc
import itertools
import logging
import math
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError, KafkaError
from support import a_full_queue, serving
from test_driver_reactions import LIMIT
from test_outages import BRIEF

from spark_kafka_group import group_batch
from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools.admin_connection import as_given
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers, LogClient
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.client import event_loop, manager, sockets, wrong_addresses
from spark_kafka_group.wire.client.connect import connection_configs
from spark_kafka_group.wire.client.refusals import RefusedError
from spark_kafka_group.wire.transactions.kept_clients import kept_client

NOWHERE, NO_NAME = "127.0.0.1:1", "kafka.invalid:9092"
ORDERS = [TopicPartition("orders", 0)]
SILENT_SOON = {"kafka.request.timeout.ms": "2000", "kafka.socket.connection.setup.timeout.ms": "400"}


def parsed(servers, **more):
    return Options.parse({"kafka.bootstrap.servers": servers, "subscribe": "orders"} | BRIEF | more)


SLOW_MACHINE = "kafka.net.selector"
"""It warns of its own tasks when they take 0.1 s, as on a busy machine."""


def lines(caplog, logger):
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith(logger) and record.levelno >= logging.WARNING and record.name != SLOW_MACHINE
    ]


def attempts(caplog):
    return [r for r in caplog.records if r.getMessage().startswith("Connection failed")]


@pytest.fixture
def hasty(monkeypatch):
    """Wrong addresses are given up soon."""
    monkeypatch.setattr(wrong_addresses, "NO_LISTENER_S", 0.3)
    monkeypatch.setattr(wrong_addresses, "NO_SUCH_NAME_S", 0.3)
    monkeypatch.setattr(wrong_addresses, "NO_ANSWER_ABOUT_NAME_S", 0.3)


def test_an_ipv6_address_is_shown_in_brackets(hasty):
    with socket.socket(socket.AF_INET6) as free:
        try:
            free.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6: {error}")
        port = free.getsockname()[1]  # bound, and nobody listens
        with pytest.raises(BrokerError, match=rf"\[::1\]:{port}: ") as raised:
            LogClient(parsed(f"[::1]:{port}"))
    assert f" ::1:{port}" not in str(raised.value)


@pytest.mark.parametrize("servers", [NO_NAME, f"{NO_NAME},kafka..invalid:9092"])
@pytest.mark.parametrize("kind", [LogClient, GroupAdmin])
def test_names_without_an_address_are_an_error_soon(hasty, caplog, servers, kind):
    began = time.monotonic()
    with pytest.raises(
        BrokerError, match=r"kafka.invalid: this name has no address \(.*Correct kafka.bootstrap"
    ) as raised:
        kind(parsed(servers, **{"kafka.request.timeout.ms": "30000"}))
    assert time.monotonic() - began < 25
    assert not isinstance(raised.value, BrokerTimeoutError)
    assert [line.count("this name has no address") for line in lines(caplog, "spark_kafka_group")] == [
        servers.count(",") + 1
    ]


CLOSE_NOTIFY = bytes.fromhex("15 03 03 00 02 01 00")
"""TLS's alert that a connection ends, unencrypted."""
NOT_TLS = bytes.fromhex("15 03 03 00 02 02 32")
"""TLS's alert that a message is none of TLS's."""


@pytest.mark.parametrize("last_words", [b"", CLOSE_NOTIFY])
def test_a_server_that_ends_tls_handshakes_is_given_up_soon(hasty, last_words):
    class Ending(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(10_000)
            self.request.sendall(last_words)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Ending)
    tls = parsed(
        f"127.0.0.1:{server.server_address[1]}",
        **{"kafka.security.protocol": "SSL", "kafka.request.timeout.ms": "30000"},
    )
    with serving(server), pytest.raises(BrokerError, match="of this listener, for example PLAINTEXT"):
        LogClient(tls)


@pytest.mark.parametrize(
    ("last_words", "lost"), [(b"", KafkaConnectionError), (CLOSE_NOTIFY, KafkaConnectionError), (NOT_TLS, RefusedError)]
)
def test_a_tls_handshake_that_ends_while_the_event_loop_stands_still_ends_as_any_other(last_words, lost):
    """A Python worker is idle between two tasks, and what is between it and brokers ends its connections."""
    greeted, idle = threading.Event(), threading.Event()

    class Ending(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(10_000)
            greeted.set()
            idle.wait(30)
            self.request.sendall(last_words)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Ending)
    tls = parsed(f"127.0.0.1:{server.server_address[1]}", **{"kafka.security.protocol": "SSL"})
    client = manager.net_client(**connection_configs(tls.client, "tests"))
    with serving(server), contextlib.closing(client):
        connection = client._manager.get_connection(client.cluster.bootstrap_brokers()[0].node_id)
        wait_until(lambda: client._net.poll(timeout_ms=0) or greeted.is_set(), within=10)
        idle.set()
        time.sleep(event_loop.PAUSED_S + 0.1)
        wait_until(lambda: client._net.poll(timeout_ms=10) or connection.closed, within=10)
        assert type(connection.init_future.exception) is lost


def test_an_address_that_refuses_is_away_also_where_the_event_loop_seldom_runs():
    patient = parsed(NOWHERE, **{"kafka.socket.connection.setup.timeout.ms": "10000"})
    client = manager.net_client(**connection_configs(patient.client, "tests"))
    with contextlib.closing(client):
        connection = client._manager.get_connection(client.cluster.bootstrap_brokers()[0].node_id)
        time.sleep(event_loop.PAUSED_S + 0.1)
        wait_until(lambda: client._net.poll(timeout_ms=10) or connection.closed, within=10)
        assert client._manager.reaches_none
        assert "ECONNREFUSED" in client._manager.last_failure


def test_an_attempt_that_begins_as_the_time_ends_leaves_the_reason_of_the_one_before():
    client = manager.net_client(**connection_configs(parsed(NOWHERE).client, "tests"))
    node_id = client.cluster.bootstrap_brokers()[0].node_id

    def attempt(timeout_ms):
        delay = client._manager.connection_delay
        wait_until(lambda: client._net.poll(timeout_ms=10) or delay(node_id) == 0, within=10)
        connection = client._manager.get_connection(node_id, timeout_ms, refresh_metadata_on_err=False)
        wait_until(lambda: client._net.poll(timeout_ms=10) or connection.closed, within=10)
        return str(connection.init_future.exception)

    with contextlib.closing(client):
        assert "ECONNREFUSED" in attempt(1000)
        assert "timed out" in attempt(-1000)
        assert "ECONNREFUSED" in client._manager.last_failure


def test_an_address_that_stays_silent_is_away_also_where_the_event_loop_seldom_runs():
    """A task whose rows come one by one lets its event loop run with each: the time of every attempt is over between
    two of them."""

    class Silent(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(10_000)
            done.wait(30)

    done, server = threading.Event(), socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent)
    patient = parsed(f"127.0.0.1:{server.server_address[1]}", **SILENT_SOON)
    client = manager.net_client(**connection_configs(patient.client, "tests"))
    node_id = client.cluster.bootstrap_brokers()[0].node_id
    with serving(server), contextlib.closing(client):
        for _ in range(6):
            client._manager.get_connection(node_id)
            for _ in range(10):
                client._net.poll(timeout_ms=0)
            time.sleep(event_loop.PAUSED_S + 0.1)
        done.set()
        assert client._manager.reaches_none
        assert "Request timed out" in client._manager.last_failure


def test_all_attempts_of_one_address_may_fail_by_one_pause():
    """A client has two connections to a broker, of which one is that of its bootstrap address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        patient = parsed(f"127.0.0.1:{port},127.0.0.1:{port}", **SILENT_SOON)
        client = manager.net_client(**connection_configs(patient.client, "tests"))
        node_ids = [node.node_id for node in client.cluster.bootstrap_brokers()]
        assert len(node_ids) == 2
        with contextlib.closing(client):
            for node_id in node_ids:
                client._manager.get_connection(node_id)
            for _ in range(10):
                client._net.poll(timeout_ms=0)
            time.sleep(event_loop.PAUSED_S + 0.1)
            for _ in range(10):
                client._net.poll(timeout_ms=0)
            assert not client._manager.reaches_none


def test_a_tool_says_which_argument_has_a_name_without_an_address(hasty, capsys):
    assert main(["describe", "--bootstrap-server", NO_NAME, "--group", "billing"]) == 1
    assert "Correct --bootstrap-server" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [LogClient, GroupAdmin])
def test_addresses_that_refuse_connections_are_an_error_soon(hasty, kind):
    began = time.monotonic()
    with pytest.raises(
        BrokerError, match=rf"connecting to .*{NOWHERE}: no broker listens there .*Correct kafka.bootstrap.*start the"
    ) as raised:
        kind(parsed(f"{NOWHERE},{NO_NAME}", **{"kafka.request.timeout.ms": "30000"}))
    assert time.monotonic() - began < 25
    assert not isinstance(raised.value, BrokerTimeoutError)
    assert "kafka.invalid: this name has no address" in str(raised.value)


def test_group_batch_names_unreachable_brokers_without_the_tracebacks_of_causes(hasty):
    settings = {"kafka.bootstrap.servers": NOWHERE, "subscribe": "orders", "kafka.group.id": "billing"}
    with pytest.raises(BrokerError, match="no broker listens there") as raised, group_batch(None, settings):
        pass
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_a_broker_that_comes_while_its_address_is_tried_is_reached(hasty, broker, monkeypatch):
    monkeypatch.setattr(wrong_addresses, "NO_LISTENER_S", 30)
    broker.go_away()
    began = threading.Timer(0.3, broker.come_back)
    began.start()
    client = LogClient(parsed(broker.bootstrap_servers, **{"kafka.request.timeout.ms": "30000"}))
    try:
        assert client.end_offsets(ORDERS) == {ORDERS[0]: 10}
    finally:
        client.close()
        began.join()


def test_a_name_that_the_driver_could_resolve_is_looked_up_as_long_as_brokers_are_tried(hasty):
    brokers = Brokers(parsed(NO_NAME), "executor")
    with pytest.raises(BrokerTimeoutError, match="this name has no address"):
        brokers.leaders(ORDERS, refresh=False)
    brokers.close()


def test_a_name_without_an_address_does_no_harm_beside_one_that_has_one(hasty, broker):
    client = LogClient(parsed(f"{NO_NAME},{broker.bootstrap_servers}"))
    try:
        assert client.end_offsets(ORDERS) == {ORDERS[0]: 10}
    finally:
        client.close()


def test_addresses_are_tried_as_long_as_one_of_them_may_be_a_brokers(hasty, monkeypatch):
    picks = itertools.chain([0], itertools.repeat(-1))  # the silent one first
    monkeypatch.setattr("random.choice", lambda nodes: nodes[next(picks)])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{NOWHERE}"
        with pytest.raises(BrokerTimeoutError, match=r"no answer within kafka.request.timeout.ms"):
            LogClient(parsed(servers, **SILENT_SOON))


def test_an_address_that_stays_silent_is_named_once_with_the_settings_that_may_be_wrong(hasty):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BrokerTimeoutError) as raised:
            LogClient(parsed(address, **SILENT_SOON))
    said = re.sub(r"\d+ ms", "N ms", str(raised.value))
    assert said == (
        f"connecting to {address}: no answer within kafka.request.timeout.ms: {address}: Request timed out after N ms "
        "(are host and port right in kafka.bootstrap.servers, does a firewall let them pass, and is it a listener "
        "for kafka.security.protocol PLAINTEXT?)"
    )


def test_a_command_names_its_own_arguments(capsys, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=1500\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert main(["describe", "--bootstrap-server", address, "--command-config", str(config)]) == 1
        said = capsys.readouterr().err
    assert "check --bootstrap-server, or raise request.timeout.ms in --command-config" in said
    assert "for security.protocol PLAINTEXT?" in said
    assert "kafka." not in said


def test_a_warning_of_a_command_names_its_own_arguments(tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=1500\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "spark_kafka_group", "describe", "--bootstrap-servers", address]
        done = subprocess.run([*command, "--command-config", config], capture_output=True, text=True, check=False)
    warning, error = done.stderr.splitlines()
    assert "no broker can be reached" in warning
    assert "are host and port right in --bootstrap-servers" in warning
    assert "check --bootstrap-servers" in error
    assert "kafka." not in warning + error.removeprefix("python -m spark_kafka_group")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            "a TLS listener: set kafka.security.protocol to SSL, or correct kafka.bootstrap.servers",
            "a TLS listener: set security.protocol in --command-config to SSL, or correct --bootstrap-server",
        ),
        (
            "no answer within kafka.request.timeout.ms: a:1: timed out",
            "no answer within request.timeout.ms: a:1: timed out",
        ),
        ("kafka.sasl.jaas.config, kafka.ssl.protocol.", "sasl.jaas.config, ssl.protocol."),
        ("option kafka.sasl.mechanisms is not known", "option sasl.mechanisms is not known"),
    ],
)
def test_a_command_says_where_its_settings_are(error, shown):
    assert as_given(BrokerError(error)) == shown


@pytest.mark.parametrize(
    "text",
    ["connecting to kafka.example.org:9092: kafka.client.id:9092", "no group kafka.orders", "of kafka.client.id.eu-0"],
)
def test_a_command_shows_names_that_begin_as_settings_do(text):
    assert as_given(text) == text


def test_a_command_shows_a_host_by_its_name(hasty, capsys):
    assert main(["describe", "--bootstrap-server", NO_NAME, "--group", "billing"]) == 1
    assert f"connecting to {NO_NAME}: kafka.invalid: this name has no address" in capsys.readouterr().err


def test_a_command_at_a_listener_for_tls_names_its_own_settings(hasty, capsys):
    class Refusing(socketserver.BaseRequestHandler):
        """Ends a connection with an alert, as a listener for TLS does where a client does not begin TLS."""

        def handle(self):
            self.request.recv(10_000)
            self.request.sendall(NOT_TLS)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusing)
    with serving(server):
        assert main(["describe", "--bootstrap-servers", f"127.0.0.1:{server.server_address[1]}"]) == 1
    assert "so it is a TLS listener: set security.protocol in --command-config to SSL" in capsys.readouterr().err


def test_an_address_that_takes_a_connection_is_wrong_no_more():
    wrong, address = wrong_addresses.WrongAddresses(reached_before=False), ("127.0.0.1", 1)
    assert wrong.problem(address, OSError("ECONNREFUSED"))
    assert wrong.until(0, [address]) == wrong_addresses.NO_LISTENER_S
    wrong.connected(address)
    assert wrong.until(0, [address]) == math.inf


def test_a_port_without_a_listener_is_named_at_once_and_once(caplog):
    with pytest.raises(
        BrokerTimeoutError, match=rf"no answer within kafka.request.timeout.ms.*{NOWHERE}.*\(ECONNREFUSED\)$"
    ):
        LogClient(parsed(NOWHERE))
    (warning,) = lines(caplog, "spark_kafka_group")
    why = f"no broker can be reached: {NOWHERE}: no broker listens there (ECONNREFUSED)"
    assert f"{why}. Attempts go on for 1 s: are host and port" in warning
    said = next(r.created for r in caplog.records if r.getMessage() == warning)
    assert time.time() - said > float(BRIEF["kafka.request.timeout.ms"]) / 2000
    assert lines(caplog, "kafka") == []


def test_brokers_that_are_silent_from_the_start_are_named_while_they_are_waited_for(broker, caplog, monkeypatch):
    monkeypatch.setattr(manager, "SAY_AFTER_S", 0.2)
    broker.silence(1, 2)
    with pytest.raises(BrokerTimeoutError):
        LogClient(parsed(broker.bootstrap_servers))
    (warning,) = lines(caplog, "spark_kafka_group")
    assert all(f"{address}: no answer yet" in warning for address in broker.bootstrap_servers.split(","))


def test_an_outage_is_two_lines_one_at_its_beginning_and_one_at_its_end(broker, driver_of, caplog):
    caplog.set_level(logging.DEBUG, "kafka.net.manager")
    driver = driver_of()
    end = driver.latest_offset(driver.initial_offset(), LIMIT)
    assert lines(caplog, "") == []
    broker.go_away()
    wait_until(lambda: len(attempts(caplog)) >= 5 and lines(caplog, "spark_kafka_group"), within=60)
    broker.come_back()
    wait_until(lambda: driver.latest_offset(end, LIMIT) != end, within=60)
    began, ended = wait_until(lambda: len(found := lines(caplog, "spark_kafka_group")) > 1 and found, within=60)
    assert re.search(r"no broker can be reached: (node \d advertises )?127.0.0.1:", began)
    assert "brokers can be reached again, after" in ended
    assert lines(caplog, "kafka") == []


def test_who_logs_at_debug_has_every_attempt(caplog):
    caplog.set_level(logging.DEBUG, "kafka.net.manager")
    with pytest.raises(BrokerTimeoutError):
        LogClient(parsed(NOWHERE))
    assert len(attempts(caplog)) > 1
    assert {r.levelname for r in attempts(caplog)} == {"DEBUG"}


def test_another_client_in_the_process_keeps_its_lines_of_the_log(caplog):
    with pytest.raises(KafkaError):
        KafkaConsumer(bootstrap_servers=NOWHERE, bootstrap_timeout_ms=300)
    assert any("Connection failed" in line for line in lines(caplog, "kafka.net.manager"))


def internet_sockets():
    """Descriptors of this process that are sockets of IPv4."""
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
            found |= {fd} if copy.family == socket.AF_INET else set()
    return found


@pytest.mark.parametrize("silent", [False, True])
def test_attempts_that_failed_leave_no_sockets_to_the_garbage_collector(caplog, silent):
    caplog.set_level(logging.DEBUG, "kafka.net.manager")
    with a_full_queue() if silent else contextlib.nullcontext(NOWHERE) as nowhere:
        before = internet_sockets()
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(BrokerError):
                LogClient(parsed(nowhere, **SILENT_SOON | {"kafka.request.timeout.ms": "4000"}))  # on a busy machine
            after = internet_sockets()
        finally:
            gc.enable()
        assert len(attempts(caplog)) > 2
        assert after - before == set()


@pytest.mark.parametrize("full", [False, True])
def test_a_loop_that_is_closed_while_a_request_waits_to_be_sent_closes_the_socket(full):
    net, (ours, theirs) = event_loop.Selector(), socket.socketpair()
    ours.setblocking(False)
    with theirs:
        transport = sockets.TcpTransport(net, ours, host="localhost")
        transport.resume_reading()
        net.poll(0)
        with contextlib.suppress(BlockingIOError):
            while full:
                ours.send(bytes(1 << 16))
        transport.write(b"a request")
        transport.close()
        net.close()
        assert ours.fileno() == -1


@pytest.mark.soak
def test_a_write_whose_application_has_reached_brokers_waits_for_them_and_its_first_plan_does_not():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{unused.getsockname()[1]}"
        options = SinkOptions.parse({
            "kafka.bootstrap.servers": servers, "deliveryGuarantee": "exactly-once", "kafka.transactional.id": "w",
            "kafka.request.timeout.ms": "6000", "kafka.delivery.timeout.ms": "7000",
        }).transactions  # fmt: skip
        with pytest.raises(BrokerError, match="start the broker"), kept_client(options, "driver", reached_before=False):
            pass
        late = "no answer within kafka.delivery.timeout.ms"
        with pytest.raises(BrokerTimeoutError, match=late), kept_client(options, "driver"):
            pass
