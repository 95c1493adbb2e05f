"""The least rights of an exactly-once write, as docs/exactly-once.md has them, by Kafka's own authorizer."""

import contextlib

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from secured import add_user, options, scram
from support import name
from support.exactly_once_runs import Run, all_rows, read

from spark_kafka_group.errors import BrokerError, GroupKafkaError
from spark_kafka_group.options import Options
from spark_kafka_group.options.transacting import DECISION_TOPIC, Transacting, TransactionOptions
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.source_offsets import SourceOffsets
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
CLUSTER, DESCRIBE_CONFIGS = ResourceType.CLUSTER, ACLOperation.DESCRIBE_CONFIGS
CREATE, DESCRIBE, READ, WRITE = ACLOperation.CREATE, ACLOperation.DESCRIBE, ACLOperation.READ, ACLOperation.WRITE


@pytest.fixture
def output(kafka):
    return kafka.create_topic(name("output"), partitions=2)


@pytest.fixture
def run_of(kafka, output):
    def make(*rights, **settings):
        user, prefix = name("user"), name("w")
        add_user(kafka, user)
        for operation, kind, resource in rights:
            of = ACLResourcePatternType.PREFIXED if kind is ID else ACLResourcePatternType.LITERAL
            pattern = ResourcePattern(kind, prefix if kind is ID else resource, of)
            kafka.admin.create_acls([ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)])
        parsed = Options.parse(options(kafka, "SASL", "any", **scram(user)))
        return Run(TransactionOptions(parsed.client, Transacting(prefix, **settings), 15_000), output)

    return make


@pytest.mark.parametrize(
    ("topic", "rights"), [(DECISION_TOPIC, (CREATE, READ, WRITE)), ("made-by-hand", (READ, WRITE))]
)
def test_a_write_needs_its_ids_its_topics_and_nothing_else(kafka, output, run_of, topic, rights):
    if CREATE not in rights:
        kafka.create_topic(topic, partitions=1, configs={"cleanup.policy": "compact"})
    of_decisions = [(operation, TOPIC, topic) for operation in rights]
    run = run_of((WRITE, ID, None), (WRITE, TOPIC, output), *of_decisions, decision_topic=topic)

    def planned():
        try:
            return run.plan()
        except BrokerError:  # brokers hear of new rights a little later
            return None

    run.commit(run.tasks(wait_until(planned, within=30), 0))
    run.tasks(run.plan(), 1)
    run.batch(1)
    assert read(kafka, output) == all_rows(2)


@pytest.mark.parametrize(("describes", "timeout_ms"), [(True, 120_000), (False, 60_000)])
def test_who_may_not_read_the_longest_timeout_that_brokers_allow_gets_a_usual_one(
    output, run_of, describes, timeout_ms
):
    rights = [(DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster")] if describes else []
    of_decisions = [(operation, TOPIC, DECISION_TOPIC) for operation in (CREATE, READ, WRITE)]
    run = run_of((WRITE, ID, None), (WRITE, TOPIC, output), *of_decisions, *rights)

    def planned():
        with contextlib.suppress(BrokerError):  # brokers hear of new rights a little later
            return run.plan().timeout_ms == timeout_ms

    wait_until(planned, within=30)


def why_refused(run):
    """The error of a batch that commits offsets, too; brokers hear of rights a little later, and refuse for want of
    others until then."""
    try:
        messages = run.tasks(run.plan(), 0)
        with TransactionClient(run.options.client, "tests", 15_000) as client:
            decisions = DecisionLog(client, run.options.transacting.decision_topic)
            of_group = SourceOffsets(run.group, -1, "", None, "r", 0, "", {TopicPartition(run.source, 0): 1})
            producer = client.take_id(run.options.prefix, 60_000)
            decisions.append(run.options.prefix, b"{}", producer, 0, [of_group])
        run.commit(messages)
    except GroupKafkaError as error:
        return str(error)
    return ""


RIGHTS = {
    "prefix": (WRITE, ID),
    "output": (WRITE, TOPIC),
    "create": (CREATE, TOPIC),
    "describe": (DESCRIBE, TOPIC),
    "read": (READ, TOPIC),
    "write": (WRITE, TOPIC),
    "group": (READ, GROUP),
    "source": (READ, TOPIC),
}


@pytest.mark.parametrize(
    ("lacks", "doing", "operation", "resource"),
    [
        ("prefix", "taking transactional id {prefix}", "Write", "TransactionalId {prefix}, with the pattern"),
        ("output", "adding {output}-0 to the transaction of {prefix}-0-0-0", "Write", "Topic {output}"),
        ("create", "creating topic {decisions}", "Create", "Topic {decisions}. Create it yourself"),
        ("describe", "looking up topic {decisions}", "Describe", "Topic {decisions}"),
        ("read", "reading {decisions}-0", "Read", "Topic {decisions}"),
        ("write", "adding {decisions}-0 to the transaction of {prefix}", "Write", "Topic {decisions}"),
        ("group", "adding offsets of group {group} to the transaction of {prefix}", "Read", "Group {group}"),
        ("source", "committing offsets of group {group} in the transaction of {prefix}", "Read", "Topic {source}"),
    ],
)  # fmt: skip
def test_a_right_that_is_missing_is_named_with_its_operation_and_resource(
    kafka, output, run_of, lacks, doing, operation, resource
):
    decisions, group = name("decisions"), name("group")
    source = kafka.create_topic(name("source"))
    if lacks not in ("create", "describe"):
        kafka.create_topic(decisions, configs={"cleanup.policy": "compact"})
    resources = {"prefix": None, "output": output, "group": group, "source": source}
    without = {"describe", "read", "write"} if lacks == "describe" else {lacks}
    rights = [(*right, resources.get(of, decisions)) for of, right in RIGHTS.items() if of not in without]
    run = run_of(*rights, decision_topic=decisions)
    run.group, run.source = group, source
    said = {"prefix": run.options.prefix, "output": output, "decisions": decisions, "group": group, "source": source}
    parts = [doing.format(**said), f"this user needs the ACL operation {operation}", f" on {resource.format(**said)}"]

    errors = []

    def is_named():
        errors.append(why_refused(run))
        return "\n" not in errors[-1] and all(part in errors[-1] for part in parts)

    with contextlib.suppress(TimeoutError):
        wait_until(is_named, within=60)
    assert is_named(), errors[-1]


@pytest.mark.parametrize("listener", ["SASL_SSL", "MTLS"])
def test_rows_are_published_once_over_tls(kafka, authority, output, listener):
    given = {
        "SASL_SSL": scram() | {"ssl_truststore_location": authority.certificate, "ssl_truststore_type": "PEM"},
        "MTLS": {
            "ssl_truststore_location": authority.certificate, "ssl_truststore_type": "PEM",
            "ssl_keystore_location": authority.path("client.pem"), "ssl_keystore_type": "PEM",
        },
    }[listener]  # fmt: skip
    parsed = Options.parse(options(kafka, listener, "any", **given))
    run = Run(TransactionOptions(parsed.client, Transacting(name("w")), 15_000), output)
    run.batch(0)
    run.tasks(run.plan(), 1)
    run.batch(1)
    assert read(kafka, output) == all_rows(2)


def test_an_error_says_why_a_coordinator_refuses_a_login_that_worked_before(kafka):
    user = name("user")
    add_user(kafka, user)
    parsed = Options.parse(options(kafka, "SASL", "any", **scram(user)))
    with TransactionClient(parsed.client, "tests", 15_000) as client:
        add_user(kafka, user, "another password")
        wait_until(lambda: is_refused(parsed), within=30)  # brokers hear of new passwords a little later
        with pytest.raises(BrokerError, match=f"taking transactional id w: .*user {user}"):
            client.take_id("w", 60_000)


def is_refused(parsed):
    try:
        TransactionClient(parsed.client, "tests", 15_000).close()
    except BrokerError:
        return True
    return False
