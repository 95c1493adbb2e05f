"""Differences for a client of Spark Connect: queries and package are in the server."""

import pytest
from deployed import ApplicationError, Deployed
from support import committed, members, numbered, options, topic_with

from spark_kafka_group.testing import wait_until

pytestmark = pytest.mark.timeout(600)  # which the start of the cluster is counted in


@pytest.fixture(scope="module")
def client(tmp_path_factory, connect_client, connect_address):
    """A client of its own."""
    application = Deployed(connect_client, tmp_path_factory.mktemp("client"), conf={}, remote=connect_address)
    yield application
    application.close()


def test_the_client_needs_nothing_of_the_package(client, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(30, 3))
    assert len(client.read(options=options(kafka, topic))) == 30
    query = client.start(options=options(kafka, topic, group), directory=str(tmp_path), available_now=True)
    assert client.ends(query=query)
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}
    imported = {module.partition(".")[0] for module in client.modules()}
    assert not imported & {"spark_kafka_group", "pyspark_groupkafka", "kafka"}


def test_a_wrong_option_is_told_when_the_schema_or_the_data_is_asked_for(client, kafka):
    wrong = options(kafka, "t", "g", maxOffsetPerTrigger=1)
    for call in (client.schema, client.read):
        with pytest.raises(ApplicationError, match="the nearest is maxOffsetsPerTrigger"):
            call(options=wrong)


def test_the_listener_says_that_it_cannot_serve_spark_connect(client):
    with pytest.raises(ApplicationError, match=r"TypeError: GroupKafkaListener .*Spark Connect"):
        client.listener()


def test_a_source_registered_by_the_client(client, kafka, group, tmp_path):
    client.register()
    topic = topic_with(kafka, numbered(30, 3))
    assert len(client.read(options=options(kafka, topic))) == 30
    query = client.start(options=options(kafka, topic, group), directory=str(tmp_path), available_now=True)
    assert client.ends(query=query)
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}


def test_a_client_that_stops_its_session_takes_its_queries_out_of_their_groups(client, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(30, 3))
    client.start(options=options(kafka, topic, group), directory=str(tmp_path))
    wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)}, within=120)
    assert len(members(kafka, group)) == 1
    client.close()
    wait_until(lambda: members(kafka, group) == [], within=10)
