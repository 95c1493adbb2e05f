"""The jobs, each through spark-submit once."""

import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pyarrow import parquet
from support import Record, committed, end_offset, members, name, numbered, options, produce, topic_with

from spark_kafka_group import group_batch
from spark_kafka_group.errors import OptionError
from spark_kafka_group.values.error_headers import Failure, Origin, Reader, handed_on

ROOT = Path(__file__).parents[2]
SOCKETS = "spark.python.unix.domain.socket.enabled"
SILENTLY_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What the Makefile has in JAVA_TOOL_OPTIONS, of which every JVM tells."""


def submit(job, *arguments, **environment):
    """Run a job to its end with spark-submit, from any directory; returns its output."""
    command = [
        Path(sys.executable).with_name("spark-submit"), "--master", "local[2]",
        "--properties-file", ROOT / "conf/spark-defaults.conf", "--conf", "spark.ui.enabled=false",
        ROOT / "jobs" / job, *arguments,
    ]  # fmt: skip
    return ended(command, **environment)


def installed(job, *arguments, **environment):
    """Run a job to its end as one that is installed with the package; returns its output."""
    return ended([sys.executable, "-m", "spark_kafka_group", "jobs", job, *arguments], **environment)


def ended(command, code=0, **environment):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False, timeout=240,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable} | environment,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert "BrokenPipeError" not in done.stderr, done.stderr
    return done


@pytest.fixture
def run(spark, monkeypatch, capsys):
    """Runs a job in this process, as spark-submit has been seen to do; returns what it prints."""
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))

    def run(job, *arguments):
        module = importlib.import_module(job)
        monkeypatch.setattr(sys, "argv", [job, *map(str, arguments)])
        module.run(spark, module.arguments())
        return capsys.readouterr().out

    return run


def values(spark, directory):
    return sorted(int(row.value[1:]) for row in spark.read.parquet(str(directory)).select("value").collect())


def test_stream_to_parquet_available_now(spark, kafka, group, tmp_path, run):
    topic = topic_with(kafka, numbered(300, 3))
    arguments = [
        "--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic,
        "--output", tmp_path / "out", "--checkpoint", tmp_path / "checkpoint", "--available-now",
        "--option", "maxOffsetsPerTrigger=150",
    ]  # fmt: skip
    message = submit("stream_to_parquet.py", *arguments, SPARK_KAFKA_GROUP_LOGGING=str(ROOT / "conf/logging.ini"))
    lines = re.findall(r"^batch +(\d+)  generation +(\d+)  records +(\d+) .* lag +(\d+)$", message.stdout, re.MULTILINE)
    assert [(batch, records, lag) for batch, _, records, lag in lines] == [
        ("0", "150", "150"),
        ("1", "150", "0"),
    ]
    # One line a generation, one a planned batch, one a commit.
    for words in ("leader of 1 member", "planned batch 1, 150 records", f"committed {topic}-0=50"):
        assert words in message.stderr
    assert values(spark, tmp_path / "out") == list(range(300))
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}
    produce(kafka, topic, numbered(30, 3, first=300))
    run("stream_to_parquet", *arguments)
    assert values(spark, tmp_path / "out") == list(range(330))


@pytest.mark.soak
def test_stream_to_parquet_refuses_a_new_checkpoint_beside_the_output_of_another(spark, kafka, group, tmp_path, run):
    topic = topic_with(kafka, numbered(30, 3))
    folder = tmp_path / "out"
    arguments = [
        "--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic,
        "--output", folder, "--available-now", "--checkpoint",
    ]  # fmt: skip
    run("stream_to_parquet", *arguments, tmp_path / "checkpoint")
    produce(kafka, topic, numbered(30, 3, first=30))
    with pytest.raises(
        OptionError, match=r"has batches up to 0 of another checkpoint .* checkpoint .*/new has no batch: "
    ):
        run("stream_to_parquet", *arguments, tmp_path / "new")
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}
    run("stream_to_parquet", *arguments, tmp_path / "checkpoint")
    assert committed(kafka, group) == {(topic, p): 20 for p in range(3)}
    rows = [row for file in folder.glob("*.parquet") for row in parquet.read_table(file)["value"].to_pylist()]
    assert sorted(int(row[1:]) for row in rows) == list(range(60))


@pytest.mark.parametrize(
    "guarantee",
    [pytest.param([], marks=pytest.mark.soak), ["--exactly-once"]],
    ids=["at least once", "exactly once"],
)
def test_kafka_to_kafka_available_now(spark, kafka, group, tmp_path, run, guarantee):
    topic, output = topic_with(kafka, numbered(300, 3)), kafka.create_topic(name("out"), partitions=2)
    arguments = [
        "--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic,
        "--output-topic", output, "--checkpoint", tmp_path / "checkpoint", "--available-now",
        "--sink-option", "kafka.compression.type=lz4", *guarantee,
    ]  # fmt: skip
    run("kafka_to_kafka", *arguments)
    committed_alone = {"kafka.isolation.level": "read_committed"}
    written = spark.read.format("groupkafka").options(**options(kafka, output), **committed_alone).load()
    assert sorted(int(row.value[1:]) for row in written.select("value").collect()) == list(range(300))
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}
    has_markers = sum(end_offset(kafka, output, partition) for partition in range(2)) > 300
    assert has_markers == bool(guarantee)


def test_a_wrong_option_of_a_sink_ends_a_job_before_spark_starts(tmp_path):
    done = subprocess.run(
        [
            sys.executable, ROOT / "jobs/kafka_to_kafka.py", "--bootstrap-servers", "127.0.0.1:1", "--group", "g",
            "--topics", "t", "--output-topic", "o", "--checkpoint", "/nowhere", "--sink-option", "kafka.acks=2",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the sink: kafka.acks (2) must be one of")


@pytest.mark.soak
def test_drain_reads_from_the_committed_offsets_to_now_and_commits(spark, kafka, group, tmp_path, run):
    topic = topic_with(kafka, numbered(30, 3))
    arguments = ["--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic]
    result = installed("drain", *arguments, "--output", tmp_path / "out")
    assert "30 records in" in result.stdout
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}
    assert members(kafka, group) == []
    produce(kafka, topic, numbered(30, 3, first=30))
    run("drain", *arguments, "--output", tmp_path / "out")
    assert values(spark, tmp_path / "out") == list(range(60))
    with_a_bar = run("drain", *arguments, "--output", tmp_path / "out", "--progress")
    assert "nothing to read" in with_a_bar
    assert f"{topic}-0: " not in with_a_bar  # it would be on the line of the bar


def test_a_drain_that_died_before_its_commit_is_repeated_without_a_row_twice(spark, kafka, group, tmp_path, run):
    import drain

    def drain_and_crash():
        """drain.py's steps up to the crash."""
        with group_batch(spark, options(kafka, topic, group, startingOffsets="group")) as batch:
            df = batch.df.withColumns({"key": batch.df.key.cast("string"), "value": batch.df.value.cast("string")})
            df.write.parquet(f"{tmp_path}/out/{drain.directory(group, batch)}")
            raise KeyboardInterrupt

    topic = topic_with(kafka, numbered(30, 3))
    with pytest.raises(KeyboardInterrupt):
        drain_and_crash()
    assert committed(kafka, group) == {}
    produce(kafka, topic, numbered(30, 3, first=30))
    arguments = ["--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic]
    run("drain", *arguments, "--output", tmp_path / "out")
    assert values(spark, tmp_path / "out") == list(range(60))
    assert committed(kafka, group) == {(topic, p): 20 for p in range(3)}


def test_the_jobs_say_how_to_call_them():
    for job in ("stream_to_parquet.py", "kafka_to_kafka.py", "drain.py", "process.py", "replay_dead_letters.py"):
        done = subprocess.run(
            [sys.executable, ROOT / "jobs" / job, "--help"], capture_output=True, text=True, check=True
        )
        assert "--bootstrap-servers" in done.stdout


@pytest.mark.soak
def test_an_error_of_a_query_is_the_job_s_last_line(tmp_path):
    result = submit(
        "stream_to_parquet.py", "--bootstrap-servers", "127.0.0.1:1", "--group", name("g"), "--topics", "t",
        "--output", tmp_path / "out", "--checkpoint", tmp_path / "checkpoint", code=1,
        JAVA_TOOL_OPTIONS="", SPARK_SUBMIT_OPTS=f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {SILENTLY_QUICK}",
    )  # fmt: skip
    sentence = (
        "connecting to 127.0.0.1:1: 127.0.0.1:1: no broker listens there (ECONNREFUSED). Correct --bootstrap-servers,"
    )
    assert result.stdout.startswith(sentence)  # spark-submit prints there whatever the program prints
    assert result.stdout.count("\n") == 1
    of_spark = result.stderr.splitlines()
    assert not any(line.startswith(("Traceback", "\tat ")) for line in of_spark)
    assert len(of_spark) < 20


def test_a_wrong_option_ends_a_job_before_spark_starts(tmp_path):
    done = subprocess.run(
        [
            sys.executable, ROOT / "jobs/stream_to_parquet.py", "--bootstrap-servers", "127.0.0.1:1", "--group", "g",
            "--topics", "t", "--output", "/nowhere", "--checkpoint", "/nowhere", "--option", "maxOffsetPerTrigger=1",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "option maxOffsetPerTrigger is not known; the nearest is maxOffsetsPerTrigger\n"


ASKS = f"""
from spark_kafka_group import submit

def asks():
    spark = submit.session("asks")
    print("settings:", spark.sparkContext.getConf().get("{SOCKETS}"), spark.sparkContext.master)
    jvm = spark.sparkContext._jvm
    spark.stop()
    return jvm

asks().java.lang.System.clearProperty("{SOCKETS}")  # as where spark-submit did not set it
asks()
"""


@pytest.mark.soak
def test_jobs_use_unix_domain_sockets_unless_they_are_set_also_where_temporary_files_have_long_paths(tmp_path):
    temporary = tmp_path / ("t" * 61)  # session() runs a task, whose worker could not make its socket there
    temporary.mkdir()
    settings = tmp_path / "defaults.conf"
    java = f"spark.driver.extraJavaOptions -Djava.io.tmpdir={temporary}"
    settings.write_text(f"spark.ui.enabled false\n{SOCKETS} false\n{java}\n")
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    done = subprocess.run(
        [Path(sys.executable).with_name("spark-submit"), "--master", "local[1]", "--properties-file", settings, script],
        capture_output=True, text=True, check=False, timeout=120, env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert re.findall("^settings: (.*)$", done.stdout, re.MULTILINE) == ["false local[1]", "true local[1]"], done


SHOP = """
from spark_kafka_group import ProducerRecord

class Declined(Exception):
    pass

def charge(record):
    if record.value in (b"v7", b"v11"):
        raise Declined("no money")
    if record.value == b"v13":
        raise KeyError("no such customer")
    return ProducerRecord(record.value)
"""


@pytest.mark.soak
def test_process_hands_records_to_a_function_and_dead_letters_can_be_sent_back(spark, kafka, group, tmp_path, run):
    topic = topic_with(kafka, numbered(30, 3))
    kafka.create_topic(f"{topic}-dlt", partitions=3)
    out = kafka.create_topic(name("out"))
    (tmp_path / "shop.py").write_text(SHOP)
    processed = submit(
        "process.py", "--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic,
        "--handler", "shop:charge", "--checkpoint", tmp_path / "checkpoint", "--max-local-retries", "0",
        "--dead-letter-topic", "{topic}-dlt", "--fatal", "shop:Declined", "--available-now",
        "--output-topic", out, "--exactly-once", "--sink-option", "kafka.linger.ms=0",
        PYTHONPATH=str(tmp_path),
    )  # fmt: skip
    [counts] = re.findall(r"records +(\d+)  done +(\d+)  retried +(\d+)  dead +(\d+)  in flight", processed.stdout)
    assert counts == ("30", "27", "0", "3")
    written = spark.read.format("groupkafka").options(
        **options(kafka, out, **{"kafka.isolation.level": "read_committed"})
    )
    assert sorted(row.value for row in written.load().collect()) == sorted(
        b"v%d" % n for n in range(30) if n not in (7, 11, 13)
    )
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}

    arguments = [
        "--bootstrap-servers", kafka.bootstrap_servers, "--topics", f"{topic}-dlt", "--exception", "Declined",
    ]  # fmt: skip
    dry = run("replay_dead_letters", *arguments)
    assert re.search(rf"2  {topic} +shop.Declined +would be sent", dry)
    assert re.search(rf"1  {topic} +KeyError +stays: filtered", dry)
    assert "2 dead letters would be sent back" in dry
    before = spark.read.format("groupkafka").options(**options(kafka, topic, includeHeaders="true"))
    assert before.load().count() == 30
    assert "2 dead letters sent back" in submit("replay_dead_letters.py", *arguments, "--send").stdout
    assert "0 dead letters sent back" in run("replay_dead_letters", *arguments, "--send")  # safe to run twice
    sent = before.load().where("offset >= 10").collect()
    assert sorted((bytes(row.key), bytes(row.value), row.partition) for row in sent) == [
        (b"k11", b"v11", 2),
        (b"k7", b"v7", 1),
    ]
    assert [row.headers for row in sent] == [None, None]  # as they had none


def letter(topic, number, timestamp_ms=1_767_225_600_000):
    """A dead letter that came from `topic`, as a handler's failure makes it; older than itself."""
    failure, reader = Failure.from_error(ValueError("no")), Reader("billing", "shop:charge", 0)
    headers = handed_on((), "connect", Origin(topic, 0, number, 1_000, 0), failure, reader, 1, None)
    return Record(0, b"k", b"v%d" % number, tuple(headers), timestamp_ms)


def with_dead_letters(kafka, prefix):
    """A new topic, and one for its dead letters."""
    topic = kafka.create_topic(name(prefix))
    kafka.create_topic(f"{topic}-dlt")
    return topic


def values_in(spark, kafka, topic):
    return [bytes(r.value) for r in spark.read.format("groupkafka").options(**options(kafka, topic)).load().collect()]


@pytest.fixture
def replay(kafka, run):
    """Runs jobs/replay_dead_letters.py; returns the lines that it prints."""

    def replay(topic, *arguments):
        servers = ["--bootstrap-servers", kafka.bootstrap_servers]
        return run("replay_dead_letters", *servers, "--topics", topic, *arguments).splitlines()

    return replay


@pytest.mark.soak
def test_letters_of_a_topic_and_a_time_are_sent_back_and_no_others(spark, kafka, replay):
    orders, bills = with_dead_letters(kafka, "orders"), with_dead_letters(kafka, "bills")
    dead = f"{orders}-dlt,{bills}-dlt"
    minutes = {1: "2026-01-01T00:01:00Z", 2: "2026-01-01T01:02:00+01:00", 3: "2026-01-01T00:03:00Z"}
    at_ms = {minute: 1_767_225_600_000 + 60_000 * minute for minute in minutes}
    for topic in (orders, bills):
        produce(kafka, f"{topic}-dlt", [letter(topic, minute, at_ms[minute]) for minute in minutes])

    def sent(topic):
        return values_in(spark, kafka, topic)

    def would(*arguments):
        return int(replay(dead, *arguments)[-1].split()[0])

    assert would() == 6
    assert would("--origin", orders) == 3
    assert would("--since", minutes[2]) == 4  # those of that very moment, too
    assert would("--until", minutes[2]) == 2  # and not
    assert would("--since", minutes[2], "--until", minutes[3], "--origin", "none") == 0
    filters = ["--origin", orders, "--since", minutes[2], "--until", minutes[3]]
    assert replay(dead, *filters, "--send")[-1] == "1 dead letters sent back"
    assert (sent(orders), sent(bills)) == ([b"v2"], [])
    assert replay(dead, *filters, "--send")[-1] == "0 dead letters sent back"
    assert replay(dead, "--origin", bills, "--until", minutes[2], "--send")[-1] == "1 dead letters sent back"
    assert (sent(orders), sent(bills)) == ([b"v2"], [b"v1"])


@pytest.mark.soak
def test_letters_that_name_a_topic_of_others_stay_unless_it_is_asked_for_and_hold_up_no_other_letter(
    spark, kafka, replay
):
    orders, payments = with_dead_letters(kafka, "orders"), kafka.create_topic(name("payments"))
    internal, dead = "__consumer_offsets", f"{orders}-dlt"
    digits = [("__connect.errors.topic", orders.encode()), ("__connect.errors.partition", b"0")]
    digits += [("__connect.errors.offset", b"9" * 5_000)]
    letters = [letter(payments, 1), letter(internal, 2), letter(orders, 3), Record(0, b"k", b"v4", tuple(digits))]
    gone = f"{orders}-retry-77"
    produce(kafka, dead, [letter(gone, 5), *letters])

    *lines, refused, last = replay(dead, "--send")
    assert {line.split()[1]: re.split("  +", line)[-1] for line in lines} == {
        payments: "stays: dead letters of that topic go elsewhere", internal: "stays: internal topic", orders: "sent",
        "?": "stays: not a dead letter", gone: "stays: retry topic that does not exist",
    }  # fmt: skip
    assert refused.startswith("2 refused: a producer may have chosen their topic. --origin sends them there")
    assert last == "1 dead letters sent back"
    assert (values_in(spark, kafka, orders), values_in(spark, kafka, payments)) == ([b"v3"], [])
    assert replay(dead, "--origin", payments, "--send")[-1] == "1 dead letters sent back"
    assert values_in(spark, kafka, payments) == [b"v1"]
