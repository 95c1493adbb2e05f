"""All options of a query, a section each, and where each one is by its name."""

from __future__ import annotations

import dataclasses
from typing import Any

from spark_kafka_group.options.connection import ClientOptions, Connection, Fetching
from spark_kafka_group.options.group import Group
from spark_kafka_group.options.option import Section
from spark_kafka_group.options.reading import Reading
from spark_kafka_group.options.schema_registry import SchemaRegistry
from spark_kafka_group.options.security import Security
from spark_kafka_group.options.typed_values import TypedValues


@dataclasses.dataclass(frozen=True, repr=False)
class Sections(ClientOptions):
    """All options of one query, as values."""

    group: Group
    reading: Reading
    values: TypedValues
    registry: SchemaRegistry

    @property
    def client(self) -> ClientOptions:
        """The options of clients, without those of the group and of the records to read."""
        return ClientOptions(**{field.name: getattr(self, field.name) for field in dataclasses.fields(ClientOptions)})

    def value(self, name: str) -> Any:
        section, field = DECLARED[name.lower()]
        return getattr(getattr(self, section), field.name)

    def given(self) -> list[str]:
        """Names of the options that are not at their defaults."""
        return [field.metadata["name"] for name, (_, field) in DECLARED.items() if self.value(name) != field.default]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.given())})"


SECTIONS: dict[str, type[Section]] = {
    "group": Group, "reading": Reading, "fetching": Fetching, "values": TypedValues, "registry": SchemaRegistry,
    "connection": Connection, "security": Security,
}  # fmt: skip
"""The sections by their attributes in :class:`Sections`."""


def _declared() -> dict[str, tuple[str, dataclasses.Field[Any]]]:
    fields = [(name, field) for name, section in SECTIONS.items() for field in dataclasses.fields(section)]  # type: ignore[arg-type]
    fields.sort(key=lambda declared: not declared[1].metadata["required"])
    return {field.metadata["name"].lower(): (name, field) for name, field in fields}


DECLARED = _declared()  # section and field of each option, by its name in lower case; those that are required first
OPTION_NAMES = frozenset(DECLARED)  # names of all options, in lower case
