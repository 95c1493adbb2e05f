"""The options of the source, as far as looking needs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from spark_kafka_group.options import ClientOptions, Options, parsed_each
from spark_kafka_group.options.sections import DECLARED

SUBSCRIPTIONS = {"subscribe", "subscribepattern", "assign"}
ALL_TOPICS = {"subscribePattern": ".*"}
_OF_CLIENTS = {field.name for field in dataclasses.fields(ClientOptions)}


def to_look_at_topics(options: Mapping[str, Any]) -> Options:
    """Of the topics that `options` subscribe to; of all topics where they name none.

    Raises
    ------
    OptionError
    """
    named = {name: value for name, value in options.items() if name.lower() in SUBSCRIPTIONS}
    return _parsed(options, named or ALL_TOPICS)


def to_look_at(options: Mapping[str, Any], topic: str) -> Options:
    """Of one topic.

    Raises
    ------
    OptionError
    """
    return _parsed(options, {"subscribe": topic})


def _parsed(options: Mapping[str, Any], subscription: Mapping[str, Any]) -> Options:
    """Without the group, which nothing here joins, and without where a query starts. Corrupt records are left out."""
    parsed_each(options)
    kept = {name: value for name, value in options.items() if DECLARED[name.lower()][0] in _OF_CLIENTS}
    return Options.parse({**kept, **subscription, "includeHeaders": "true", "onCorruptRecord": "skip"})
