"""Differences for a client of Spark Connect: queries and package are in the server."""

import json
import signal
import subprocess

import pyspark
import pytest
from deployed import ApplicationError, Deployed
from support import Record, commit_for, committed, members, name, numbered, options, produce, registries, topic_with
from support.written_values import confluent

from spark_kafka_group.testing import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]  # which the start of the cluster is counted in


PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from spark_kafka_group import submit

address, options, group, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
with submit.orderly(group):
    source = spark.readStream.format("groupkafka").options(**json.loads(options)).load()
    source.writeStream.format("noop").option("checkpointLocation", checkpoint).start().awaitTermination()
"""

PROCESSING = """
import json, sys
addresses = []
sys.addaudithook(lambda event, about: event == "socket.connect" and addresses.append(about[1]))
from pyspark.sql import SparkSession
from spark_kafka_group import ProducerRecord, RecordProcessor

address, options, written, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
source = spark.readStream.format("groupkafka").options(**json.loads(options)).load()
processor = RecordProcessor(
    lambda record: ProducerRecord(record.value.upper()), options=json.loads(options), write_options=json.loads(written)
)
processor.start(source, checkpoint, availableNow=True).awaitTermination()
print(json.dumps([address[1] for address in addresses if isinstance(address, tuple)]))
"""


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


def test_values_are_columns_and_the_server_alone_asks_the_schema_registry(client, kafka, group, tmp_path):
    topic = topic_with(kafka, [], partitions=1)
    schema = {"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "amount", "type": ["null", "double"]},
    ]}  # fmt: skip
    orders = [{"id": 1, "amount": 0.5}, {"id": 2, "amount": None}]
    with registries.Apicurio() as registry:
        produce(kafka, topic, [Record(0, None, each.value) for each in confluent(registry, topic, schema, orders)])
        given = options(kafka, topic, group, valueFormat="avro", **{"schema.registry.url": registry.url})
        assert ",value:struct<id:bigint,amount:double>," in client.schema(options=given)
        assert client.read(options=given) == ["{1, 0.5}", "{2, null}"]
        query = client.start(options=given, directory=str(tmp_path), available_now=True)
        assert client.ends(query=query)
    assert sorted(client.rows(directory=str(tmp_path / "rows"))) == ["{1, 0.5}", "{2, null}"]


def test_a_wrong_option_is_an_error_when_the_schema_or_the_data_is_asked_for(client, kafka):
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


def test_a_function_for_foreach_batch_writes_rows_again_and_may_not_commit_offsets(client, kafka, group, tmp_path):
    topic, output = topic_with(kafka, numbered(3, 1)), kafka.create_topic(name("output"), partitions=1)
    once = {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": name("w")}
    to = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": output, **once}
    written = options(kafka, output, **{"kafka.isolation.level": "read_committed"})
    with_id = options(kafka, topic, group, **{"kafka.transactional.id": to["kafka.transactional.id"]})
    (tmp_path / "refused").mkdir()
    with pytest.raises(ApplicationError, match="is also that of a streaming query's source"):
        client.each_batch(options=with_id, output=to, directory=str(tmp_path / "refused"))
    assert client.read(options=written) == []
    with pytest.raises(ApplicationError, match="after the write"):
        client.each_batch(options=options(kafka, topic), output=to, directory=str(tmp_path))
    client.each_batch(options=options(kafka, topic), output=to, directory=str(tmp_path))
    assert sorted(client.read(options=written)) == sorted([record.value.decode() for record in numbered(3, 1)] * 2)


def test_a_function_for_foreach_batch_has_the_settings_of_the_start_of_its_query(client, kafka, group, tmp_path):
    topic, noted = topic_with(kafka, numbered(3, 1)), tmp_path / "noted"
    client.set_partitions(number=3)
    query = client.note_partitions(options=options(kafka, topic, group), directory=str(tmp_path))
    wait_until(lambda: noted.exists() and noted.read_text() == "3\n", within=120)
    client.set_partitions(number=5)
    produce(kafka, topic, numbered(3, 1))
    wait_until(lambda: noted.read_text().count("\n") > 1, within=120)  # more where a batch begins among them
    client.stop(query=query)
    first, *later = noted.read_text().split()
    assert (first, set(later)) == ("3", {"3" if has_sessions_of_queries() else "5"})


def has_sessions_of_queries():
    return tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 3)


def test_offsets_become_visible_with_the_rows_of_an_exactly_once_write(client, kafka, group, tmp_path):
    topic, output = topic_with(kafka, numbered(30, 3)), kafka.create_topic(name("output"), partitions=1)
    once = {"kafka.transactional.id": name("w")}
    to = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": output, "deliveryGuarantee": "exactly-once"}
    query = client.copy(options=options(kafka, topic, group, **once), output=to | once, directory=str(tmp_path))
    assert client.ends(query=query)
    written = options(kafka, output, **{"kafka.isolation.level": "read_committed"})
    assert sorted(client.read(options=written)) == sorted(record.value.decode() for record in numbered(30, 3))
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}


def test_a_notebook_explores_with_a_session_of_spark_connect(client, kafka, group):
    topic = topic_with(kafka, [Record(0, None, b'{"n": %d}' % n) for n in range(5)])
    commit_for(kafka, group, {(topic, 0): 3})
    found = client.explored(options={"kafka.bootstrap.servers": kafka.bootstrap_servers}, topic=topic, group=group)
    assert found.pop("groups") >= 1
    assert found == {"topics": 1, "look": 5, "lag": 1, "rate": 96, "schema": "struct<n:bigint>"}


def test_a_client_that_stops_its_session_takes_its_queries_out_of_their_groups(
    connect_client, connect_address, kafka, group, tmp_path
):
    topic = topic_with(kafka, numbered(30, 3))
    leaving = Deployed(connect_client, tmp_path / "client", conf={}, remote=connect_address)
    try:
        leaving.start(options=options(kafka, topic, group), directory=str(tmp_path / "query"))
        wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)}, within=120)
        assert len(members(kafka, group)) == 1
    finally:
        leaving.close()
    wait_until(lambda: members(kafka, group) == [], within=30)


@pytest.mark.parametrize("number", [signal.SIGINT, None], ids=["Ctrl-C", "an error"])
def test_a_program_in_an_orderly_block_ends_with_one_line(
    connect_client, connect_address, kafka, group, tmp_path, number
):
    topic = topic_with(kafka, numbered(3, 3))
    wrong = {} if number else {"startingOffsets": json.dumps({topic: {str(p): 0 for p in range(4)}})}
    settings = json.dumps(options(kafka, topic, group) | wrong)
    program = subprocess.Popen(
        [connect_client.python, "-c", PROGRAM, connect_address, settings, group, tmp_path / "checkpoint"],
        env=connect_client.environment(PYTHONWARNINGS="ignore::FutureWarning"),  # pyspark's, of pandas 3
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        if number:
            wait_until(lambda: committed(kafka, group) == {(topic, p): 1 for p in range(3)}, within=120)
            program.send_signal(number)
        lines = program.communicate(timeout=120)[0].splitlines()
    finally:
        program.kill()
    last = f"stopped; left group {group}" if number else f"startingOffsets names {topic}-3, which the cluster does not"
    assert program.returncode == (128 + number if number else 1)
    assert len(lines) == 1
    assert lines[0].startswith(last)
    wait_until(lambda: members(kafka, group) == [], within=30)


def test_a_processor_that_returns_records_needs_no_way_from_the_client_to_the_brokers(
    client, connect_client, connect_address, kafka, group, tmp_path
):
    topic, output = topic_with(kafka, numbered(3, 1)), kafka.create_topic(name("output"), partitions=1)
    given = [json.dumps(options(kafka, topic, group)), json.dumps({"topic": output})]
    program = [connect_client.python, "-c", PROCESSING, connect_address, *given, tmp_path / "checkpoint"]
    done = subprocess.run(program, env=connect_client.environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    brokers = {int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(",")}
    assert not brokers & set(json.loads(done.stdout.splitlines()[-1]))
    values = [record.value.decode().upper() for record in numbered(3, 1)]
    assert sorted(client.read(options=options(kafka, output))) == values
