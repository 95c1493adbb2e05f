"""``offsets``: the coordinator's records of a group, one by one."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.offsets_topic.consumer_group_records import (
    CurrentAssignment,
    GroupEpoch,
    GroupTopics,
    NewerGroupMember,
    NewerRecordRemoved,
    Partitions,
    PatternTopics,
    TargetAssignment,
    TargetEpoch,
)
from spark_kafka_group.offsets_topic.decoding import (
    OFFSETS_TOPIC,
    CommitEntry,
    Entry,
    GenerationEntry,
    GroupRemoved,
    OffsetRemoved,
    OtherRecord,
    StoredMember,
    Undecodable,
)
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import NOTHING
from spark_kafka_group.tools.admin_connection import connect
from spark_kafka_group.tools.arguments import Commands, ToolError, add_command, add_group_arguments
from spark_kafka_group.tools.coordinators import NOT_SHOWN, TOOLS, led
from spark_kafka_group.tools.formatting import instant, partitions, sentence, written_by
from spark_kafka_group.values.commit_metadata import writer_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import BrokerNode, GroupAdmin, LogRecord

SUMMARY = "show the coordinator's records of a group"
DESCRIPTION = f"""\
Decodes the group's records in {OFFSETS_TOPIC}. Prints their partition
and the group's coordinator, which is the node that leads this partition. Then
prints a line for each record, in the order of the log:

  commit         an offset was committed; by whom, if its note says so
  removed        a committed offset expired or was deleted
  generation     a generation began: strategy, leader, and members with what
                 they subscribe to and were assigned
  group removed  the group expired, was deleted, or has become one of Kafka's
                 newer protocol (KIP-848), with the records that follow
  epoch          the epoch of such a group, which has no generations
  member         one of its members, the member's protocol, and its topics
  target epoch   the epoch for which the broker has assigned
  target         partitions that a member is to get
  assignment     partitions that a member has, and under which epoch of its own
  topics         topics of the members, as brokers before Kafka 4.1 keep them
  pattern        topics that a regular expression of a member matches
  left           one of these records was removed: the member has left, or the
                 group is a classic one again, or gone
  other          a record of another group protocol, not decoded
  undecodable    a record whose bytes cannot be decoded

Records of the newer protocol name topics by their ids, and so does this command
where the cluster does not have a topic any more.

The log is compacted: Kafka deletes the older records of a key after a while.
Commits in a transaction are shown while it is open, too, and after it was
aborted.
"""


@dataclass(frozen=True)
class Located:
    """Where a group's records are."""

    tp: TopicPartition
    leader: BrokerNode
    start: int
    end: int


@dataclass(frozen=True)
class WrittenRecord:
    """A record of the group, decoded."""

    record: LogRecord
    entry: Entry


def add_to(commands: Commands) -> None:
    parser = add_command(commands, "offsets", SUMMARY, DESCRIPTION)
    add_group_arguments(parser)
    parser.add_argument("--last", action="store_true", help="only the newest record of each key")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with connect(args) as admin:
        located = locate(admin, args.group)
        print(_json_of(located) if args.json else sentence(_header(args.group, located)), flush=True)
        written: Iterable[WrittenRecord] = read(admin, args.group, located)
        count, topics = 0, functools.cache(admin.topics_by_id)
        for one in newest(written) if args.last else written:
            print(json.dumps(as_json(one, topics)) if args.json else sentence(as_line(one, topics)))
            count += 1
    if not count and not args.json:
        print(f"nothing about group {printable(args.group)}")
    return 0


def locate(admin: GroupAdmin, group: str) -> Located:
    """Where a group's records are, computed from its name as the brokers do. Raises ToolError when the cluster has no
    offsets topic, or the partition has no leader. Raises BrokerError."""
    leaders = admin.leaders([OFFSETS_TOPIC])
    if not leaders:
        raise ToolError(f"{NOT_SHOWN}, or no group has been used in it yet")
    tp, leader = led(leaders, group)
    start, end = admin.log_ranges([tp])[tp]
    return Located(tp, leader, start, end)


def read(admin: GroupAdmin, group: str, located: Located) -> Iterator[WrittenRecord]:
    """All records of a group in the order of the log, and those whose key cannot be read."""
    for record in admin.read(located.tp, located.start, located.end):
        entry = decoding.decode(record.key, record.value)
        if entry.group in (group, None):
            yield WrittenRecord(record, entry)


def newest(written: Iterable[WrittenRecord]) -> list[WrittenRecord]:
    """The last record of each key, in the order of the log."""
    last: dict[bytes | None, WrittenRecord] = {}
    for one in written:
        last.pop(one.record.key, None)
        last[one.record.key] = one
    return list(last.values())


Topics = Callable[[], Mapping[str, str]]  # names of topics by their ids, looked up when the first one is needed


def _named(found: Partitions, topics: Topics) -> list[TopicPartition]:
    """Partitions by their topics' names; a topic that is gone keeps its id."""
    return sorted(TopicPartition(topics().get(topic_id, topic_id), n) for topic_id, numbers in found for n in numbers)


# Text


def _header(group: str, located: Located) -> str:
    return printable(
        f"{located.tp}, led by {located.leader}: coordinator of group {group}, "
        f"log offsets {located.start} to {located.end}"
    )


def as_line(written: WrittenRecord, topics: Topics) -> str:
    kind, text = _described(written.entry, topics)
    return printable(f"{instant(written.record.timestamp_ms)}  {kind:<13}  {text}".rstrip())


def _described(entry: Entry, topics: Topics) -> tuple[str, str]:  # noqa: C901
    # A case for each kind of record: split up, it would not be read as the table that it is.
    match entry:
        case CommitEntry():
            return "commit", f"{entry.tp}  {entry.offset}  {_writer(entry.metadata)}"
        case OffsetRemoved():
            return "removed", str(entry.tp)
        case GenerationEntry():
            return "generation", _generation(entry)
        case GroupRemoved():
            return "group removed", ""
        case GroupEpoch():
            return "epoch", str(entry.epoch)
        case NewerGroupMember():
            return "member", _newer_member(entry)
        case TargetEpoch():
            return "target epoch", str(entry.epoch)
        case TargetAssignment():
            return "target", f"{entry.member_id}  {partitions(_named(entry.partitions, topics)) or NOTHING}"
        case CurrentAssignment():
            return "assignment", _current(entry, topics)
        case GroupTopics():
            return "topics", "  ".join(f"{topic} ({count} partitions)" for topic, count in entry.topics) or NOTHING
        case PatternTopics():
            return "pattern", f"{entry.pattern}  {','.join(entry.topics) or NOTHING}"
        case NewerRecordRemoved():
            return "left", entry.name if entry.about is None else f"{entry.about}  {entry.name}"
        case OtherRecord():
            tool = TOOLS.get(entry.name.partition(" ")[0])
            shown_by = f": {tool} shows the group" if tool else ""
            removed = ", removed" if entry.removed else ""
            return "other", f"{entry.name} (kind {entry.kind}){removed}, not decoded{shown_by}"
        case Undecodable():
            return "undecodable", entry.problem


def _writer(metadata: str) -> str:
    writer = writer_of(metadata)
    if writer is not None:
        return f"by {written_by(writer)}"
    return f"metadata {metadata!r}" if metadata else "without metadata"


def _generation(entry: GenerationEntry) -> str:
    members = "; ".join(_member(entry, member) for member in entry.members) or "without members"
    strategy, leader = entry.protocol or NOTHING, entry.leader or NOTHING
    return f"{entry.generation}  protocol {strategy}  leader {leader}  {members}"


def _member(generation: GenerationEntry, member: StoredMember) -> str:
    decoded = _protocol(generation, member)
    if "problem" in decoded:
        shares = decoded["problem"]
    else:
        assigned = partitions([TopicPartition(*tp) for tp in decoded["assigned"]])
        shares = f"subscribes {','.join(decoded['topics']) or NOTHING} assigned {assigned}"
    instance = f" instance {member.instance_id}" if member.instance_id is not None else ""
    return f"{member.member_id} ({member.client_id} {member.host}{instance}) {shares}"


def _newer_member(member: NewerGroupMember) -> str:
    instance = f" instance {member.instance_id}" if member.instance_id is not None else ""
    wanted = ",".join(member.topics) or member.pattern or NOTHING
    strategies = "" if member.strategies is None else f" strategies {','.join(member.strategies)}"
    assignor = f" assignor {member.assignor}" if member.assignor is not None else ""
    return (
        f"{member.member_id} ({member.client_id} {member.host}{instance}) protocol {member.protocol}{strategies}"
        f"{assignor} subscribes {wanted}"
    )


def _current(entry: CurrentAssignment, topics: Topics) -> str:
    assigned = partitions(_named(entry.assigned, topics)) or NOTHING
    revoking = f" to give back {partitions(_named(entry.revoking, topics))}" if entry.revoking else ""
    return f"{entry.member_id}  epoch {entry.epoch}, {entry.state}  assigned {assigned}{revoking}"


# JSON


def _json_of(located: Located) -> str:
    return json.dumps({"kind": "log", **located.tp._asdict(), "leader": asdict(located.leader),
                       "start": located.start, "end": located.end})  # fmt: skip


def as_json(written: WrittenRecord, topics: Topics) -> dict[str, Any]:  # noqa: C901
    # A case for each kind of record, as in _described.
    record, entry = written.record, written.entry
    common = {"log_offset": record.offset, "time_ms": record.timestamp_ms, "group": entry.group}
    match entry:
        case CommitEntry():
            writer = writer_of(entry.metadata)
            more = {"offset": entry.offset, "metadata": entry.metadata, "note": writer.to_json() if writer else None,
                    "leader_epoch": entry.leader_epoch, "commit_timestamp_ms": entry.commit_timestamp_ms,
                    "expire_timestamp_ms": entry.expire_timestamp_ms}  # fmt: skip
            return {"kind": "commit", **common, **entry.tp._asdict(), **more}
        case OffsetRemoved():
            return {"kind": "removed", **common, **entry.tp._asdict()}
        case GenerationEntry():
            more = {"generation": entry.generation, "protocol_type": entry.protocol_type, "protocol": entry.protocol,
                    "leader": entry.leader, "state_timestamp_ms": entry.state_timestamp_ms,
                    "members": [_member_json(entry, member) for member in entry.members]}  # fmt: skip
            return {"kind": "generation", **common, **more}
        case GroupRemoved():
            return {"kind": "group_removed", **common}
        case GroupEpoch():
            return {"kind": "epoch", **common, "epoch": entry.epoch}
        case TargetEpoch():
            return {"kind": "target_epoch", **common, "epoch": entry.epoch}
        case NewerGroupMember():
            fields = asdict(entry)
            del fields["group"]
            return {"kind": "member", **common, "protocol": entry.protocol, **fields}
        case TargetAssignment():
            more = {"member_id": entry.member_id, "assigned": _lists(entry.partitions, topics)}
            return {"kind": "target", **common, **more}
        case CurrentAssignment():
            more = {"member_id": entry.member_id, "epoch": entry.epoch, "previous_epoch": entry.previous_epoch,
                    "state": entry.state, "assigned": _lists(entry.assigned, topics),
                    "revoking": _lists(entry.revoking, topics)}  # fmt: skip
            return {"kind": "assignment", **common, **more}
        case GroupTopics():
            return {"kind": "topics", **common, "topics": dict(entry.topics)}
        case PatternTopics():
            return {"kind": "pattern", **common, "pattern": entry.pattern, "topics": list(entry.topics)}
        case NewerRecordRemoved():
            more = {"record_kind": entry.kind, "name": entry.name, "about": entry.about}
            return {"kind": "left", **common, **more}
        case OtherRecord():
            return {"kind": "other", **common, "record_kind": entry.kind, "name": entry.name, "removed": entry.removed}
        case Undecodable():
            return {"kind": "undecodable", **common, "problem": entry.problem}


def _lists(found: Partitions, topics: Topics) -> list[list[Any]]:
    return [list(tp) for tp in _named(found, topics)]


def _member_json(generation: GenerationEntry, member: StoredMember) -> dict[str, Any]:
    fields = asdict(member)
    del fields["subscription"], fields["assignment"]
    return fields | _protocol(generation, member)


def _protocol(generation: GenerationEntry, member: StoredMember) -> dict[str, Any]:
    """A member's data in the group's protocol, which is known only for groups of consumers."""
    if generation.protocol_type != "consumer":
        return {"problem": f"subscription and assignment of protocol type {generation.protocol_type}, not decoded"}
    try:
        subscription = decoding.subscription_of(member.subscription)
        assigned = decoding.assignment_of(member.assignment)
    except ValueError as error:
        return {"problem": f"subscription or assignment undecodable: {error}"}
    return {"topics": list(subscription.topics), "owned": [list(tp) for tp in subscription.owned],
            "assigned": [list(tp) for tp in assigned]}  # fmt: skip
