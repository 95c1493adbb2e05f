"""An option is declared once, and has its value wherever it is used: no second list can omit it."""

import ast
import dataclasses
import pickle

from support.source_tree import PACKAGE, modules, nodes

from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.options import DECLARED, SECTIONS, ClientOptions, Options
from spark_kafka_group.source import GroupKafkaReader, GroupKafkaStreamReader

CLIENTS = [field.name for field in dataclasses.fields(ClientOptions)]


def another(field):
    """A value that is not the default, which nothing but tests would take."""
    if isinstance(field.default, bool):
        return not field.default
    return field.default + 7 if isinstance(field.default, int) else f"not the default of {field.metadata['name']}"


def section(kind):
    return kind(**{field.name: another(field) for field in dataclasses.fields(kind)})


def everything():
    """Options of which none is at its default."""
    return Options(**{name: section(kind) for name, kind in SECTIONS.items()})


def test_sections_have_all_options_and_no_two_have_one_name():
    options = everything()
    assert {name.lower() for name in options.given()} == DECLARED.keys()
    assert sum(len(getattr(options, name).given()) for name in SECTIONS) == len(DECLARED)
    assert {field.name for field in dataclasses.fields(Options)} == SECTIONS.keys()


def test_tasks_get_every_option_and_their_connections_each_that_clients_have():
    options = everything()
    for kind in (GroupKafkaStreamReader, GroupKafkaReader):
        arrived = pickle.loads(pickle.dumps(kind(options)))._options
        assert arrived == options
        kept = brokers_for(arrived)._options
        for name in CLIENTS:
            assert getattr(kept, name).given() == [f.metadata["name"] for f in dataclasses.fields(SECTIONS[name])]


def test_connections_are_shared_by_those_who_differ_in_what_they_read_or_in_which_group():
    options = everything()
    for name, kind in SECTIONS.items():
        other = dataclasses.replace(options, **{name: kind()})
        assert (brokers_for(other) is brokers_for(options)) == (name not in CLIENTS), name


def test_every_option_is_used_beyond_its_declaration():
    declaring = set((PACKAGE / "options").glob("*.py")) - {PACKAGE / "options/reading.py"}
    using = [tree for file, tree in modules().items() if file not in declaring]
    taken = {node.attr for tree in using for node in nodes(tree) if isinstance(node, ast.Attribute)}
    unused = [
        name for name, (_, field) in DECLARED.items() if field.name not in taken and not field.metadata["passed_on"]
    ]
    assert unused == [
        "kafka.ssl.truststore.type",
        "kafka.ssl.keystore.type",
    ]  # by getattr, in options/checks
