"""The table of imports between the rooms of the package. Only `wire` imports kafka-python's internals."""

import ast
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from spark_kafka_group import GroupKafkaDataSource

PACKAGE = Path(__file__).parents[2] / "spark_kafka_group"

VALUES = {
    "assignors", "commit_metadata", "error_headers", "errors", "exactly_once", "file_sinks", "files", "json_text",
    "offsets", "option", "options", "outage_message", "planned_transactions", "printable", "retry_topics", "schema",
    "security", "shared_files", "source_offsets", "spark_version", "task", "text_table", "timing",
    "transactional_ids", "user_classes", "workers_python",
}  # fmt: skip
ALLOWED = {
    "argument_as_written": set(),
    "printable": set(),
    "json_text": set(),
    "spark_version": {"errors"},
    "workers_python": {"errors"},
    "errors": {"printable"},
    "retry_topics": set(),
    "error_headers": {"retry_topics"},
    "offsets": {"errors", "json_text", "printable"},
    "exactly_once": {"json_text", "offsets"},
    "planned_transactions": {"errors", "exactly_once"},
    "transactional_ids": set(),
    "files": set(),
    "shared_files": set(),
    "file_sinks": {"errors", "files", "options", "shared_files"},
    "source_offsets": {"exactly_once", "files", "json_text", "offsets", "shared_files"},
    "user_classes": {"errors", "json_text"},
    "assignors": {"errors", "json_text", "offsets", "user_classes"},
    "option": {"json_text", "offsets"},
    "security": {"errors", "files", "json_text", "option", "user_classes"},
    "options": {
        "assignors",
        "errors",
        "json_text",
        "offsets",
        "option",
        "retry_topics",
        "schema",
        "security",
        "transactional_ids",
        "user_classes",
    },
    "outage_message": set(),
    "schema": set(),
    "commit_metadata": {"json_text"},
    "kafka_bytes": {"offsets"},
    "consumer_group_records": {"kafka_bytes"},
    "consumer_protocol": {"kafka_bytes", "offsets"},
    "offsets_topic": {"consumer_group_records", "kafka_bytes", "offsets"},
    "task": {"offsets"},
    "text_table": {"printable"},
    "timing": set(),
    "wire": VALUES | {"consumer_protocol"},
    "driver": VALUES | {"wire"},
    "executor": VALUES | {"wire"},
    "hung_up": set(),
    "spark_processes": {"errors", "executor", "hung_up"},
    "sink": VALUES | {"driver", "executor", "spark_processes", "wire"},
    "source": VALUES | {"driver", "executor", "hung_up", "sink", "spark_processes"},
    "live": {"offsets", "printable", "text_table"},
    "batch": VALUES | {"wire", "driver", "live"},
    "metrics": {"errors", "json_text", "offsets"},
    "listener": VALUES | {"metrics", "wire"},
    "processing": VALUES | {"executor", "hung_up", "metrics", "wire"},
    "sampling": VALUES | {"executor", "wire"},
    "tools": VALUES
    | {
        "argument_as_written",
        "driver",  # of it, transactions alone
        "wire",
        "consumer_group_records",
        "consumer_protocol",
        "offsets_topic",
        "live",
        "sampling",
    },
    "top": VALUES | {"tools", "wire"},
    "explore": VALUES | {"executor", "wire", "sampling", "tools"},
    "submit": {"file_sinks", "tools"},
    "replay": {"processing"},
    "pictures": VALUES | {"metrics", "tools"},
    "__main__": {"errors", "pictures", "printable", "tools", "top"},
    "__init__": VALUES | {"source", "batch", "listener", "processing"},
    "testing": {"argument_as_written", "offsets_topic", "spark_version"},
}
"""Room to the rooms it may import. driver and executor never meet."""


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_rooms_below_its_own(path):
    room = room_of(path)
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[0] == "spark_kafka_group" and len(parts) > 1:
            assert parts[1] == room or parts[1] in ALLOWED[room], f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_wire_knows_kafka_pythons_inside(path):
    kafka = [name for name in imported_modules(path) if name.split(".")[0] == "kafka"]
    if room_of(path) == "testing":
        assert all(name.count(".") <= 2 for name in kafka), "testing uses the public client only"
    elif room_of(path) != "wire":
        assert kafka == []


def test_a_log_is_looked_up_without_the_modules_of_groups():
    """Executors look logs up, too. `admin` looks at groups, and the room's own door imports when it is asked."""
    importing = {
        str(path.relative_to(PACKAGE / "wire"))
        for path in (PACKAGE / "wire").rglob("*.py")
        if any(name.startswith("spark_kafka_group.wire.group.") for name in imported_modules(path))
    }
    assert {file for file in importing if not file.startswith("group/")} == {
        "__init__.py",
        "admin.py",
        "transactions/offsets_in_transaction.py",
    }


def test_no_room_may_import_itself_by_way_of_others():
    for room in ALLOWED:
        below, seen = list(ALLOWED[room]), set()
        while below:
            seen.add(other := below.pop())
            below += ALLOWED[other] - seen
        assert room not in seen


def test_no_module_imports_itself_by_way_of_others():
    """For types neither: who reads one of a circle has to read all of it."""
    names = {".".join(("spark_kafka_group", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in FILES}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    imports = {
        name: {imported if imported in names else imported.rpartition(".")[0] for imported in imported_modules(path)}
        & names.keys() - {name}
        for name, path in names.items()
    }
    for name, below in imports.items():
        reached, ahead = set(), set(below)
        while ahead:
            reached.add(other := ahead.pop())
            ahead |= imports[other] - reached
        assert name not in reached, f"{name} imports itself by way of {sorted(reached)}"


def test_no_two_modules_have_one_name():
    """`driver.batch` beside the room `batch`, say, has a reader look into the wrong one."""
    public = {"submit", "replay"}  # doors to tools.submit and processing.replay
    names = Counter(path.stem for path in FILES if path.stem not in {"__init__", "__main__", *public})
    assert [name for name, times in names.items() if times > 1] == []


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in FILES} == set(ALLOWED)


READING = """
import sys
import pyarrow, pyspark.worker, pyspark.sql.worker.plan_data_source_read  # what a worker has anyway
before = set(sys.modules)
from spark_kafka_group import source
print(*set(sys.modules) - before)
import pickle
reader = pickle.loads(bytes.fromhex(sys.argv[1]))
assert list(reader.read(source.ReadTask(()))) == []
from spark_kafka_group.executor import decode
builder = decode.load("c").RecordBatchBuilder(
    columns=("value",), check_crcs=False, unpacked_limit=1, target_bytes=1
)
message = bytes(8) + b"\\0\\0\\0\\x0f" + bytes(6) + b"\\xff\\xff\\xff\\xff" + b"\\0\\0\\0\\1v"
builder.append("t", 0, message, 0, 0, 1)
assert builder.finish().column("value").to_pylist() == [b"v"]
print(*set(sys.modules) - before)
"""
OF_A_WORKER = {
    "errors", "executor", "hung_up", "json_text", "offsets", "option", "options", "printable", "retry_topics",
    "schema", "security", "source", "spark_processes", "spark_version", "task", "timing", "transactional_ids",
    "user_classes", "wire",
}  # fmt: skip
OF_ITS_WIRE = {
    "client", "client.address", "client.broker_versions", "client.connect", "client.connection_log",
    "client.event_loop", "client.keepalive", "client.leaderless", "client.manager", "client.reachability",
    "client.reauthentication", "client.redaction", "client.refusals", "client.request_timeouts", "client.scram",
    "client.security_configs", "client.signals", "client.sockets", "client.transports", "client.unreached",
    "broker_connection", "client.wrong_addresses", "coordinator_responses", "deadline", "fetch", "fetch.brokers",
    "fetch.fetch_connection", "fetch.nearest_replicas", "fetch.request", "fetch.response", "lacking", "leaders",
    "reactions", "task_outage",
}  # fmt: skip


STARTING = """
import sys
import pyspark.daemon, pyspark.worker
import pyspark.sql.streaming.python_streaming_source_runner, pyspark.sql.worker.python_streaming_sink_runner
import pyspark.sql.worker.create_data_source, pyspark.sql.worker.lookup_data_sources
print(*sys.modules)
"""


def test_a_process_of_spark_s_imports_nothing_of_the_package_before_it_connects():
    """Spark ends a start after ten seconds until then."""
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True, check=True)
    assert "pyspark.worker_util" in done.stdout
    assert "kafka" not in done.stdout


def test_a_worker_imports_nothing_but_what_reading_needs():
    source = GroupKafkaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    pickled = pickle.dumps(source.streamReader(None)).hex()
    output = subprocess.run([sys.executable, "-c", READING, pickled], capture_output=True, text=True, check=True).stdout
    unpickled, read = (set(line.split()) for line in output.splitlines())
    assert "spark_kafka_group.source" in unpickled
    assert not [name for name in unpickled if name.split(".")[0] == "kafka"]
    own = [name.split(".") for name in read if name.startswith("spark_kafka_group.")]
    assert {parts[1] for parts in own} == OF_A_WORKER
    assert {".".join(parts[2:]) for parts in own if parts[1] == "wire" and len(parts) > 2} == OF_ITS_WIRE
    assert "spark_kafka_group.executor.decode._decode_c" in read
    unneeded = {"spark_kafka_group.executor.decode._decode_py", "urllib.request", "http.client", "pandas", "difflib"}
    unneeded.add("spark_kafka_group.executor.corrupt")
    assert not unneeded & read
    of_security = {parts[2] for parts in own if parts[1] == "security" and len(parts) > 2}
    assert of_security == {"option_values", "secret", "settings"}
    assert not {"ssl", "logging.config"} & unpickled


WRITING = """
import sys
import pyarrow, pyspark.worker, pyspark.sql.worker.write_into_data_source  # what a worker has anyway
before = set(sys.modules)
import pickle
writer = pickle.loads(bytes.fromhex(sys.argv[1]))
print(*set(sys.modules) - before)
assert writer.write(iter(())).records == {}
print(*set(sys.modules) - before)
"""


def test_a_worker_imports_nothing_but_what_writing_needs():
    columns = StructType().add("value", StringType()).add("topic", StringType())
    source = GroupKafkaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1"})
    pickled = pickle.dumps(source.streamWriter(columns, False)).hex()
    output = subprocess.run([sys.executable, "-c", WRITING, pickled], capture_output=True, text=True, check=True).stdout
    unpickled, written = (set(line.split()) for line in output.splitlines())
    assert not [name for name in unpickled if name.split(".")[0] in ("kafka", "numpy.testing", "ssl")]
    own = {tuple(name.split(".")[1:]) for name in written if name.startswith("spark_kafka_group.")}
    assert {parts[0] for parts in own} == OF_A_WORKER - {"user_classes"} | {
        "sink",
        "exactly_once",
        "planned_transactions",
    }
    assert not [
        parts for parts in own if parts[:2] in {("executor", "read"), ("executor", "fetcher"), ("wire", "group")}
    ]
    assert "spark_kafka_group.executor.encode._encode_c" in written
    assert not {"spark_kafka_group.executor.encode._encode_py", "pyarrow.compute", "pandas", "difflib"} & written
