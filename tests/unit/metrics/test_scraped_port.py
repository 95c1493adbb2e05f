"""The port that Prometheus scrapes, with clients that do not go."""

import contextlib
import inspect
import socket
import threading
import urllib.request
from ipaddress import ip_address

import pytest
from prometheus_client import CollectorRegistry, MetricsHandler

from spark_kafka_group import GroupKafkaListener
from spark_kafka_group.metrics.prometheus import Exporter
from spark_kafka_group.metrics.scraped_port import MOST_CONNECTIONS, ScrapedPort
from spark_kafka_group.testing import wait_until


@pytest.fixture
def exporter():
    exporter = Exporter(list, lambda: (3, 0), 0, "127.0.0.1", None)
    exporter.start()
    yield exporter
    exporter.close()


def scraped(port, host="127.0.0.1"):
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def connections(port, count, said=b""):
    """Clients that say so much and no more."""
    with contextlib.ExitStack() as opened:
        for _ in range(count):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(said)
        return opened.pop_all()


def is_ended(client):
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nX: "])
def test_idle_connections_take_few_threads_and_keep_no_scrape_away(exporter, said):
    before = threading.active_count()
    with connections(exporter.port, 100, said):
        assert "groupkafka_listener_commit_total 3.0" in scraped(exporter.port)
        assert threading.active_count() <= before + MOST_CONNECTIONS


def test_connections_end_with_the_port(exporter):
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=60) as idle:
        wait_until(lambda: threading.active_count() > before, within=30)
        exporter.close()
        assert is_ended(idle)
    assert threading.active_count() == before - 1
    assert exporter.port is None


def test_a_connection_ends_however_slowly_it_speaks():
    port = ScrapedPort("127.0.0.1", 0, MetricsHandler.factory(CollectorRegistry()), connection_s=0.5)
    port.start()
    try:
        with socket.create_connection(("127.0.0.1", port.port), timeout=0.05) as slow:

            def speaks_until_it_is_ended():
                try:
                    slow.sendall(b"G")
                    return slow.recv(1) == b""
                except TimeoutError:
                    return False
                except ConnectionError:
                    return True

            wait_until(speaks_until_it_is_ended, within=30)
    finally:
        port.close()


def test_the_port_is_this_machines_alone_unless_an_address_is_given(exporter):
    default = inspect.signature(GroupKafkaListener).parameters["prometheus_address"].default
    assert ip_address(default).is_loopback
    with pytest.raises(ConnectionRefusedError):  # another address of this machine, as another host would take
        socket.create_connection(("127.0.0.2", exporter.port), timeout=60)
    everywhere = Exporter(list, lambda: (3, 0), 0, "0.0.0.0", None)
    everywhere.start()
    try:
        assert "groupkafka_listener_commit_total 3.0" in scraped(everywhere.port, "127.0.0.2")
    finally:
        everywhere.close()


@pytest.mark.parametrize("port", [65_536, -1, "9108", 10**100])
def test_a_port_that_cannot_be_one_is_said(port):
    with pytest.raises(ValueError, match=r"^prometheus_port \(.*\) must be a whole number between 0 and 65535$"):
        Exporter(list, lambda: (0, 0), port, "127.0.0.1", None)


@pytest.mark.parametrize("address", ["\udc80", "x" * 300, "a..b"])
def test_an_address_that_cannot_be_one_is_said(address):
    with pytest.raises(OSError, match=r"prometheus_address \(.*\) is no address$"):
        Exporter(list, lambda: (0, 0), 0, address, None).start()
