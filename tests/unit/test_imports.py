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

ALLOWED = {
    "text": set(),
    "errors": {"text"},
    "values": {"errors", "text"},
    "offsets": {"values"},
    "spark": {"errors"},
    "offsets_topic": {"values"},
    "assignors": {"errors", "values"},
    "options": {"assignors", "errors", "text", "values"},
    "wire": {"assignors", "errors", "offsets_topic", "options", "text", "values"},
    "transactions": {"errors", "options", "text", "values", "wire"},
    "driver": {"assignors", "errors", "options", "text", "transactions", "values", "wire"},
    "executor": {"errors", "options", "text", "values", "wire"},
    "sink": {"driver", "errors", "executor", "options", "spark", "transactions", "values", "wire"},
    "source": {"driver", "errors", "executor", "options", "sink", "spark", "values"},
    "live": {"text", "values"},
    "batch": {"assignors", "driver", "errors", "live", "options", "spark", "values", "wire"},
    "metrics": {"errors", "text", "values"},
    "listener": {"errors", "metrics", "options", "spark", "text", "values", "wire"},
    "processing": {"errors", "executor", "metrics", "options", "spark", "text", "values", "wire"},
    "tools": {
        "errors", "executor", "live", "offsets_topic", "options", "spark", "text", "transactions", "values", "wire",
    },
    "explore": {"errors", "executor", "options", "text", "tools", "values", "wire"},
    "pictures": {"metrics", "text", "tools", "values"},
    "submit": {"tools", "values"},
    "replay": {"processing"},
    "__main__": {"errors", "pictures", "text", "tools"},
    "__init__": {"batch", "errors", "listener", "processing", "source", "spark"},
    "testing": {"offsets_topic", "spark", "text"},
}  # fmt: skip
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


IN_DRIVER = ("stream", "session", "steps", "query", "membership", "positions", "backlog", "reporting")
"""What calls before what is called. The last four are parts, which do not know the steps that put them together."""


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) == "driver"], ids=lambda path: path.name)
def test_no_part_of_the_driver_imports_what_calls_it(path):
    own = path.relative_to(PACKAGE / "driver").parts[0].removesuffix(".py")
    above = IN_DRIVER[: min(IN_DRIVER.index(own), 4)] if own in IN_DRIVER else ("stream", "session", "steps")
    names = [name.split(".")[2:] for name in imported_modules(path) if name.startswith("spark_kafka_group.driver.")]
    assert [name for name in names if name[0] in above] == []


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
    public = {"submit", "replay", "offsets"}  # doors to tools.submit, processing.replay and values.offsets
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
OF_A_WORKER = {"errors", "executor", "options", "source", "spark", "text", "values", "wire"}
OF_ITS_VALUES = {"offsets", "retry_topics", "schema", "timing", "transactional_ids", "user_classes"}
OF_ITS_WIRE = {
    "client", "client.connect",
    "client.event_loop", "client.leaderless", "client.manager", "client.reachability",
    "client.refusals", "client.request_timeouts", "client.scram",
    "client.security_configs", "client.sockets",
    "broker_connection", "client.wrong_addresses", "coordinator_responses", "fetch", "fetch.brokers",
    "fetch.fetch_connection", "fetch.request", "fetch.response", "lacking", "leaders",
    "outage", "reactions",
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
    assert {parts[2] for parts in own if parts[1] == "values" and len(parts) > 2} == OF_ITS_VALUES
    assert {".".join(parts[2:]) for parts in own if parts[1] == "wire" and len(parts) > 2} == OF_ITS_WIRE
    assert "spark_kafka_group.executor.decode._decode_c" in read
    unneeded = {"spark_kafka_group.executor.decode._decode_py", "urllib.request", "http.client", "pandas", "difflib"}
    unneeded.add("spark_kafka_group.executor.reading.damage")
    assert not unneeded & read
    of_security = {parts[3] for parts in own if parts[1:3] == ["options", "security"] and len(parts) > 3}
    assert of_security == {"option_values", "settings"}
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
    assert {parts[0] for parts in own} == OF_A_WORKER | {"sink"}
    assert {parts[1] for parts in own if parts[0] == "values" and len(parts) > 1} == OF_ITS_VALUES - {
        "user_classes"
    } | {"exactly_once", "planned_transactions"}
    assert not {("executor", "reading"), ("wire", "group"), ("wire", "transactions")} & {parts[:2] for parts in own}
    assert "spark_kafka_group.executor.encode._encode_c" in written
    assert not {"spark_kafka_group.executor.encode._encode_py", "pyarrow.compute", "pandas", "difflib"} & written
