"""What each error of Kafka's group protocol does: one table, and the advice that goes with errors that stop a query."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum


class Request(Enum):
    """What a member asks its coordinator, and how it finds it; by Kafka's name."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"


class Reaction(Enum):
    """What an error does; by what the documentation says of it.

    A partition whose position is taken again starts where checkpoint, group and options say, as after a restart; one
    whose position is kept goes on after the last micro-batch.
    """

    RETRY = "the same request again"
    FIND_COORDINATOR = "look the coordinator up, then again; membership and generation stay"
    REJOIN = "join again as the same member, keep positions unless a generation was missed"
    RETAKE = "join again as the same member, take positions again"
    JOIN_AS_NEW = "join again as a new member, take positions again"
    FENCED = "the query stops: another process took its place"
    FATAL = "the query stops: something has to be changed"
    NOT_SENT = "brokers do not answer this"


RETRIED = {Reaction.RETRY, Reaction.FIND_COORDINATOR}
LOST = {Reaction.RETAKE, Reaction.JOIN_AS_NEW}


def _rows() -> dict[str, dict[Request, Reaction]]:
    again, find, rejoin, retake = Reaction.RETRY, Reaction.FIND_COORDINATOR, Reaction.REJOIN, Reaction.RETAKE
    as_new, fenced, fatal, never = Reaction.JOIN_AS_NEW, Reaction.FENCED, Reaction.FATAL, Reaction.NOT_SENT
    rows = {
        "REBALANCE_IN_PROGRESS":        (never,  rejoin,  rejoin,  rejoin,  retake,  never),
        "ILLEGAL_GENERATION":           (never,  never,   retake,  retake,  retake,  never),
        "UNKNOWN_MEMBER_ID":            (never,  as_new,  as_new,  as_new,  as_new,  never),
        "MEMBER_ID_REQUIRED":           (never,  rejoin,  never,   never,   never,   never),
        "FENCED_INSTANCE_ID":           (never,  fenced,  fenced,  fenced,  fenced,  never),
        "NOT_COORDINATOR":              (never,  find,    find,    find,    find,    find),
        "COORDINATOR_LOAD_IN_PROGRESS": (again,  again,   again,   again,   again,   again),
        "COORDINATOR_NOT_AVAILABLE":    (again,  find,    find,    find,    find,    again),
        "GROUP_MAX_SIZE_REACHED":       (never,  fatal,   never,   never,   never,   never),
        "INCONSISTENT_GROUP_PROTOCOL":  (never,  fatal,   fatal,   never,   never,   never),
        "INVALID_SESSION_TIMEOUT":      (never,  fatal,   never,   never,   never,   never),
        "INVALID_GROUP_ID":             (never,  fatal,   fatal,   fatal,   fatal,   fatal),
        "GROUP_AUTHORIZATION_FAILED":   (fatal,  fatal,   fatal,   fatal,   fatal,   fatal),
        "TOPIC_AUTHORIZATION_FAILED":   (never,  never,   never,   never,   fatal,   fatal),
        "OFFSET_METADATA_TOO_LARGE":    (never,  never,   never,   never,   fatal,   never),
        "INVALID_COMMIT_OFFSET_SIZE":   (never,  never,   never,   never,   fatal,   never),
        "UNKNOWN_TOPIC_OR_PARTITION":   (never,  never,   never,   never,   again,   never),
        "UNSTABLE_OFFSET_COMMIT":       (never,  never,   never,   never,   never,   again),
        "REQUEST_TIMED_OUT":            (never,  never,   never,   never,   find,    never),
    }  # fmt: skip
    return {error: dict(zip(Request, reactions, strict=True)) for error, reactions in rows.items()}


REACTIONS: Mapping[str, Mapping[Request, Reaction]] = _rows()
"""Kafka's name of an error to what it does in the answer to each request."""

DESCRIBE = "Describe (or Read, which includes it)"
OPERATIONS = dict.fromkeys(Request, "Read") | dict.fromkeys((Request.FIND_COORDINATOR, Request.OFFSET_FETCH), DESCRIBE)
"""The ACL operation that a request needs on the group, and on the topics it names."""

ADVICE: Mapping[str, str] = {
    "FENCED_INSTANCE_ID": (
        "another process has joined with this query's group.instance.id ({instance_id}), so this one must not go on"
    ),
    "NOT_COORDINATOR": "brokers do not agree on the group's coordinator: look at the leaders of __consumer_offsets",
    "COORDINATOR_LOAD_IN_PROGRESS": (
        "the coordinator is still reading its groups from __consumer_offsets: try again later, "
        "or raise kafka.default.api.timeout.ms"
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "the group has no coordinator: its partition of __consumer_offsets has no leader, or the topic could not be "
        "made because there are fewer brokers than offsets.topic.replication.factor"
    ),
    "GROUP_MAX_SIZE_REACHED": (
        "the group has as many members as the broker's group.max.size allows: stop one, raise group.max.size, "
        "or take another kafka.group.id"
    ),
    "INCONSISTENT_GROUP_PROTOCOL": (
        "the group's other members support none of this query's kafka.partition.assignment.strategy names "
        "({strategies}), or they are no consumers: name a strategy that all of them support, "
        "or take another kafka.group.id"
    ),
    "INVALID_SESSION_TIMEOUT": (
        "kafka.session.timeout.ms ({session_timeout_ms}) is outside the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms: choose one between {session_bounds}"
    ),
    "INVALID_GROUP_ID": "the broker does not take kafka.group.id ({group_id}): choose another one",
    "GROUP_AUTHORIZATION_FAILED": "this user needs the ACL operation {operation} on Group {group_id}",
    "TOPIC_AUTHORIZATION_FAILED": "this user needs the ACL operation {operation} on Topic {topics}",
    "OFFSET_METADATA_TOO_LARGE": (
        "the note in this query's commits is longer than the broker's offset.metadata.max.bytes: raise it "
        "(unless changed, 4096)"
    ),
    "INVALID_COMMIT_OFFSET_SIZE": (
        "the commit does not fit into one record batch of __consumer_offsets: raise that topic's max.message.bytes"
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "the coordinator does not know {topics}: if it was deleted, start a query without it; if it is new, try again"
    ),
    "UNSTABLE_OFFSET_COMMIT": (
        "a transaction that commits offsets of the group is open: wait until it ends or its transaction.timeout.ms is "
        "over"
    ),
    "REQUEST_TIMED_OUT": (
        "the replicas of __consumer_offsets did not take the commit in time: see whether they are in sync"
    ),
}
"""What to change where an error stops a query, at once or when retrying took too long."""


@dataclass(frozen=True)
class Facts:
    """What advice speaks about: a query's own settings."""

    group_id: str | None = None
    instance_id: str | None = None
    session_timeout_ms: int | None = None
    strategies: tuple[str, ...] = ()
    session_bounds: tuple[int, int] | None = None


def advice(error: str, request: Request | None, facts: Facts, topics: Collection[str] = ()) -> str | None:
    """What to change about an error by Kafka's name; None where there is nothing to say.

    Parameters
    ----------
    request
        Which request was answered so; None for one that is not about groups, such as Metadata.
    topics
        The topics the error is about.
    """
    text = ADVICE.get(error)
    return text and text.format(
        group_id=facts.group_id,
        instance_id=facts.instance_id,
        session_timeout_ms=facts.session_timeout_ms,
        session_bounds="them" if facts.session_bounds is None else "{} and {}".format(*facts.session_bounds),
        strategies=", ".join(facts.strategies),
        topics=", ".join(sorted(topics)),
        operation=DESCRIBE if request is None else OPERATIONS[request],
    )


def as_markdown() -> str:
    """The table, with a legend, for the documentation."""
    words = {reaction: reaction.name.lower().replace("_", " ") for reaction in Reaction}
    words[Reaction.NOT_SENT] = ""
    lines = [
        "| error | " + " | ".join(request.value for request in Request) + " |",
        "|---" * (1 + len(Request)) + "|",
        *(
            f"| `{error}` | " + " | ".join(words[reactions[request]] for request in Request) + " |"
            for error, reactions in REACTIONS.items()
        ),
        "",
        *(f"- **{word}**: {reaction.value}" for reaction, word in words.items() if word),
        "",
        "A SyncGroup is never sent twice: after it, *again* is from JoinGroup on.",
        "Retrying takes at most kafka.default.api.timeout.ms; joining, kafka.max.poll.interval.ms if that is longer.",
        "A join that the broker has taken waits for the other members as long as they take.",
    ]
    return "\n".join(lines) + "\n"
