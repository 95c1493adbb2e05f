"""The table of imports between the rooms of the package. Only `wire` imports kafka-python's internals."""

import ast
import pickle
import subprocess
import sys
from collections import Counter

import pytest
from pyspark.sql.types import StringType, StructType
from support.source_tree import PACKAGE, modules, nodes

from spark_kafka_group import GroupKafkaDataSource

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
        "errors", "executor", "live", "offsets_topic", "options", "spark", "text", "transactions", "values",
        "wire",
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
    for node in nodes(modules()[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(package):
    """Each file of this package with each name of `package` that it imports, and that name's parts below `package`."""
    for path in modules():
        for name in imported_modules(path):
            first, *parts = name.split(".")
            if first == package:
                yield path, name, parts


def test_a_module_imports_only_rooms_below_its_own():
    own = [(path, name, parts[0]) for path, name, parts in imports_of("spark_kafka_group") if parts]
    wrong = [(path, name) for path, name, room in own if room not in {room_of(path), *ALLOWED[room_of(path)]}]
    assert len(own) > 1000
    assert wrong == []


def test_only_wire_knows_kafka_pythons_inside_and_testing_its_public_client():
    elsewhere = [(path, name, parts) for path, name, parts in imports_of("kafka") if room_of(path) != "wire"]
    assert [(path, name) for path, name, parts in elsewhere if room_of(path) != "testing" or len(parts) > 2] == []


def test_a_log_is_looked_up_without_the_modules_of_groups():
    """Executors look logs up, too. `admin` looks at groups, and the room's own door imports when it is asked."""
    importing = {
        str(path.relative_to(PACKAGE / "wire"))
        for path, _, parts in imports_of("spark_kafka_group")
        if room_of(path) == "wire" and parts[:2] == ["wire", "group"] and len(parts) > 2
    }
    assert {file for file in importing if not file.startswith("group/")} == {
        "__init__.py",
        "admin.py",
        "transactions/offsets_in_transaction.py",
    }


IN_DRIVER = ("stream", "session", "steps", "query", "membership", "positions", "backlog", "reporting")
"""What calls before what is called. The last four are parts, which do not know the steps that put them together."""


def callers_of(path):
    """Parts of the driver that a file of it may not import."""
    own = path.relative_to(PACKAGE / "driver").parts[0].removesuffix(".py")
    return IN_DRIVER[: min(IN_DRIVER.index(own), 4)] if own in IN_DRIVER else ("stream", "session", "steps")


def test_no_part_of_the_driver_imports_what_calls_it():
    own = imports_of("spark_kafka_group")
    within = [(path, parts[1]) for path, _, parts in own if room_of(path) == "driver" and parts[0] == "driver"]
    assert len(within) > 100
    assert [(path, part) for path, part in within if part in callers_of(path)] == []


def test_no_room_may_import_itself_by_way_of_others():
    for room in ALLOWED:
        below, seen = list(ALLOWED[room]), set()
        while below:
            seen.add(other := below.pop())
            below += ALLOWED[other] - seen
        assert room not in seen


def test_no_module_imports_itself_by_way_of_others():
    """For types neither: who reads one of a circle has to read all of it."""
    names = {
        ".".join(("spark_kafka_group", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in modules()
    }
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
    names = Counter(path.stem for path in modules() if path.stem not in {"__init__", "__main__", *public})
    assert [name for name, times in names.items() if times > 1] == []


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in modules()} == set(ALLOWED)


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


DECODING = """
import sys
from dataclasses import replace
from spark_kafka_group.executor.values.typed_batches import TypedBatches
from spark_kafka_group.options import Options
from spark_kafka_group.executor.schemas.typed_columns import resolved
given = dict(zip(("valueFormat", "valueSchema"), sys.argv[1:]))
options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **given})
TypedBatches(replace(options, typed=resolved(options)))
print(*sys.modules)
"""


@pytest.mark.parametrize(
    ("kind", "schema"),
    [("json", "id INT"), ("avro", '"int"'), ("protobuf", "message M { optional int32 id = 1; }")],
)
def test_a_worker_imports_nothing_of_other_formats_than_its_own(kind, schema):
    done = subprocess.run([sys.executable, "-c", DECODING, kind, schema], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    of_formats = {name for name in ("avro", "json", "proto") if any(f".values.{name}" in each for each in modules)}
    assert of_formats == {kind[:5]}
    assert not [
        name for name in modules if name.split(".")[0] in ("google", "grpc_tools", "fastavro", "confluent_kafka")
    ]
    assert kind == "protobuf" or not [name for name in modules if ".schemas.proto" in name]


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


def names_of(node):
    """What a statement of a module binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def test_no_module_binds_a_name_twice():
    """Whoever joins two modules would not see it: neither ruff nor mypy minds a second value of the same type."""
    for file, tree in modules().items():
        bound = Counter(name for node in tree.body for name in names_of(node))
        assert [name for name, times in bound.items() if times > 1] == [], file
