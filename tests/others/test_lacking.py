"""Brokers that lack a request, or its later versions: what goes on without, and what is one sentence."""

import re
import time

import pytest
from support.batches import client_options
from support.exactly_once_runs import Run, transaction_options
from support.triggers import batch_values, send

from spark_kafka_group import explore
from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.topic_admin import TopicAdmin
from spark_kafka_group.wire.transactions.kept_clients import close_all

AT_ONCE_S = 30


def reads_on(cluster, stream_of, capsys):
    """A stream, its restart, and a batch read."""
    topic = cluster.create_topic("orders", 2)
    send(cluster, topic, 0, range(5))
    stream = stream_of(cluster, topic)
    assert stream.trigger() == [0, 1, 2, 3, 4]
    send(cluster, topic, 1, range(5, 10))
    assert stream.trigger() == [5, 6, 7, 8, 9]
    stream.restart()
    send(cluster, topic, 0, [10])
    assert stream.trigger() == [10]
    assert batch_values(stream.settings) == list(range(11))


def writes_exactly_once(cluster, stream_of, capsys):
    """Two batches, and one after a restart."""
    run = Run(transaction_options(cluster.bootstrap_servers, "copy"), cluster.create_topic("output", 2))
    for batch in range(3):
        run.batch(batch)
        close_all()


def command(*arguments):
    """A command of a group."""

    def run(cluster, stream_of, capsys):
        topic = cluster.create_topic("orders", 1)
        send(cluster, topic, 0, range(5))
        stream = stream_of(cluster, topic)
        stream.trigger()
        stream.trigger()
        stream.reader.stop()
        done = main([arguments[0], "--bootstrap-server", cluster.bootstrap_servers, *arguments[1:]])
        said = capsys.readouterr()
        if done:
            raise GroupKafkaError(said.err)

    return run


def sizes(cluster, stream_of, capsys):
    """A look at a topic, its size is not known."""
    topic = cluster.create_topic("orders", 1)
    send(cluster, topic, 0, range(5))
    (found,) = explore.topics({"kafka.bootstrap.servers": cluster.bootstrap_servers})
    assert (found.topic, found.records, found.bytes) == (topic, 5, None)


def newest(cluster, stream_of, capsys):
    """The newest record of a log."""
    topic = cluster.create_topic("orders", 1)
    send(cluster, topic, 0, range(5))
    with TopicAdmin(client_options(cluster.bootstrap_servers)) as admin:
        admin.leaders([topic])
        (found,) = admin.newest([TopicPartition(topic, 0)]).values()
    assert found.offset == 0  # of equal timestamps the first one


def of_a_name(text):
    """What a sentence begins with, where a request is not there."""
    return f"these brokers do not have Kafka's request {text} in a version that is known here: "


WITHOUT = [
    # What is lacking, what is done, and the sentence; None where it goes on.
    ("OffsetForLeaderEpoch", reads_on, None),
    ("DescribeGroups", reads_on, None),
    ("DescribeGroups", command("describe", "--group", "billing"), of_a_name("DescribeGroups") + "members of groups"),
    ("DescribeGroups", command("reset", "--group", "billing", "--to-earliest"), of_a_name("DescribeGroups")),
    ("ListGroups", reads_on, None),
    ("ListGroups", command("describe", "--group", "billing"), None),
    ("ListGroups", command("describe", "--all-groups"), of_a_name("ListGroups") + "groups cannot be listed. Name one"),
    ("DescribeConfigs", reads_on, None),
    ("DescribeConfigs", writes_exactly_once, None),
    ("DescribeTransactions,ListTransactions", writes_exactly_once, None),
    ("DescribeLogDirs", sizes, None),
    ("InitProducerId", writes_exactly_once, of_a_name("InitProducerID")),
    ("JoinGroup=4", reads_on, None),
    ("OffsetFetch=1", reads_on, None),
    ("OffsetFetch=1", command("describe", "--group", "billing"), of_a_name("OffsetFetch")),
    ("OffsetFetch=7", command("describe", "--group", "billing"), None),
    ("ListOffsets=6", newest, None),
    ("ListOffsets=6", reads_on, None),
    ("FindCoordinator", reads_on, of_a_name("FindCoordinator") + "consumer groups need it"),
]


@pytest.mark.parametrize(
    ("lacking", "doing", "sentence"), WITHOUT, ids=[f"{lacking} {n}" for n, (lacking, *_) in enumerate(WITHOUT)]
)
def test_what_brokers_lack_is_done_without_or_is_one_sentence(kfake_with, stream_of, capsys, lacking, doing, sentence):
    versions = dict(part.split("=") for part in lacking.split(",") if "=" in part)
    names = [part.replace("InitProducerId", "InitProducerID") for part in lacking.split(",") if "=" not in part]
    cluster = kfake_with(lacks=names, caps=versions)
    began = time.monotonic()
    try:
        doing(cluster, stream_of, capsys)
        said = None
    except GroupKafkaError as error:
        said = str(error)
    finally:
        close_all()
    if sentence is None:
        assert said is None
    else:
        assert said is not None
        assert re.search(sentence.replace("InitProducerID", "InitProducerId"), said), said
        assert time.monotonic() - began < AT_ONCE_S
