"""The private names of kafka-python and pyspark that the package uses, which the installed versions have.

Their next versions may rename any of it: then these tests list what is gone and who uses it. The upper bounds in
pyproject.toml stand where they do because of this list.
"""

import ast
import importlib
import inspect
import itertools
import re
import textwrap
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.source_tree import ROOT, modules, nodes

from spark_kafka_group.spark.installation import is_supported

INSIDE = {
    "kafka.cluster.ClusterMetadata": (
        "_coordinators _future _last_refresh_ms _need_update _partitions _refresh_future _topics"
    ),
    "kafka.KafkaAdminClient": "_manager",
    "kafka.KafkaConsumer": "_client _coordinator _fetcher _subscription",
    "kafka.consumer.fetcher.Fetcher": (
        "_fetch_offsets_by_times_async _group_list_offset_requests _handle_list_offsets_response _isolation_level "
        "_manager _send_list_offsets_requests"
    ),
    "kafka.coordinator.base.BaseCoordinator": (
        "_do_join_and_sync_async _enable_heartbeat _generation _handle_find_coordinator_response "
        "_handle_heartbeat_response _heartbeat_enabled _join_task _lock _on_join_complete_async "
        "_process_join_group_response _process_sync_group_response _send_group_coordinator_request "
        "_send_heartbeat_request"
    ),
    "kafka.coordinator.consumer.ConsumerCoordinator": (
        "_assignment_snapshot _build_metadata_snapshot _handle_offset_commit_response _handle_offset_fetch_response "
        "_is_leader _metadata_snapshot _perform_assignment _send_offset_commit_request _subscription"
    ),
    "kafka.net.compat.KafkaNetClient": "_manager _net",
    "kafka.net.connection.KafkaConnection": "_get_api_versions _reauth _send_request",
    "kafka.net.connection.SaslReauthenticator": "_do_reauth",
    "kafka.net.manager.KafkaConnectionManager": "_auth_failures _build_transport _connect _conns _do_bootstrap _net",
    "kafka.net.sasl.msk.SaslMechanismAwsMskIam": "_build_client",
    "kafka.net.selector.NetworkSelector": "_poll_once _ready _selector",
    "kafka.net.transport.KafkaSSLTransport": "_net _sock _sock_recv",
    "kafka.net.transport.KafkaTCPTransport": "_close _net _read_task _sock _sock_recv _write_task _write_to_sock",
    "py4j.java_gateway.JavaGateway": "_gateway_client",
    "pyspark.SparkContext": "_active_spark_context _ensure_initialized _gateway _jvm _python_includes",
    "pyspark.SparkFiles": "_is_running_on_worker _root_directory",
    "pyspark.sql.SparkSession": "_instantiatedSession _jsparkSession",
    "pyspark.sql.classic.dataframe.DataFrame": "_jdf",
    "pyspark.sql.streaming.query.StreamingQuery": "_jsq",
}
DOCUMENTED = {"_asdict", "_fields", "_make", "_replace", "_exit"}
"""Of named tuples, and of os."""


def private(name):
    return name.startswith("_") and not name.startswith("__") and not re.fullmatch("_repr_[a-z]+_", name)  # notebooks'


@cache
def defined(tree):
    """Private names of a module's own functions, methods, fields and attributes of self."""
    names = set()
    for node in nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


@cache
def inherited(tree):
    """Private names of classes of this package that a module's classes have as bases."""
    names = set()
    kinds = [node for node in nodes(tree) if isinstance(node, ast.ClassDef)]
    bases = {ast.unparse(base).partition("[")[0] for kind in kinds for base in kind.bases}
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and bases & {alias.name for alias in node.names}:
            file = ROOT / Path(*node.module.split(".")).with_suffix(".py")
            if file in modules():
                names |= defined(modules()[file]) | inherited(modules()[file])
    return names


def foreign(tree):
    """Private names that a module uses on objects that are not its own, with their lines."""
    own = defined(tree) | inherited(tree)
    for node in nodes(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if name in own:
                pass
            case ast.Attribute(attr=name) if private(name) and name not in DOCUMENTED:
                yield name, node.lineno
            case ast.Constant(value=str(name)) if re.fullmatch("_(handle|process)_[a-z_]+", name):  # for setattr
                yield name, node.lineno


def overriding(tree):
    """Private methods of classes with bases from elsewhere that nothing in the module calls: the bases do."""
    imported = {a.asname or a.name for n in nodes(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    called = {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute)}
    for kind in nodes(tree):
        if isinstance(kind, ast.ClassDef) and imported & {ast.unparse(base) for base in kind.bases}:
            methods = [m for m in kind.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]
            theirs = {m for m in methods if private(m.name) and m.name not in inherited(tree)}
            yield from ((m.name, m.lineno) for m in theirs if m.name not in called)


@pytest.fixture(scope="module")
def used():
    """Where each private name of theirs is used."""
    places = defaultdict(list)
    for file, tree in modules().items():
        for name, line in [*foreign(tree), *overriding(tree)]:
            places[name].append(f"{file.relative_to(ROOT)}:{line}")
    return places


def attributes(kind):
    """Attributes of a class's objects: those of the class, and those of self that it or its bases set."""
    return set(dir(kind)).union(*(set_by(base) for base in kind.__mro__ if base is not object))


@cache
def set_by(kind):
    return defined(ast.parse(textwrap.dedent(inspect.getsource(kind))))


def found(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_the_list_has_every_private_name_that_is_used_and_no_other(used):
    listed = {name for names in INSIDE.values() for name in names.split()}
    assert {name: used[name] for name in used.keys() - listed} == {}
    assert listed - used.keys() == set()


def test_the_installed_versions_have_every_private_name_that_is_used(used):
    gone = [
        f"{path}.{name}, used in {', '.join(used[name])}"
        for path, names in INSIDE.items()
        for name in sorted(set(names.split()) - attributes(found(path)))
    ]
    assert gone == []


def test_a_name_that_is_gone_is_seen():
    has = attributes(found("kafka.coordinator.consumer.ConsumerCoordinator"))
    assert "_gone" not in has
    assert {"_generation", "_is_leader", "_send_heartbeat_request"} <= has


def test_the_installed_versions_have_everything_that_is_imported():
    gone = []
    for file, tree in modules().items():
        for node in nodes(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("kafka", "pyspark"):
                for alias in node.names:
                    try:
                        getattr(importlib.import_module(node.module), alias.name)
                    except (ImportError, AttributeError) as error:
                        gone.append(f"{file.relative_to(ROOT)}:{node.lineno}: {error}")
    assert gone == []


@pytest.mark.parametrize(
    ("version", "taken"),
    [("3.5.6", False), ("4.1.1", False), ("4.2.0", True), ("4.10.0.dev1", True), ("5.0.0", False), ("x", False)],
)
def test_the_versions_of_spark_that_have_it_are_taken_and_no_others(version, taken):
    """Not by the requirement: pip would replace the user's Spark."""
    assert is_supported(version) == taken


@pytest.mark.parametrize(("name", "next_version"), [("kafka-python", "3.1.0")])
def test_the_next_version_that_may_change_it_is_not_taken(name, next_version):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    requirements = [each for each in map(Requirement, texts) if each.name == name]
    assert requirements
    assert not [str(each) for each in requirements if each.specifier.contains(next_version)]
