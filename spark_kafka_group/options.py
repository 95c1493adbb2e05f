"""Every option of the source, once: name, type, default and what it does.

Names are Spark's where Spark's kafka source has the option, and ``kafka.`` plus the consumer's where Kafka has it.
They are case-insensitive, as in Spark. All are checked when ``load()`` is called, before any network call.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_group.errors import OffsetFormatError, OptionError
from spark_kafka_group.offsets import EARLIEST, LATEST, TopicPartition, positions_from_json

GROUP = "group"
INT32_MAX = 2**31 - 1
CONNECTIONS_MAX_IDLE_MS = 540_000  # Kafka's connections.max.idle.ms, which requests must not outlive

StartingOffsets = str | dict[TopicPartition, int]


def _text(raw: str) -> str:
    if not raw.strip():
        raise ValueError("must not be empty")
    return raw.strip()


def _integer(low: int, high: int = INT32_MAX) -> Callable[[str], int]:
    def parse(raw: str) -> int:
        try:
            value = int(raw)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def _boolean(raw: str) -> bool:
    if raw.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return raw.strip().lower() == "true"


def _choice(*words: str) -> Callable[[str], str]:
    def parse(raw: str) -> str:
        if raw.strip().lower() not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return raw.strip().lower()

    return parse


def _servers(raw: str) -> str:
    for server in raw.split(","):
        if not re.fullmatch(r"\s*(\[[0-9a-fA-F:]+\]|[^\s:,\[\]]+):\d{1,5}\s*", server):
            raise ValueError(f"must be host:port, separated by commas; {server.strip()!r} is not")
    return ",".join(server.strip() for server in raw.split(","))


def _topics(raw: str) -> tuple[str, ...]:
    topics = [topic.strip() for topic in raw.split(",")]
    for topic in topics:
        if not topic:
            raise ValueError("has an empty topic name: look for a stray comma")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
            raise ValueError(f"{topic!r} is not a topic name: letters, digits, '.', '_' and '-', at most 249 of them")
    return tuple(dict.fromkeys(topics))


def _instance_id(raw: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", raw) or raw in (".", ".."):
        raise ValueError("must be letters, digits, '.', '_' and '-', at most 249 of them")
    return raw


def _offsets(*words: str, refused: Mapping[int, str]) -> Callable[[str], StartingOffsets]:
    def parse(raw: str) -> StartingOffsets:
        if raw.strip().lower() in words:
            return raw.strip().lower()
        expected = f'must be {", ".join(words)} or JSON like {{"topic": {{"0": 23, "1": -2}}}}'
        if not raw.lstrip().startswith("{"):
            raise ValueError(expected)
        try:
            positions = positions_from_json(json.loads(raw), "it")
        except (json.JSONDecodeError, OffsetFormatError) as error:
            raise ValueError(f"{expected}: {error}") from None
        for tp, offset in positions.items():
            if offset in refused:
                raise ValueError(f"has {offset} for {tp}: {refused[offset]}")
        return positions

    return parse


def _option(
    name: str,
    parse: Callable[[str], Any],
    doc: str,
    default: Any = None,
    shown: str | None = None,
    required: bool = False,
) -> Any:
    """One option as a dataclass field; `shown` is the default as the documentation prints it."""
    metadata = {"name": name, "parse": parse, "doc": doc, "required": required, "shown": shown}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, repr=False)
class Options:
    """The options of one query, checked. Built by :meth:`parse`."""

    bootstrap_servers: str = _option(
        "kafka.bootstrap.servers", _servers, "Brokers to ask for the cluster: `host:port`, comma-separated.",
        default="", shown="required", required=True,
    )  # fmt: skip
    group_id: str | None = _option(
        "kafka.group.id", _text, "The consumer group the query is a member of. A stream without it makes a group "
        "of its own, named after an id kept in its checkpoint; a batch read without it belongs to no group.",
        shown="`spark-groupkafka-<reader id>` on a stream",
    )  # fmt: skip
    topics: tuple[str, ...] = _option(
        "subscribe", _topics, "Topics to read, comma-separated.", default=(), shown="required", required=True
    )
    starting_offsets: StartingOffsets | None = _option(
        "startingOffsets", _offsets("group", "earliest", "latest", refused={}),
        "Where a new query starts: `group` (what the group has committed, else `kafka.auto.offset.reset`), `earliest`, "
        '`latest`, or JSON per partition, `{"orders": {"0": 23, "1": -2}}` (-2 earliest, -1 latest). '
        "A query with a checkpoint goes on from there.",
        shown="`group`; `earliest` on a batch read without `kafka.group.id`",
    )  # fmt: skip
    ending_offsets: StartingOffsets = _option(
        "endingOffsets",
        _offsets("latest", refused={EARLIEST: "a batch cannot end at earliest (-2)"}),
        "Batch reads only. Where the read ends, exclusive: `latest` or JSON per partition (-1 latest).",
        default="latest",
    )  # fmt: skip
    auto_offset_reset: str | None = _option(
        "kafka.auto.offset.reset", _choice("latest", "earliest", "none"),
        "Where `startingOffsets=group` starts a partition for which the group has committed nothing; `none` is an "
        "error that names the partitions.",
        shown="`latest` on a stream, `earliest` on a batch read",
    )  # fmt: skip
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger", _integer(1, 2**63 - 1),
        "Most offsets in one micro-batch, shared among partitions in proportion to their backlog; none starves.",
        shown="no limit",
    )  # fmt: skip
    include_headers: bool = _option("includeHeaders", _boolean, "Adds the `headers` column.", default=False)
    generation: str = _option(
        "generation", _choice("auto", "batch", "stable"),
        "When a micro-batch with data starts a new generation of the group: `auto` (when the query is alone in the "
        "group), `batch` (always, as leader), `stable` (only when Kafka needs one).",
        default="auto",
    )  # fmt: skip
    records_per_task: int = _option(
        "recordsPerTask", _integer(1, 2**63 - 1),
        "Offsets worth a Spark task of their own. A small micro-batch is read by one task, as each costs 20-30 ms.",
        default=200_000,
    )  # fmt: skip
    max_tasks: int | None = _option(
        "maxTasks", _integer(1), "Most tasks of one micro-batch or batch read.", shown="number of partitions"
    )
    decoder: str = _option(
        "decoder", _choice("auto", "c", "python"),
        "`c` is compiled, `python` gives the same rows slowly, `auto` takes `c` where it was built.",
        default="auto",
    )  # fmt: skip
    client_id: str = _option(
        "kafka.client.id",
        _text,
        "Name in broker logs and quotas; `-driver` or `-executor` is added.",
        default="groupkafka",
    )
    group_instance_id: str | None = _option(
        "kafka.group.instance.id", _instance_id,
        "Static membership under a name of your own. Such a member does not leave the group when the query stops.",
        shown="derived from an id in the checkpoint",
    )  # fmt: skip
    session_timeout_ms: int = _option(
        "kafka.session.timeout.ms", _integer(1),
        "How long the group waits for a driver that went silent. The broker sets bounds.", default=45_000,
    )  # fmt: skip
    heartbeat_interval_ms: int = _option(
        "kafka.heartbeat.interval.ms",
        _integer(1),
        "How often the driver tells the group it is alive.",
        default=3_000,
    )
    max_poll_interval_ms: int = _option(
        "kafka.max.poll.interval.ms", _integer(1),
        "The rebalance timeout: how long the rest of the group waits for a running micro-batch to end and be "
        "committed. A longer micro-batch is fine as long as nobody joins or leaves.",
        default=300_000,
    )  # fmt: skip
    request_timeout_ms: int = _option(
        "kafka.request.timeout.ms", _integer(1),
        "How long to wait for a broker, with retries, before an error. Also bounds stopping.", default=30_000,
    )  # fmt: skip
    fetch_min_bytes: int = _option(
        "kafka.fetch.min.bytes", _integer(1), "A broker answers a fetch when it has this much.", default=1
    )
    fetch_max_bytes: int = _option(
        "kafka.fetch.max.bytes", _integer(1024), "Most bytes of one fetch response; a larger batch still gets through.",
        default=52_428_800,
    )  # fmt: skip
    fetch_max_wait_ms: int = _option(
        "kafka.fetch.max.wait.ms",
        _integer(0),
        "A broker answers a fetch after this long with whatever it has.",
        default=500,
    )
    max_partition_fetch_bytes: int = _option(
        "kafka.max.partition.fetch.bytes", _integer(1),
        "Most bytes of one partition in one fetch response; a larger batch still comes through.", default=1_048_576,
    )  # fmt: skip
    check_crcs: bool = _option(
        "kafka.check.crcs", _boolean, "Whether the checksum of every record batch is checked.", default=True
    )

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> Options:
        """Check `raw`, as given by ``option()``, and turn it into typed values.

        Raises
        ------
        OptionError
            On the first option that is unknown, refused, malformed, missing, or contradicts another one.
        """
        values: dict[str, Any] = {}
        for name, text in raw.items():
            field = _FIELDS.get(name.lower())
            if field is None:
                raise OptionError(_unknown(name))
            try:
                values[field.name] = field.metadata["parse"](text)
            except ValueError as error:
                raise OptionError(f"{field.metadata['name']} ({text}) {error}") from None
        for field in dataclasses.fields(cls):
            if field.metadata["required"] and field.name not in values:
                raise OptionError(f"option {field.metadata['name']} is missing: {field.metadata['doc']}")
        options = cls(**values)
        _cross_check(options)
        return options

    def __repr__(self) -> str:
        set_here = [f"{f.metadata['name']}" for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return f"Options({', '.join(set_here)})"


_FIELDS = {field.metadata["name"].lower(): field for field in dataclasses.fields(Options)}

_NO_DESERIALIZERS = (
    "key and value are binary columns: turn them into other types with Spark, "
    "as in df.selectExpr('cast(value as string)')"
)
_NO_AUTO_COMMIT = (
    "offsets are committed once a micro-batch has succeeded; committing on a timer would lose or repeat records"
)
REFUSED = {
    "kafka.key.deserializer": _NO_DESERIALIZERS,
    "kafka.value.deserializer": _NO_DESERIALIZERS,
    "kafka.enable.auto.commit": _NO_AUTO_COMMIT,
    "kafka.auto.commit.interval.ms": _NO_AUTO_COMMIT,
}
"""Options that Kafka's consumer has and that cannot mean anything here, with the reason."""


def _unknown(name: str) -> str:
    lowered = name.lower()
    for refused in (lowered, f"kafka.{lowered}"):
        if refused in REFUSED:
            return f"option {name} is not supported: {REFUSED[refused]}"
    if f"kafka.{lowered}" in _FIELDS:
        nearest = [f"kafka.{lowered}"]
    else:
        nearest = difflib.get_close_matches(lowered, _FIELDS, n=1, cutoff=0.0)
    return f"option {name} is not known; the nearest is {_FIELDS[nearest[0]].metadata['name']}"


def _below(low: str, high: str) -> Callable[[Options], str | None]:
    """A check that one option's value is below another's."""

    def check(options: Options) -> str | None:
        small, large = (getattr(options, _FIELDS[name].name) for name in (low, high))
        return None if small < large else f"{low} ({small}) must be below {high} ({large})"

    return check


def _request_below_idle(options: Options) -> str | None:
    value = options.request_timeout_ms
    if value < CONNECTIONS_MAX_IDLE_MS:
        return None
    return f"kafka.request.timeout.ms ({value}) must be below {CONNECTIONS_MAX_IDLE_MS}, when idle connections close"


def _static_needs_group(options: Options) -> str | None:
    if options.group_instance_id is None or options.group_id is not None:
        return None
    return f"kafka.group.instance.id ({options.group_instance_id}) needs kafka.group.id"


def _json_names_subscribed_topics(name: str) -> Callable[[Options], str | None]:
    def check(options: Options) -> str | None:
        value = getattr(options, _FIELDS[name.lower()].name)
        if not isinstance(value, dict):
            return None
        others = sorted({tp.topic for tp in value} - set(options.topics))
        return f"{name} names {', '.join(others)}, which subscribe does not" if others else None

    return check


CROSS_CHECKS: tuple[Callable[[Options], str | None], ...] = (
    _below("kafka.heartbeat.interval.ms", "kafka.session.timeout.ms"),
    _below("kafka.fetch.max.wait.ms", "kafka.request.timeout.ms"),
    _request_below_idle,
    _static_needs_group,
    _json_names_subscribed_topics("startingOffsets"),
    _json_names_subscribed_topics("endingOffsets"),
)


def _cross_check(options: Options) -> None:
    for check in CROSS_CHECKS:
        problem = check(options)
        if problem:
            raise OptionError(problem)


def check_for_stream(options: Options) -> None:
    """Refuse what only a batch read can have.

    Raises
    ------
    OptionError
    """
    if options.ending_offsets != "latest":
        raise OptionError(
            "endingOffsets is for batch reads: a stream ends when it is stopped, or by trigger(availableNow=True)"
        )


def check_for_batch(options: Options) -> None:
    """Refuse what only a stream can have, and starts that a batch read cannot have.

    Raises
    ------
    OptionError
    """
    starting = options.starting_offsets
    if starting == GROUP and options.group_id is None:
        raise OptionError("startingOffsets=group needs kafka.group.id")
    if starting == "latest":
        raise OptionError("startingOffsets=latest would make an empty batch: use earliest, group or JSON")
    if isinstance(starting, dict) and LATEST in starting.values():
        raise OptionError(
            "startingOffsets has -1 (latest), which would make an empty batch: use an offset or -2 (earliest)"
        )
    if options.max_offsets_per_trigger is not None:
        raise OptionError("maxOffsetsPerTrigger is for streams: bound a batch read with endingOffsets")


def markdown_table() -> str:
    """The README's table of options."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(Options):
        shown = field.metadata["shown"]
        if shown is None:
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            shown = f"`{default}`"
        lines.append(f"| `{field.metadata['name']}` | {shown} | {field.metadata['doc']} |")
    return "\n".join(lines)
