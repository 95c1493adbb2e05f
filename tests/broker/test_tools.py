"""The commands about a group, on real brokers: their output agrees with Kafka's own tools."""

import contextlib
import html
import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition
from running import settled
from support import Record, commit_for, committed, name, numbered, produce, topic_with

from spark_kafka_group import explore
from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import CommitError
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC, GenerationEntry, coordinator_partition
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.tools import describe, group_records, reset
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.tools.formatting import written_by
from spark_kafka_group.tools.reset import Scope, Target, To
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin

NOW_MS = 1_700_000_100_000
"""A clock that shows 100 seconds after the timestamp of the tests' records."""


def admin_of(kafka):
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": OFFSETS_TOPIC}
    return GroupAdmin(Options.parse(servers))


@pytest.fixture
def admin(kafka):
    with admin_of(kafka) as admin:
        yield admin


@pytest.fixture
def tool(kafka, capsys):
    """Runs a command on the broker; returns its exit code, its lines, and its stderr."""

    def run(command, *arguments, servers=kafka.bootstrap_servers):
        capsys.readouterr()
        code = main([command, "--bootstrap-server", servers, *map(str, arguments)])
        output = capsys.readouterr()
        return code, output.out.splitlines(), output.err

    return run


@pytest.fixture
def tool_json(tool):
    """Runs a command that must succeed; returns its lines as objects."""

    def run(command, *arguments, **more):
        code, lines, error = tool(command, *arguments, "--json", **more)
        assert (code, error) == (0, "")
        return [json.loads(line) for line in lines]

    return run


class Consumer:
    """A member of a group that polls in a thread, as consumers do that are not Spark."""

    def __init__(self, kafka, topic, group, **configs):
        self.consumer = KafkaConsumer(
            topic, bootstrap_servers=kafka.bootstrap_servers, group_id=group, enable_auto_commit=False, **configs
        )
        self._ending = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until(lambda: kafka.group_state(group)[0] == "Stable" and self.consumer.assignment(), within=30)

    def _run(self):
        while not self._ending.wait(0.02):  # somebody else's turn
            with self._turn:
                self.consumer.poll(timeout_ms=1000)  # long enough for a whole join

    def commit(self, topic, offsets, metadata=""):
        wanted = {KafkaTopicPartition(topic, p): OffsetAndMetadata(o, metadata, -1) for p, o in offsets.items()}
        with self._turn:
            self.consumer.commit(wanted)

    def close(self):
        if not self._ending.is_set():
            self._ending.set()
            self._thread.join()
            self.consumer.close(autocommit=False)


@pytest.fixture
def consumer_of():
    """Makes members and closes them."""
    made = []

    def make(kafka, topic, group, **configs):
        made.append(Consumer(kafka, topic, group, **configs))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def transaction(kafka, topic, group, offsets, commit):
    """Commit offsets in a transaction, or abort it."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name("transaction"))
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, enable_auto_commit=False)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        wanted = {KafkaTopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in offsets.items()}
        producer.send_offsets_to_transaction(wanted, consumer.group_metadata())
        producer.commit_transaction() if commit else producer.abort_transaction()
    finally:
        consumer.close(autocommit=False)
        producer.close()


# offsets


def test_a_group_is_led_by_the_node_that_kafka_finds_for_it(kafka3, group):
    commit_for(kafka3, group, {(kafka3.create_topic(name("topic")), 0): 0})  # makes the offsets topic
    with admin_of(kafka3) as admin:
        for named in ("groupkafka", "my-group", "test", "消费组", "g😀", "polygenelubricants", group):
            located = group_records.locate(admin, named)
            assert located.tp == (OFFSETS_TOPIC, coordinator_partition(named, 5))
            assert located.leader == admin.coordinator(named)


def test_what_a_query_commits_is_shown_with_its_generation_and_its_note(kafka, group, driver_of, tool, tool_json):
    topic = topic_with(kafka, numbered(30, 3))
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), None)
    assert driver.latest_offset(end, None) == end
    log, *records = tool_json("offsets", "--group", group)
    assert (log["kind"], log["topic"], log["partition"]) == ("log", OFFSETS_TOPIC, coordinator_partition(group, 5))
    generation = [record for record in records if record["kind"] == "generation"][-1]
    assert generation["generation"] == end["@group"]["generation"]
    (member,) = generation["members"]
    assert (member["member_id"], member["client_id"]) == (generation["leader"], "groupkafka-driver")
    assert (member["host"], member["topics"]) == ("/127.0.0.1", [topic])
    assert member["assigned"] == [[topic, p] for p in range(3)]
    commits = [record for record in records if record["kind"] == "commit"]
    assert {(c["topic"], c["partition"], c["offset"]) for c in commits} == {(topic, p, 10) for p in range(3)}
    for commit in commits:
        assert commit["note"]["reader"] == end["@group"]["reader"]
        assert commit["note"]["generation"] == end["@group"]["generation"]
    assert [r["log_offset"] for r in records] == sorted(r["log_offset"] for r in records)

    code, lines, _ = tool("offsets", "--group", group)
    assert code == 0
    assert lines[0].startswith(f"{OFFSETS_TOPIC}-{coordinator_partition(group, 5)}, led by node 1 (127.0.0.1:")
    assert len(lines) == 1 + len(records)
    reader = f"reader {end['@group']['reader']}, generation {generation['generation']}"
    assert any(f"commit         {topic}-0  10  by {reader}" in line for line in lines)
    shown = (
        f"({member['client_id']} /127.0.0.1 instance {member['instance_id']}) subscribes {topic} assigned {topic}:0,1,2"
    )
    assert any(shown in line for line in lines)


def test_last_shows_the_newest_record_of_each_key(kafka, group, topic, tool_json):
    for offset in (1, 2, 3):
        commit_for(kafka, group, {(topic, 0): offset, (topic, 1): 7})
    everything = tool_json("offsets", "--group", group)
    last = tool_json("offsets", "--group", group, "--last")
    assert [r["offset"] for r in everything if r["kind"] == "commit" and r["partition"] == 0] == [1, 2, 3]
    assert [(r["partition"], r["offset"]) for r in last if r["kind"] == "commit"] == [(0, 3), (1, 7)]


def test_a_deleted_group_leaves_records_that_say_so(kafka, group, topic, consumer_of, tool, tool_json):
    consumer = consumer_of(kafka, topic, group)
    consumer.commit(topic, {0: 5}, metadata="line\nbreak")
    consumer.close()
    kafka.admin.delete_groups([group])
    _, *records = tool_json("offsets", "--group", group)
    assert [r["kind"] for r in records[-2:]] == ["removed", "group_removed"]
    _, lines, _ = tool("offsets", "--group", group)
    assert len(lines) == 1 + len(records)
    assert any("metadata 'line\\nbreak'" in line for line in lines)
    assert tool_json("offsets", "--group", group, "--last")[-1]["kind"] == "group_removed"


def test_markers_of_transactions_at_the_end_of_the_log_do_not_keep_it_from_ending(
    kafka, group, topic, tool_json, admin
):
    for commit, offset in ((True, 3), (False, 4)):
        transaction(kafka, topic, group, {0: offset}, commit)
        wait_until(lambda: ends_in_a_marker(admin, group), within=30)
        records = [r for r in tool_json("offsets", "--group", group) if r["kind"] == "commit"]
        assert records[-1]["offset"] == offset
    assert committed(kafka, group) == {(topic, 0): 3}


def ends_in_a_marker(admin, group):
    located = group_records.locate(admin, group)
    records = list(admin.read(located.tp, located.start, located.end))
    return records[-1].offset < located.end - 1


def test_a_group_that_does_not_exist_has_no_records(group, kafka, topic, tool):
    commit_for(kafka, name("another"), {(topic, 0): 0})
    code, lines, _ = tool("offsets", "--group", group)
    assert (code, lines[1:]) == (0, [f"nothing about group {group}"])


def test_groups_of_the_newer_protocol_are_shown_record_by_record(kafka, group, topic, tool, tool_json):
    produce(kafka, topic, numbered(3, 3))
    kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap_servers,
        "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3",
        "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    records = tool_json("offsets", "--group", group)[1:]
    assert all(r["group"] == group for r in records)
    member = next(r for r in records if r["kind"] == "member")
    assert (member["protocol"], member["topics"], member["strategies"]) == ("consumer", [topic], None)
    assert [[topic, p] for p in range(3)] in [r["assigned"] for r in records if r["kind"] == "assignment"]
    assert {"epoch", "target_epoch", "target", "commit", "left"} <= {r["kind"] for r in records}
    assert not {"other", "undecodable"} & {r["kind"] for r in records}
    _, lines, _ = tool("offsets", "--group", group)
    assert any(f"stable  assigned {topic}:0,1,2" in line for line in lines)
    assert any(f"protocol consumer subscribes {topic}" in line for line in lines)
    assert any(line.endswith("consumer group member metadata") for line in lines)
    rows = [row for row in tool_json("describe", "--group", group) if row["kind"] == "partition"]
    assert {row["partition"]: (row["current_offset"], row["lag"]) for row in rows} == dict.fromkeys(range(3), (1, 0))
    # Its offsets are committed as everybody's, so they can be set.
    moved = tool_json("reset", "--group", group, "--to-latest", "--topic", topic, "--execute")
    assert {row["new_offset"] for row in moved} == {1}
    assert committed(kafka, group) == {(topic, p): 1 for p in range(3)}


def test_bytes_that_are_no_record_are_shown_as_such_and_the_rest_is_read(group, capsys):
    with KafkaCluster() as kafka:
        topic = kafka.create_topic(name("topic"))
        commit_for(kafka, group, {(topic, 0): 1})
        key = b"\0\1" + len(group).to_bytes(2, "big") + group.encode() + b"\0\1t\0\0\0\0"
        good = b"\0\2" + (2).to_bytes(8, "big") + b"\0\0" + (NOW_MS).to_bytes(8, "big")
        records = [(key, b"\0\7"), (b"\0\1\x7f", b""), (key, b"\0\3" + b"\xff" * 40), (key, good)]
        # Only brokers may write into it, and kafka-python lets no client do so.
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, client_id="__admin_client")
        partition = coordinator_partition(group, len(producer.partitions_for(OFFSETS_TOPIC)))
        for any_key, value in records:
            producer._metadata.internal_topics.clear()
            producer.send(OFFSETS_TOPIC, partition=partition, key=any_key, value=value).get(timeout=30)
        producer.close()
        assert main(["offsets", "--bootstrap-server", kafka.bootstrap_servers, "--group", group]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["commit", *["undecodable"] * 3, "commit"]
    assert "value of the offset of t-0: version 7 is not known, only 0 to 4 are" in lines[1]
    assert "key: 2 bytes announced at 2 of 3" in lines[2]
    assert "t-0  2  without metadata" in lines[4]


def test_a_cluster_without_groups_is_an_error_that_says_so(group, tool):
    with KafkaCluster() as kafka:
        code, lines, error = tool("offsets", "--group", group, servers=kafka.bootstrap_servers)
        assert (code, lines) == (1, [])
        assert f"the cluster shows no topic {OFFSETS_TOPIC}: " in error
        assert "or no group has been used in it yet" in error
        code, _, error = tool("describe", "--group", group, servers=kafka.bootstrap_servers)
        assert code == 1
        assert f"there is no group {group}: the cluster has no groups" in error


# describe


def rows_of(report):
    """A report's partitions as Kafka's tool has them."""
    return [(*row.tp, row.current_offset, row.log_end_offset, row.lag, *owner_of(row)) for row in report.partitions]


def owner_of(row):
    return (row.owner.member_id, row.owner.host, row.owner.client_id) if row.owner else (None, None, None)


def kafkas_rows(kafka, group):
    return [
        (r.topic, r.partition, r.current_offset, r.log_end_offset, r.lag, r.consumer_id, r.host, r.client_id)
        for r in kafka.describe_group(group)
    ]


def test_describe_has_kafkas_numbers_for_a_group_with_a_query(kafka, group, driver_of, admin, tool, tool_json):
    topic = topic_with(kafka, numbered(30, 3))
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), 15)
    driver.latest_offset(end, 15)
    report = describe.look(admin, group, lambda: NOW_MS / 1000)
    assert rows_of(report) == kafkas_rows(kafka, group)
    assert [(row.current_offset, row.log_end_offset, row.lag, row.lag_s) for row in report.partitions] == [
        (5, 10, 5, 100.0)
    ] * 3
    assert {(row.note.query_id, row.note.generation) for row in report.partitions} == {
        (end["@group"]["reader"], end["@group"]["generation"])
    }
    newest = [w.entry for w in group_records.read(admin, group, group_records.locate(admin, group))]
    assert report.generation == [e.generation for e in newest if isinstance(e, GenerationEntry)][-1]
    assert report.generation == driver._session.member.generation.id
    assert (report.state, report.strategy, report.problem) == ("Stable", "range", None)
    assert report.coordinator == admin.coordinator(group)
    (member,) = report.members
    assert member.assigned == {TopicPartition(topic, p) for p in range(3)}
    assert member.instance_id is not None

    lines = tool_json("describe", "--group", group)
    assert [line["kind"] for line in lines] == ["group", "member", *["partition"] * 3]
    assert (lines[0]["generation"], lines[1]["assigned"][0]) == (report.generation, [topic, 0])
    assert lines[2]["consumer_id"] == member.member_id
    _, lines, _ = tool("describe", "--group", group)
    coordinator = f"coordinator {report.coordinator}"
    assert lines[0] == f"group {group}: Stable, generation {report.generation}, strategy range, {coordinator}"
    assert lines[2].split() == ["CONSUMER-ID", "INSTANCE-ID", "CLIENT-ID", "HOST", "PARTITIONS"]
    assert lines[3].split()[-1] == f"{topic}:0,1,2"
    assert lines[6].split()[:5] == [topic, "0", "5", "10", "5"]
    assert lines[6].endswith(written_by(report.partitions[0].note))


def test_describe_shows_the_position_of_a_query_besides_what_it_has_committed(
    kafka, group, driver_of, tool, tool_json, tmp_path
):
    topic = topic_with(kafka, numbered(30, 3))
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), 6)
    running = driver.latest_offset(end, 12)
    offsets_log = tmp_path / "offsets"
    offsets_log.mkdir()
    for batch, offset in ((9, end), (10, running)):  # as Spark writes them before it runs a batch
        (offsets_log / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        (offsets_log / f".{batch}.crc").write_bytes(b"crc")
    _, _, *rows = tool_json("describe", "--group", group, "--checkpoint", str(tmp_path))
    assert [(row["current_offset"], row["position"], row["log_end_offset"]) for row in rows] == [(2, 6, 10)] * 3
    code, _, error = tool("describe", "--group", group, "--checkpoint", str(tmp_path / "offsets"))
    assert code == 1
    assert "is not the checkpoint of a query" in error


@pytest.mark.soak
def test_describe_has_kafkas_numbers_for_a_group_of_others(kafka, group, consumer_of, admin):
    topic = topic_with(kafka, numbered(20, 2), partitions=3)
    consumer = consumer_of(kafka, topic, group, client_id="somebody")
    consumer.commit(topic, {0: 4, 2: 0}, metadata="not a note")  # nothing for the second, an empty third
    report = describe.look(admin, group, time.time)
    assert rows_of(report) == kafkas_rows(kafka, group)
    assert [(r.current_offset, r.lag, r.lag_s is None, r.note) for r in report.partitions] == [
        (4, 6, False, None),
        (None, None, True, None),
        (0, 0, False, None),
    ]
    assert report.partitions[2].lag_s == 0.0
    consumer.close()
    report = describe.look(admin, group, time.time)
    assert rows_of(report) == kafkas_rows(kafka, group)
    assert (report.state, report.members, report.strategy) == ("Empty", (), "")
    assert all(row.owner is None for row in report.partitions)


def test_lag_in_seconds_is_the_age_of_the_first_record_that_is_not_committed(kafka, group, topic, admin):
    times = [NOW_MS - 90_000, NOW_MS - 30_000, NOW_MS + 5_000]
    produce(kafka, topic, [Record(0, None, b"", timestamp_ms=t) for t in times])
    ages = []
    for offset in range(4):
        commit_for(kafka, group, {(topic, 0): offset})
        ages.append(describe.look(admin, group, lambda: NOW_MS / 1000).partitions[0].lag_s)
    assert ages == [90.0, 30.0, 0.0, 0.0]  # a record from the future has not waited yet


def test_lag_in_seconds_is_of_the_first_record_there_is_when_the_one_to_be_read_is_gone(kafka, group, topic, admin):
    produce(kafka, topic, [Record(0, None, b"", timestamp_ms=NOW_MS - 1000 * (9 - n)) for n in range(10)])
    commit_for(kafka, group, {(topic, 0): 2})
    kafka.admin.delete_records({KafkaTopicPartition(topic, 0): 6})
    (row,) = describe.look(admin, group, lambda: NOW_MS / 1000).partitions
    assert (row.current_offset, row.log_end_offset, row.lag, row.lag_s) == (2, 10, 8, 3.0)
    assert rows_of(describe.look(admin, group, time.time)) == kafkas_rows(kafka, group)


def test_nothing_but_a_transactions_marker_after_the_commit_is_no_lag_in_seconds(kafka, group, topic, admin):
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name("transaction"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, partition=0, value=b"").get(timeout=30)
    producer.commit_transaction()
    producer.close()
    commit_for(kafka, group, {(topic, 0): 1})
    (row,) = describe.look(admin, group, time.time).partitions
    assert (row.log_end_offset, row.lag, row.lag_s) == (2, 1, 0.0)


def test_a_topic_that_was_deleted_has_neither_end_nor_lag(kafka, group, topic, tool_json):
    gone = kafka.create_topic(name("gone"))
    commit_for(kafka, group, {(topic, 0): 0, (gone, 0): 1})
    kafka.delete_topic(gone)
    rows = {line["topic"]: line for line in tool_json("describe", "--group", group) if line["kind"] == "partition"}
    if gone in rows:  # the broker removes what is committed for it, but later
        assert (rows[gone]["log_end_offset"], rows[gone]["lag"], rows[gone]["lag_seconds"]) == (None, None, None)
    assert rows[topic]["lag"] == 0


def test_a_client_that_names_itself_to_steer_a_terminal_is_shown_escaped(
    kafka, group, topic, consumer_of, tool, tool_json
):
    evil, shown = "\x1b[2J\u202eevil\n", r"\x1b[2J\u202eevil\n"
    consumer = consumer_of(kafka, topic, group, client_id=evil)
    consumer.commit(topic, {0: 0}, metadata=evil)
    for command in ("describe", "offsets"):
        code, lines, error = tool(command, "--group", group)
        assert (code, error) == (0, "")
        assert all(line.isprintable() for line in lines)
        assert any(shown in line for line in lines)
    code, _, error = tool("reset", "--group", group, "--to-latest", "--all-topics")
    assert code == 1
    assert error.removesuffix("\n").isprintable()
    assert f"({shown} /127.0.0.1)" in error
    (member,) = [line for line in tool_json("describe", "--group", group) if line["kind"] == "member"]
    assert member["client_id"] == evil
    assert [row["metadata"] for row in tool_json("offsets", "--group", group) if row["kind"] == "commit"] == [evil]


def test_a_group_that_does_not_exist_is_an_error_with_the_nearest_that_does(kafka, group, topic, tool):
    commit_for(kafka, group, {(topic, 0): 0})
    code, lines, error = tool("describe", "--group", f"{group}x")
    assert (code, lines) == (1, [])
    assert error.endswith(f"there is no group {group}x: the nearest name is {group}\n")


def test_without_a_group_all_groups_are_described(kafka, group, topic, tool, tool_json):
    groups = [f"{group}-{number}" for number in range(2)]
    for number, each in enumerate(groups):
        commit_for(kafka, each, {(topic, 0): number})
    lines = tool_json("describe", "--all-groups")
    assert set(groups) <= {line["group"] for line in lines if line["kind"] == "group"}
    _, lines, _ = tool("describe")
    heads = [line.split(":")[0].removeprefix("group ") for line in lines if line.startswith("group ")]
    assert heads == sorted(heads)
    assert set(groups) <= set(heads)


def test_a_watched_group_is_shown_again_until_ctrl_c(kafka, group, topic):
    commit_for(kafka, group, {(topic, 0): 1})
    command = [sys.executable, "-m", "spark_kafka_group", "describe", "--bootstrap-servers", kafka.bootstrap_servers]
    arguments = ["--group", group, "--watch", "0.1", "--json"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as watching:
        assert '"current_offset": 1' in [watching.stdout.readline(), watching.stdout.readline()][1]
        commit_for(kafka, group, {(topic, 0): 2})
        while '"current_offset": 2' not in watching.stdout.readline():
            assert watching.poll() is None
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        assert watching.wait(60) == 130


# reset

TARGETS = [
    (["--to-earliest"], ["--to-earliest"]),
    (["--to-latest"], ["--to-latest"]),
    (["--to-offset", "7"], ["--to-offset", "7"]),
    (["--to-offset", "700"], ["--to-offset", "700"]),
    (["--to-offset", "0"], ["--to-offset", "0"]),
    (["--shift-by", "3"], ["--shift-by", "3"]),
    (["--shift-by", "-100"], ["--shift-by", "-100"]),
    (["--to-datetime", "2023-11-14T22:13:24"], ["--to-datetime", "2023-11-14T22:13:24.000"]),
    (["--to-datetime", "2023-11-14T23:13:24.500+01:00"], ["--to-datetime", "2023-11-14T23:13:24.500+01:00"]),
    (["--to-datetime", "2030-01-01"], ["--to-datetime", "2030-01-01T00:00:00.000"]),
]


@pytest.fixture(scope="module")
def log_from_2_to_10(kafka):
    """A topic whose second partition has no records, and whose first has lost two; a second apart each."""
    topic = kafka.create_topic(name("topic"), partitions=2)
    produce(kafka, topic, [Record(0, None, b"", timestamp_ms=1_700_000_000_000 + 1000 * n) for n in range(10)])
    kafka.admin.delete_records({KafkaTopicPartition(topic, 0): 2})
    return topic


@pytest.mark.parametrize(
    ("ours", "kafkas"),
    [
        pytest.param(*each, marks=pytest.mark.soak if n % 3 else (), id=" ".join(each[0]))
        for n, each in enumerate(TARGETS)
    ],
)
def test_offsets_are_set_where_kafkas_own_tool_would_set_them(kafka, group, log_from_2_to_10, tool_json, ours, kafkas):
    topic = log_from_2_to_10
    commit_for(kafka, group, {(topic, 0): 5, (topic, 1): 0})
    result = kafka.consumer_groups("--group", group, "--reset-offsets", "--topic", topic, "--dry-run", *kafkas)
    wanted = {}
    for line in result.splitlines():
        words = line.split()
        if words[:1] == [group]:
            wanted[words[1], int(words[2])] = int(words[3])
    assert set(wanted) == {(topic, 0), (topic, 1)}
    planned = tool_json("reset", "--group", group, "--topic", topic, *ours)
    assert {(row["topic"], row["partition"]): row["new_offset"] for row in planned} == wanted
    assert [(row["current_offset"], row["written"]) for row in planned] == [(5, False), (0, False)]
    assert committed(kafka, group) == {(topic, 0): 5, (topic, 1): 0}
    tool_json("reset", "--group", group, "--topic", topic, *ours, "--execute")
    assert kafka.committed(group) == {tp: (offset, "") for tp, offset in wanted.items()}


def test_a_dry_run_shows_what_would_be_written_and_why_it_is_not_what_was_asked_for(
    kafka, group, log_from_2_to_10, tool
):
    commit_for(kafka, group, {(log_from_2_to_10, 0): 5})
    code, lines, _ = tool("reset", "--group", group, "--to-offset", 1)
    assert code == 0
    assert lines[0].split() == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "NOTE"]
    assert lines[1].split(maxsplit=4) == [log_from_2_to_10, "0", "5", "2", "1 is before the start of the log"]
    assert lines[-1] == "nothing was written: --execute does that"
    _, lines, _ = tool("reset", "--group", group, "--to-offset", 11, "--all-topics", "--execute")
    assert lines[1].endswith("5               10          11 is behind the end of the log")
    assert lines[-1] == f"group {group} is set to them"


def test_only_the_partitions_that_were_named_are_set(kafka, group, topic, tool_json):
    other = kafka.create_topic(name("other"), partitions=2)
    commit_for(kafka, group, {(topic, 0): 0})
    produce(kafka, topic, numbered(6, 3))
    produce(kafka, other, numbered(4, 2))
    named = ("--topic", f"{topic}:0,2", "--topic", other, "--to-latest")
    rows = tool_json("reset", "--group", group, *named, "--execute")
    assert [(row["topic"], row["partition"], row["current_offset"], row["new_offset"]) for row in rows] == sorted(
        [(topic, 0, 0, 2), (topic, 2, None, 2), (other, 0, None, 2), (other, 1, None, 2)]
    )
    assert committed(kafka, group) == {(topic, 0): 2, (topic, 2): 2, (other, 0): 2, (other, 1): 2}


def test_a_group_with_members_is_refused_and_they_are_named(kafka, group, topic, consumer_of, tool):
    consumer = consumer_of(kafka, topic, group, client_id="somebody")
    consumer.commit(topic, {0: 0})
    produce(kafka, topic, numbered(3, 3))
    (member,) = kafka.group_state(group)[1]
    for more in ([], ["--execute"]):
        code, lines, error = tool("reset", "--group", group, "--to-latest", "--all-topics", *more)
        assert (code, lines) == (1, [])
        assert f"group {group} is Stable with {member['member_id']} (somebody /127.0.0.1)" in error
    assert committed(kafka, group) == {(topic, 0): 0}


def test_who_joins_after_the_first_look_is_seen_before_anything_is_written(kafka, group, topic, consumer_of, admin):
    commit_for(kafka, group, {(topic, 0): 0})
    produce(kafka, topic, numbered(3, 3))
    changes = reset.plan(admin, group, Target(To.LATEST), None)
    consumer_of(kafka, topic, group, client_id="somebody")
    with pytest.raises(ToolError, match="Stable with somebody-"):
        reset.execute(admin, group, changes)
    with pytest.raises(CommitError, match=f"{topic}-0: UnknownMemberIdError"):  # and Kafka would not have it either
        admin.commit(group, {TopicPartition(topic, 0): 1})
    assert committed(kafka, group) == {(topic, 0): 0}


@pytest.mark.parametrize(
    ("scope", "problem"),
    [
        ("{topic}:0,7", "there is no {topic}-7"),
        ("nowhere", "there is no topic nowhere"),
    ],
)
def test_a_partition_that_does_not_exist_is_an_error_before_anything_is_written(
    kafka, group, topic, tool, scope, problem
):
    commit_for(kafka, group, {(topic, 0): 0})
    produce(kafka, topic, numbered(3, 3))
    scopes = ("--topic", topic, "--topic", scope.format(topic=topic))
    code, lines, error = tool("reset", "--group", group, "--to-latest", *scopes, "--execute")
    assert (code, lines) == (1, [])
    assert problem.format(topic=topic) in error
    assert committed(kafka, group) == {(topic, 0): 0}
    assert "nowhere" not in kafka.admin.list_topics()


def test_what_cannot_be_shifted_is_an_error(kafka, group, topic, tool, admin):
    code, _, error = tool("reset", "--group", group, "--to-latest")
    assert code == 1
    assert f"group {group} has committed nothing: name topics with --topic" in error
    commit_for(kafka, group, {(topic, 0): 0})
    with pytest.raises(ToolError, match=f"{topic}-1 has no committed offset to shift"):
        reset.plan(admin, group, Target(To.SHIFT, 1), [Scope(topic, (0, 1))])


def test_a_group_that_does_not_exist_yet_can_be_given_offsets(kafka, group, topic, tool_json):
    produce(kafka, topic, numbered(3, 3))
    rows = tool_json("reset", "--group", group, "--to-latest", "--topic", f"{topic}:1", "--execute")
    assert [(row["partition"], row["current_offset"], row["new_offset"]) for row in rows] == [(1, None, 1)]
    assert committed(kafka, group) == {(topic, 1): 1}


def test_a_query_goes_on_from_where_it_was_reset_to(kafka, group, driver_of, tool_json):
    topic = topic_with(kafka, numbered(30, 3))
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), None)
    driver.latest_offset(end, None)
    driver.stop()
    tool_json("reset", "--group", group, "--shift-by", "-4", "--all-topics", "--execute")
    again = driver_of(kafka, topic, group)
    following = again.latest_offset(end, None)
    assert {r.start for task in again.plan(end, following) for r in task} == {6}


# arguments


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--to-offset", "-1"], "'-1' must be a whole number from 0 on"),
        (["--shift-by", "1.5"], "'1.5' must be a whole number"),
        (["--to-datetime", "yesterday"], "'yesterday' must be like 2026-01-31T09:30:00.000"),
        (["--to-datetime", "1969-01-01T00:00"], "is before 1970"),
        (["--to-latest", "--topic", "orders:"], "'orders:' must be a topic, or topic:0,1"),
        (["--to-latest", "--to-earliest"], "not allowed with argument"),
        (["--to-latest", "--topic", "a", "--all-topics"], "not allowed with argument"),
        ([], "one of the arguments --to-earliest"),
    ],
)
def test_wrong_arguments_end_with_2_and_say_what_is_wrong(capsys, arguments, problem):
    with pytest.raises(SystemExit) as ended:
        main(["reset", "--bootstrap-server", "localhost:1", "--group", "g", *arguments])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_executing_without_a_scope_is_a_wrong_argument(group, tool):
    code, _, error = tool("reset", "--group", group, "--to-latest", "--execute")
    assert code == 2
    assert "--execute needs --topic" in error


@pytest.mark.parametrize(
    ("servers", "config", "problem"),
    [
        ("localhost", "", "--bootstrap-server (localhost) must be host:port"),
        ("localhost:1", "fetch.max.bytes=1", ":1: fetch.max.bytes is not supported, only client.id"),
        (
            "localhost:1",
            "kafka.sasl.mechanism=PLAIN",
            ":1: kafka.sasl.mechanism is not supported in this file: write sasl.",
        ),
        ("localhost:1", "# a comment\n\nclient.id", ":3: this line is not name=value"),
        ("localhost:1", "request.timeout.ms = soon", "config: request.timeout.ms (soon) must be a whole number"),
        ("localhost:1", "request.timeout.ms=1000", "no broker answered at localhost:1 within 1000 ms: check"),
        ("localhost:1", None, "cannot be read"),
    ],
)
def test_a_connection_that_cannot_be_made_is_one_line_that_says_what_to_change(
    tmp_path, tool, servers, config, problem
):
    path = tmp_path / "config"
    if config is not None:
        path.write_text(config)
    code, lines, error = tool("describe", "--group", "g", "--command-config", path, servers=servers)
    assert (code, lines, error.count("\n")) == (1, [], 1)
    assert problem in error


def test_settings_of_the_connection_are_taken_from_a_file(kafka, group, topic, tmp_path, tool):
    commit_for(kafka, group, {(topic, 0): 0})
    path = tmp_path / "config"
    path.write_text("! of Kafka's own tools\nclient.id: somebody\nrequest.timeout.ms=20000\n")
    assert tool("offsets", "--group", group, "--command-config", path)[0] == 0


def test_from_a_shell_and_into_a_pipe_that_closes(kafka, group, topic):
    for offset in range(3):
        commit_for(kafka, group, {(topic, 0): offset})
    command = (
        f"{sys.executable} -m spark_kafka_group offsets --bootstrap-server {kafka.bootstrap_servers} --group {group}"
    )
    done = subprocess.run(f"{command} | head -1", shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(OFFSETS_TOPIC)
    assert done.stderr == ""
    helped = [sys.executable, "-m", "spark_kafka_group", "--help"]
    assert subprocess.run(helped, capture_output=True, text=True, timeout=60, check=True).stdout.startswith("usage:")


def test_what_a_neighbour_without_an_event_log_reads_is_no_violation(
    kafka, group, topic, query_of, neighbour_of, tmp_path, capsys
):
    log = tmp_path / "events.jsonl"
    query = query_of(kafka, topic, group, eventLog=log)

    def read(count):
        produce(kafka, topic, numbered(30, 3))
        wait_until(lambda: committed(kafka, group) == {(topic, p): count for p in range(3)}, within=60)

    read(10)
    neighbour = neighbour_of(kafka, topic, group)
    settled(kafka, group, 2)
    read(20)
    neighbour.close()
    settled(kafka, group, 1)
    read(30)
    query.end()
    query.driver.stop()
    assert len(neighbour.records) in (10, 20)
    assert main(["verify", "--json", str(log)]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["violations"], summary["records_unseen"]) == (0, len(neighbour.records))
    assert main(["verify", "--all-members", str(log)]) == 3


@pytest.mark.soak
def test_a_group_with_a_member_whose_assignment_cannot_be_read_is_shown_without_its_partitions(kafka, group, capsys):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    odd = KafkaConsumer(topic, bootstrap_servers=kafka.bootstrap_servers, group_id=group)
    odd._coordinator._perform_assignment = lambda leader, protocol, members: {leader: b"\xff"}
    try:
        with contextlib.suppress(Exception):  # kafka-python cannot read it either
            odd.poll(20_000)
        with admin_of(kafka) as admin:
            report = describe.look(admin, group, lambda: 0.0)
            (member,) = report.members
            assert member.assigned is None
            assert report.problem == (
                f"partitions of members that do not assign as Kafka's consumers do are not known: {member.member_id}"
            )
            assert report.group in [other.group for other in describe.of_all_groups(admin, lambda: 0.0).reports]
        shown = explore.lag({"kafka.bootstrap.servers": kafka.bootstrap_servers}, group)
        assert member.member_id in str(shown).replace("\n", "")
        assert html.escape(report.problem) in shown._repr_html_()
        assert max(map(len, str(shown).splitlines())) <= 80
        look = ["top", "--bootstrap-server", kafka.bootstrap_servers, "--group", group, "--once", "--interval", "0.01"]
        assert main(look) == 0
        assert capsys.readouterr().err == f"{report.problem}\n"
    finally:
        odd.close(autocommit=False)


@pytest.mark.soak
def test_groups_that_have_no_coordinator_are_said_to_be_missing(capsys):
    groups = [name("group") for _ in range(6)]
    with KafkaCluster(3, {"offsets.topic.replication.factor": "1"}) as kafka:
        topic = kafka.create_topic(name("topic"))
        for group in groups:
            commit_for(kafka, group, {(topic, 0): 0})
        describing = ["describe", "--bootstrap-server", kafka.bootstrap_servers]
        assert main(describing) == 0
        assert capsys.readouterr().err == ""
        with admin_of(kafka) as admin:
            nodes = {group: admin.coordinator(group).id for group in groups}
            kafka.node(nodes[groups[0]] - 1).kill()
            wait_until(lambda: None in admin.leaders([OFFSETS_TOPIC]).values(), within=60)
        assert main(describing) == 0
        shown = capsys.readouterr()
        assert main(["top", *describing[1:], "--once", "--interval", "0.01"]) == 0
        of_top = capsys.readouterr()
        of_explore = explore.groups({"kafka.bootstrap.servers": kafka.bootstrap_servers})
        assert main([*describing, "--group", groups[0]]) == 1
        assert f"group {groups[0]} has no coordinator: start the brokers that hold it" in capsys.readouterr().err
    there = {group for group, node in nodes.items() if node != nodes[groups[0]]}
    assert {group for group in groups if f"group {group}: " in shown.out} == there
    assert "partitions of __consumer_offsets have no leader, so groups of these have no coordinator" in shown.err
    assert "and are not shown: start the brokers that are away" in shown.err
    assert of_top.err == shown.err
    assert {group for group in groups if group in of_top.out} == {row.group for row in of_explore} == there
    assert f"{of_explore.problem}\n" == shown.err
