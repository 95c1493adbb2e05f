"""kafka.proxy.url: every connection goes through the proxy, and its password is nowhere to be seen."""

import logging

import pytest
from proxies import Proxy
from secured import options, scram, works
from support import options as plaintext

from spark_kafka_group.driver.batch_read import plan
from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import GroupClient


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "http"])
def test_the_drivers_and_the_executors_connections_go_through_a_proxy(kafka, records, scheme):
    with Proxy(scheme) as proxy:
        parsed = Options.parse(plaintext(kafka, records) | {"kafka.proxy.url": proxy.url()})
        tasks = plan(parsed)
        planned = len(proxy.targets)
        assert planned >= 2, "to a bootstrap server, and to the broker"
        assert b"v9" not in proxy.received
        try:
            rows = [r for ranges in tasks for batch in read(ReadTask(ranges), parsed) for r in batch.to_pylist()]
        finally:
            brokers_for(parsed).close()
        assert len(rows) == 30
        assert proxy.received.count(b"v9") == 3, "the records themselves"
        assert len(proxy.targets) >= planned + 2
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        assert set(proxy.targets) == {(host, int(port))}


def test_connections_with_tls_and_sasl_of_a_micro_batch_the_listener_and_the_tools_go_through_a_proxy(
    kafka, records, group, authority
):
    with Proxy("socks5") as proxy:
        more = {"ssl_truststore_location": authority.certificate, "proxy_url": proxy.url()}
        works(options(kafka, "SASL_SSL", records, group, **more, **scram()), group)
        assert len(proxy.targets) >= 6


@pytest.mark.parametrize("gone", [False, True], ids=["refuses", "gone"])
@pytest.mark.parametrize("scheme", ["socks5", "http"])
def test_a_proxy_that_refuses_or_is_gone_is_named_without_its_password(kafka, records, group, caplog, scheme, gone):
    caplog.set_level(logging.DEBUG)
    wrong = "wr0ng-s3cret"
    quick = {"kafka.request.timeout.ms": "300", "kafka.fetch.max.wait.ms": "100", "kafkaConsumer.pollTimeoutMs": "300"}
    task = ReadTask((OffsetRange(TopicPartition(records, 0), 0, 1),))
    with Proxy(scheme) as closed:
        pass
    with Proxy(scheme) as proxy:
        url = (closed if gone else proxy).url(wrong)
        parsed = Options.parse(plaintext(kafka, records) | quick | {"kafka.proxy.url": url})
        try:
            for call in (lambda: GroupClient(parsed, group), lambda: list(read(task, parsed))):
                # On a busy machine the last attempt may end before the proxy's answer.
                reasons = "through kafka.proxy.url: .*(ECONNREFUSED|timed out)"
                with pytest.raises(BrokerTimeoutError, match=reasons) as raised:
                    call()
                assert wrong not in str(raised.value)
        finally:
            brokers_for(parsed).close()
        assert proxy.targets == []
    assert "ECONNREFUSED" in caplog.text
    assert wrong not in caplog.text
