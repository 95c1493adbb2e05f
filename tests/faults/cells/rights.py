"""Rights and passwords that change while a query runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from faults.cells.registry import OPERATOR, Cell, add
from faults.scene import Scene
from spark_kafka_group.testing import KafkaCluster

USER, PASSWORD = "query", "a-password"
LISTENER = "SASL"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{MODULE} required;",
    "listener.name.sasl.scram-sha-256.connections.max.reauth.ms": "3000",
}
LASTS_S = 8.0


def secured() -> KafkaCluster:
    """A broker with users and rights; the load goes by a listener that asks for neither."""
    return KafkaCluster(properties=SETTINGS, listeners={LISTENER: "SASL_PLAINTEXT"})


def password(scene: Scene, text: str) -> None:
    made = UserScramCredentialUpsertion(USER, ScramMechanism.SCRAM_SHA_256, text, iterations=4096)
    scene.kafka.admin.alter_user_scram_credentials([made])


def rights(scene: Scene) -> list[ACL]:
    """Those that a query needs."""
    named = {ResourceType.TOPIC: scene.topic, ResourceType.GROUP: scene.group}
    groups = [ResourcePattern(kind, name) for kind, name in named.items()]
    return [ACL(f"User:{USER}", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern) for pattern in groups]


def as_a_user(scene: Scene) -> None:
    """The query logs in; its user has all rights that it needs."""
    password(scene, PASSWORD)
    for right in rights(scene):
        scene.kafka.admin.create_acls([right])
    scene.servers = scene.kafka.servers_of(LISTENER)
    scene.own_options |= {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{MODULE} required username="{USER}" password="{PASSWORD}";',
    }


@contextlib.contextmanager
def without(scene: Scene, index: int) -> Iterator[None]:
    """One of the rights is taken away."""
    right = rights(scene)[index]
    named = right.resource_pattern
    pattern = ResourcePatternFilter(named.resource_type, named.resource_name, named.pattern_type)
    scene.kafka.admin.delete_acls([ACLFilter(right.principal, "*", right.operation, right.permission_type, pattern)])
    try:
        yield
    finally:
        scene.kafka.admin.create_acls([right])


@contextlib.contextmanager
def other_password(scene: Scene) -> Iterator[None]:
    """The user's password is another one."""
    password(scene, "another")
    try:
        yield
    finally:
        password(scene, PASSWORD)


def changed(name: str, what: str, change: object) -> Cell:
    """A cell: a change for some seconds; the query may end with an error that says so, and is started again."""

    def happen(scene: Scene) -> None:
        scene.pause()
        with scene.fault(f"{what} for {LASTS_S:.0f} s", may_end=True), change(scene):  # type: ignore[operator]
            time.sleep(LASTS_S)  # the fault itself

    return Cell(OPERATOR, name, f"{what} for {LASTS_S:.0f} s", happen, brokers=secured, prepare=as_a_user)


add(changed("topic-right-taken", "the right to read the topic is taken away", lambda scene: without(scene, 0)))
add(changed("group-right-taken", "the right to read the group is taken away", lambda scene: without(scene, 1)))
add(changed("password-changed", "the user's password is another one", other_password))
