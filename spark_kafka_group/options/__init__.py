"""Every option of the source, once: name, type, default and effect. Those of the sink are in ``sink_options``.

Names are Spark's where Spark's kafka source has the option, and ``kafka.`` plus the consumer's where Kafka has it.
They are case-insensitive, as in Spark. All are checked when ``load()`` is called, before any network call.

Tasks unpickle this and parse nothing, so modules that only parsing needs are imported where they are used.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_kafka_group.options.connection import PARTITION_BYTES, TASK_BYTES, ClientOptions, Connection, Fetching
from spark_kafka_group.options.given_values import LONGEST_TEXT, check_required, values, why_unknown
from spark_kafka_group.options.group import Group
from spark_kafka_group.options.reading import Reading
from spark_kafka_group.options.sections import DECLARED, OPTION_NAMES, SECTIONS, Sections

if TYPE_CHECKING:
    from spark_kafka_group.options.typed_values import TypedColumn

__all__ = [
    "LONGEST_TEXT", "OPTION_NAMES", "PARTITION_BYTES", "TASK_BYTES", "ClientOptions", "Connection", "Fetching", "Group",
    "Options", "Reading",
]  # fmt: skip


@dataclasses.dataclass(frozen=True, repr=False)
class Options(Sections):
    """The options of one query, checked. Built by :meth:`parse`."""

    typed: tuple[TypedColumn, ...] = ()  # how keys and values are decoded, once their schemas are known

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Options:
        """Check `raw`, as given to ``option()``, and turn it into typed values. Raises OptionError on the first option
        that is unknown, refused, malformed, missing, or contradicts another one."""
        from spark_kafka_group.options import checks

        given = parsed_each(raw)
        check_required(given, DECLARED)
        sections: dict[str, Any] = {name: section(**given[name]) for name, section in SECTIONS.items()}
        options = cls(**sections)
        checks.check(options)
        return options

    @property
    def source_key(self) -> str:
        """What tells sources of an application apart by their options: brokers, group, and what is read."""
        read = self.reading.subscription
        named = [self.connection.bootstrap_servers, self.group.id, self.group.id_prefix, read.topics, read.pattern]
        return json.dumps([*named, sorted(map(str, read.partitions))])


def parsed_each(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of single options, by section and field: no check between options, no import of the user's classes.
    Raises OptionError on the first option that is unknown, refused or malformed."""
    return values(raw, DECLARED, SECTIONS, lambda name: why_unknown(name, DECLARED, _why_refused, "docs/options.md"))


def _why_refused(name: str) -> str | None:
    from spark_kafka_group.options.unsupported import why_of_writing, why_unsupported

    return why_unsupported(name) or why_of_writing(name)
