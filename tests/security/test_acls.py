"""The least rights of a user, as docs/security.md has them, by Kafka's own authorizer; and errors that say so."""

import json

import pyarrow as pa
import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from pyspark.errors import PythonException
from secured import PASSWORD, add_user, options, scram, works
from support import commit_for, committed, name

from spark_kafka_group import explore, group_batch
from spark_kafka_group.__main__ import main
from spark_kafka_group.driver.batch_read import plan
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import BrokerError, CommitError, GroupKafkaError, MembershipError, ReadError
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.executor.writing.sending.routes import close_all
from spark_kafka_group.executor.writing.sink_columns import OutputRow, SinkColumns, arrow_batch, sink_columns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import SinkOptions, sink_options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import writable_topics
from spark_kafka_group.wire.admin import GroupAdmin

READ, DESCRIBE, WRITE = ACLOperation.READ, ACLOperation.DESCRIBE, ACLOperation.WRITE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.fixture
def user_with(kafka):
    """Makes users that may do some things and nothing else."""

    def make(*rights):
        user = name("user")
        add_user(kafka, user)
        known = name("known")  # brokers hear of ACLs in their order, so whoever may see this group has all of them
        acls = [
            ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, resource))
            for operation, kind, resource in [*rights, (DESCRIBE, GROUP, known)]
        ]
        for acl in acls:
            kafka.admin.create_acls([acl])
        parsed = Options.parse(options(kafka, "SASL", "any", **scram(user)))

        def may_see():
            try:
                with GroupAdmin(parsed) as admin:
                    return admin.describe(known).state == "Dead"
            except GroupKafkaError:
                return False

        wait_until(may_see, within=20)
        return user

    return make


def given(kafka, topic, group, user, **more):
    return options(kafka, "SASL", topic, group, **scram(user, PASSWORD), **more)


def test_read_on_topic_and_group_is_all_that_a_query_the_listener_and_describe_need(kafka, records, group, user_with):
    user = user_with((READ, TOPIC, records), (READ, GROUP, group))
    member = works(given(kafka, records, group, user), group)
    assert member.client_id == "groupkafka-driver"


def test_a_batch_read_without_a_group_needs_the_topic_only(kafka, records, user_with):
    parsed = Options.parse(given(kafka, records, None, user_with((READ, TOPIC, records))))
    rows = [row for ranges in plan(parsed) for batch in read(ReadTask(ranges), parsed) for row in batch.to_pylist()]
    brokers_for(parsed).close()
    assert len(rows) == 30


def test_who_may_only_look_may_plan_from_the_groups_offsets_and_use_the_tools(
    kafka, records, group, user_with, tmp_path, capsys
):
    commit_for(kafka, group, {(records, 0): 4, (records, 1): 10, (records, 2): 10})
    user = user_with((READ, TOPIC, records), (DESCRIBE, GROUP, group))
    more = {"startingOffsets": "group"}
    ((only,),) = plan(Options.parse(given(kafka, records, group, user) | more))
    assert (only.start, only.end) == (4, 10)
    for rights, command, code, message in (
        ((READ, TOPIC, records), "describe", 0, records),
        ((DESCRIBE, TOPIC, records), "describe", 1, f"the ACL operation Read on Topic {records}"),
        ((READ, TOPIC, "__consumer_offsets"), "offsets", 0, records),
    ):
        settings = scram(user_with(rights, (DESCRIBE, GROUP, group)))
        module = settings["sasl_jaas_config"].replace("\\", "\\\\")
        file = tmp_path / "client.properties"
        file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={module}")
        to = ["--bootstrap-server", kafka.servers_of("SASL"), "--group", group, "--command-config", str(file)]
        assert main([command, *to]) == code
        assert message in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("rights", "error", "message"),
    [
        (
            [(READ, TOPIC)],
            MembershipError,
            r"the ACL operation Describe \(or Read, which includes it\) on Group {group}",
        ),
        ([(READ, TOPIC), (DESCRIBE, GROUP)], MembershipError, "the ACL operation Read on Group {group}"),
        ([(READ, GROUP)], BrokerError, r"the ACL operation Describe \(or Read, which includes it\) on Topic {topic}"),
    ],
    ids=["no group", "describe group", "no topic"],
)
def test_a_right_that_is_missing_is_named_before_the_first_batch(
    kafka, records, group, user_with, rights, error, message
):
    resources = {TOPIC: records, GROUP: group}
    user = user_with(*[(operation, kind, resources[kind]) for operation, kind in rights])
    driver = StreamDriver(Options.parse(given(kafka, records, group, user)))
    try:
        with pytest.raises(error, match=message.format(group=group, topic=records)):
            driver.latest_offset(driver.initial_offset(), None)
    finally:
        driver.stop()


def test_a_topic_that_may_only_be_described_is_neither_read_nor_committed(kafka, records, group, user_with):
    user = user_with((DESCRIBE, TOPIC, records), (READ, GROUP, group))
    parsed = Options.parse(given(kafka, records, group, user))
    driver = StreamDriver(parsed)
    message = f"the ACL operation Read on Topic {records}"
    try:
        end = driver.latest_offset(driver.initial_offset(), None)
        with pytest.raises(ReadError, match=f"TopicAuthorizationFailedError: this user needs {message}"):
            list(read(ReadTask((OffsetRange(TopicPartition(records, 0), 0, 10),)), parsed))
        with pytest.raises(CommitError, match=message):
            driver.latest_offset(end, None)
    finally:
        driver.stop()
        brokers_for(parsed).close()


def subscribed(way, topic):
    """The option that names the topic in each way to read it."""
    return {
        "subscribePattern": {"subscribePattern": f"^({topic}|{topic}-hidden)$"},
        "assign": {"assign": json.dumps({topic: [0, 1, 2]})},
    }.get(way, {"subscribe": topic})


def one_batch(given):
    """A micro-batch as Spark runs one, committed by the next; returns the values read."""
    parsed = Options.parse(given)
    driver = StreamDriver(parsed)
    try:
        end = driver.latest_offset(driver.initial_offset(), None)
        tasks = driver.plan(driver.initial_offset(), end)
        rows = [r["value"] for ranges in tasks for b in read(ReadTask(ranges), parsed) for r in b.to_pylist()]
        assert driver.latest_offset(end, None) == end
        return rows
    finally:
        driver.stop()
        brokers_for(parsed).close()


def one_group_batch(spark, given):
    with group_batch(spark, {name: value for name, value in given.items() if name != "startingOffsets"}) as batch:
        return [row.value for row in batch.df.select("value").collect()]


@pytest.fixture
def runs(kafka, records, group, request):
    """Runs a batch in one of the ways, as a user; returns the values read."""

    def run(way, user):
        base = given(kafka, records, group, user)
        del base["subscribe"]
        chosen = base | subscribed(way, records)
        if way == "group_batch":
            return one_group_batch(request.getfixturevalue("spark"), chosen)
        return one_batch(chosen)

    return run


WAYS = ("subscribePattern", "assign", "group_batch")


@pytest.mark.parametrize("way", WAYS)
def test_read_on_topic_and_group_is_all_that_other_ways_to_read_need(kafka, records, group, user_with, runs, way):
    hidden = f"{records}-hidden"
    if way == "subscribePattern":
        kafka.produce(kafka.create_topic(hidden), [b"not for this user"])
    assert len(runs(way, user_with((READ, TOPIC, records), (READ, GROUP, group)))) == 30
    assert committed(kafka, group) == {(records, partition): 10 for partition in range(3)}


NO_GROUP = r"the ACL operation Describe \(or Read, which includes it\) on Group {group}"
GROUP_DESCRIBED = "the ACL operation Read on Group {group}"
NO_TOPIC = r"the ACL operation Describe \(or Read, which includes it\) on Topic {topic}"
TOPIC_DESCRIBED = "TopicAuthorizationFailedError: this user needs the ACL operation Read on Topic {topic}"


@pytest.mark.parametrize(
    ("rights", "message"),
    [
        ([(READ, TOPIC)], NO_GROUP),
        ([(READ, TOPIC), (DESCRIBE, GROUP)], GROUP_DESCRIBED),
        ([(READ, GROUP)], NO_TOPIC),
        ([(DESCRIBE, TOPIC), (READ, GROUP)], TOPIC_DESCRIBED),
    ],
    ids=["no group", "describe group", "no topic", "describe topic"],
)
@pytest.mark.parametrize("way", WAYS)
def test_each_right_that_is_missing_is_named_in_other_ways_to_read(
    kafka, records, group, user_with, runs, way, rights, message
):
    resources = {TOPIC: records, GROUP: group}
    user = user_with(*[(operation, kind, resources[kind]) for operation, kind in rights])
    if way == "subscribePattern" and message is NO_TOPIC:
        assert runs(way, user) == [], "what it may not describe is not found, without an error"
        return
    with pytest.raises((GroupKafkaError, PythonException), match=message.format(group=group, topic=records)):
        runs(way, user)
    assert committed(kafka, group) == {}


def assigning(kafka, records, group, user, partitions=(0, 1, 2)):
    """A query that assigns these partitions, and has not begun."""
    base = given(kafka, records, group, user)
    del base["subscribe"]
    return StreamDriver(Options.parse(base | {"assign": json.dumps({records: list(partitions)})}))


def ranges_of(driver, start, end):
    return {(r.tp.partition, r.start, r.end) for task in driver.plan(start, end) for r in task}


def test_assign_needs_no_right_on_the_group_before_its_first_commit(kafka, records, group, user_with):
    driver = assigning(kafka, records, group, user_with((READ, TOPIC, records)))
    try:
        start = driver.initial_offset()
        end = driver.latest_offset(start, None)
        assert sum(r.size for task in driver.plan(start, end) for r in task) == 30
        with pytest.raises(BrokerError, match=NO_GROUP.format(group=group)):
            driver.latest_offset(end, None)
    finally:
        driver.stop()


def test_a_right_that_is_given_after_the_first_batch_changes_no_position_of_assign(kafka, records, group, user_with):
    commit_for(kafka, group, {(records, 0): 7, (records, 1): 2})

    without = assigning(kafka, records, group, user_with((READ, TOPIC, records)))
    start = without.initial_offset()
    end = without.latest_offset(start, 12)
    assert end[records] == {"0": 4, "1": 4, "2": 4}
    with pytest.raises(BrokerError, match=NO_GROUP.format(group=group)):
        without.latest_offset(end, None)
    without.stop()
    for replayed in (False, True):
        driver = assigning(kafka, records, group, user_with((READ, TOPIC, records), (READ, GROUP, group)))
        try:
            if replayed:
                assert sum(r.size for task in driver.plan(start, end) for r in task) == 12
            known = driver.latest_offset(end, None)  # without records: its end says that the group is right from now on
            assert "unseen" in end["@group"]
            assert "unseen" not in known["@group"]
            assert driver.plan(end, known) == []
            last = driver.latest_offset(known, None)
            assert {(r.tp.partition, r.start, r.end) for task in driver.plan(known, last) for r in task} == {
                (partition, 4, 10) for partition in range(3)
            }
        finally:
            driver.stop()
        commit_for(kafka, group, {(records, 0): 7, (records, 1): 2})


def test_a_right_that_is_given_while_the_first_batch_runs_sets_all_offsets_right(kafka, records, group, user_with):
    commit_for(kafka, group, {(records, partition): 7 for partition in range(3)})
    user = user_with((READ, TOPIC, records))
    driver = assigning(kafka, records, group, user)
    start = driver.initial_offset()
    end = driver.latest_offset(start, 1)
    assert len(ranges_of(driver, start, end)) == 1
    right = ACL(f"User:{user}", "*", READ, ACLPermissionType.ALLOW, ResourcePattern(GROUP, group))
    kafka.admin.create_acls([right])

    def known():
        try:
            return driver.latest_offset(end, 1)
        except GroupKafkaError:
            return None

    now = wait_until(known, within=20)
    assert "unseen" not in now["@group"]
    assert committed(kafka, group) == {(records, int(p)): at for p, at in end[records].items()}
    driver.stop()
    driver = assigning(kafka, records, group, user)
    try:
        assert ranges_of(driver, now, driver.latest_offset(now, None)) == {
            (int(p), at, 10) for p, at in end[records].items()
        }
    finally:
        driver.stop()


def test_a_right_that_is_given_before_a_run_of_fewer_partitions(kafka, records, group, user_with):
    commit_for(kafka, group, {(records, partition): 7 for partition in range(3)})
    without = assigning(kafka, records, group, user_with((READ, TOPIC, records)))
    start = without.initial_offset()
    end = without.latest_offset(start, 12)
    assert ranges_of(without, start, end) == {(partition, 0, 4) for partition in range(3)}
    without.stop()
    user = user_with((READ, TOPIC, records), (READ, GROUP, group))
    driver = assigning(kafka, records, group, user, partitions=(0,))
    known = driver.latest_offset(end, None)
    assert "unseen" not in known["@group"]
    driver.stop()
    driver = assigning(kafka, records, group, user)
    try:
        assert ranges_of(driver, known, driver.latest_offset(known, None)) == {(p, 4, 10) for p in range(3)}
    finally:
        driver.stop()


def test_a_topic_that_a_query_has_left_needs_no_right(kafka, group, user_with):
    kept, left = (kafka.create_topic(name("topic")) for _ in range(2))
    kafka.produce(left, [b"value"] * 5)
    offset = None
    for topics in ((kept, left), (kept,), (kept,)):
        kafka.produce(kept, [b"value"] * 5)
        user = user_with((READ, GROUP, group), *[(READ, TOPIC, topic) for topic in topics])
        driver = StreamDriver(Options.parse(given(kafka, ",".join(topics), group, user)))
        try:
            start = offset or driver.initial_offset()
            offset = driver.latest_offset(start, None)
            assert sum(r.size for task in driver.plan(start, offset) for r in task) == 5 * len(topics)
            assert driver.latest_offset(offset, None) == offset
        finally:
            driver.stop()
    assert offset["@group"]["left"] == {left: {"0": 5}}


def test_who_may_not_write_to_a_topic_gets_an_error_and_write_is_all_it_takes(kafka, user_with):
    topic, other = kafka.create_topic(name("written")), kafka.create_topic(name("other"))
    for rights, allowed in (
        ([(DESCRIBE, TOPIC, topic)], False),
        ([(DESCRIBE, TOPIC, topic), (WRITE, TOPIC, other)], False),
        ([(WRITE, TOPIC, topic)], True),
    ):
        settings = sink_options(Options.parse(given(kafka, topic, None, user_with(*rights))), outlives=True)
        rows = [arrow_batch([OutputRow(topic, None, b"v", (), origin_partition=7)])]
        if allowed:
            assert sum(write(rows, settings, sink_columns()).records.values()) == 1
        else:
            with pytest.raises(BrokerError, match=f"this user needs the ACL operation Write on Topic {topic}"):
                write(rows, settings, sink_columns())


def test_the_tools_take_a_javas_properties_file_and_name_what_they_may_not(
    kafka, records, group, user_with, tmp_path, capsys
):
    user = user_with((READ, TOPIC, records), (READ, GROUP, group))
    settings = scram(user)["sasl_jaas_config"].partition(" required ")
    file = tmp_path / "client.properties"
    file.write_text(
        "# as kafka-consumer-groups takes it\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism:SCRAM-SHA-512\n"
        "sasl.jaas.config=" + settings[0] + " required \\\n    " + settings[2].replace("\\", "\\\\") + "\n"
    )
    to = ["--bootstrap-server", kafka.servers_of("SASL"), "--group", group, "--command-config", str(file)]
    reset = ["reset", *to, "--to-earliest", "--topic", records, "--execute", "--json"]
    assert main(reset) == 0, capsys.readouterr()
    assert main(["describe", *to, "--json"]) == 0
    assert "Empty" in capsys.readouterr().out
    assert main(["offsets", *to]) == 1
    assert "Describe (or Read, which includes it) on Topic __consumer_offsets" in capsys.readouterr().err
    file.write_text(file.read_text().replace("security.protocol", f"{PASSWORD[:4]}="))
    assert main(["describe", *to]) == 1
    assert PASSWORD[:4] not in capsys.readouterr().err


def test_a_look_into_a_topic_needs_no_right_on_the_cluster_and_names_the_one_on_the_topic(kafka, records, user_with):
    reader, other = user_with((READ, TOPIC, records)), user_with((DESCRIBE, TOPIC, records))
    (found,) = explore.topics(given(kafka, records, None, reader))
    assert (found.records, found.bytes, found.compression) == (30, None, "none")
    (found,) = explore.topics(given(kafka, records, None, other))
    assert (found.records, found.compression) == (30, None)
    with pytest.raises(ReadError, match=f"the ACL operation Read on Topic {records}"):
        explore.look(given(kafka, records, None, other), records)
    with pytest.raises(BrokerError, match=r"the ACL operation Describe \(or Read, which includes it\) on Topic"):
        explore.topics(given(kafka, records, None, user_with()))


def test_write_on_the_topic_is_all_that_writing_needs_and_who_lacks_it_hears_so_before_rows_move(kafka, user_with):
    topic, other = (kafka.create_topic(name("topic"), partitions=1) for _ in range(2))
    user = user_with((WRITE, TOPIC, topic), (DESCRIBE, TOPIC, other))
    rows = pa.record_batch([pa.array(["a", "b"])], names=["value"])

    def sink_of(topic):
        given = options(kafka, "SASL", topic, None, **scram(user, PASSWORD))
        names = {"subscribe", "startingOffsets"}
        return SinkOptions.parse({name: value for name, value in given.items() if name not in names} | {"topic": topic})

    writable_topics.check(sink_of(topic))
    assert write([rows], sink_of(topic), SinkColumns(value=0)).records == {TopicPartition(topic, 0): 2}
    for hidden in (other, kafka.create_topic(name("topic"), partitions=1), name("absent")):
        needed = f"^writing to topic {hidden}: this user needs the ACL operation Write on Topic {hidden}$"
        with pytest.raises(BrokerError, match=needed):
            writable_topics.check(sink_of(hidden))
        with pytest.raises(BrokerError, match=needed):
            write(iter(()), sink_of(hidden), SinkColumns(value=0))
    close_all()
