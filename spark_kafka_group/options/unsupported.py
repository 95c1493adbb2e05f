"""Settings of Kafka's clients that mean nothing here, and options of the other side, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_group.options.producing import SINK_DECLARED
from spark_kafka_group.options.sections import DECLARED

_NO_DESERIALIZERS = (
    "key and value are binary columns: turn them into other types with Spark, "
    "as in df.selectExpr('cast(value as string)')"
)
_NO_AUTO_COMMIT = (
    "offsets are committed once a micro-batch has succeeded; committing on a timer would lose or repeat records"
)
_NO_CLIENT_METRICS = "no client's own metrics are kept: the query's progress and GroupKafkaListener have them"
_VERSIONS_ARE_ASKED = "brokers are asked which versions they have"
_NO_WAIT = "kafka.bootstrap.servers are asked again as soon as no known broker answers: leave it out"
_NO_SHARE_GROUPS = "it is for share groups, and the query is a member of a consumer group: leave it out"
_JAVA_TLS = "it names a part of Java's TLS, and Python's is used here: leave it out"
_JAVA_LOGIN = "it is a Java class: tokens of your own come from kafka.sasl.login.callback.handler.class"
_OF_LIBKRB5 = "libkrb5 renews tickets by itself: see krb5.conf"
_REFRESH = (
    "a token is asked for again after 80% of its life: for other rules give a class of your own in "
    "kafka.sasl.login.callback.handler.class"
)
_TOKEN_RETRY = (
    "a token endpoint that fails is asked again when a connection is tried again: see kafka.reconnect.backoff.ms"
)
_TOKEN_TIMEOUT = (
    "a token endpoint has 10 seconds to answer: for other rules give a class of your own in "
    "kafka.sasl.login.callback.handler.class"
)
_NO_ASSERTIONS = (
    "tokens are asked for with a client's id and secret: for assertions give a class of your own in "
    "kafka.sasl.login.callback.handler.class"
)
_BROKER_CHECKS = "only the broker looks into tokens: set it there"
_KEYSTORE = "take kafka.ssl.keystore.location: a PEM file with private key and certificate chain"
_JAAS = "take kafka.sasl.jaas.config"

_OF_CONSUMERS = {
    # Records to read, and commits
    "kafka.key.deserializer": _NO_DESERIALIZERS,
    "kafka.value.deserializer": _NO_DESERIALIZERS,
    "kafka.enable.auto.commit": _NO_AUTO_COMMIT,
    "kafka.auto.commit.interval.ms": _NO_AUTO_COMMIT,
    "kafka.default.offset.commit.callback": "option interceptors takes module:Class with on_commit",
    "kafka.interceptor.classes": "these are Java classes: option interceptors takes module:Class",
    "kafka.max.poll.records": "a micro-batch reads ranges of offsets, whatever polls return: take maxOffsetsPerTrigger",
    "kafka.consumer.timeout.ms": "a stream goes on until it is stopped: take trigger(availableNow=True)",
    "kafka.exclude.internal.topics": "subscribePattern never matches internal topics: name them in subscribe",
    "kafka.allow.auto.create.topics": "a query never makes topics: create them first, or take subscribePattern",
    # The group
    "kafka.group.protocol": (
        "the query speaks the classic protocol, which every broker has, also where other members speak the newer one: "
        "leave it out"
    ),
    "kafka.group.remote.assignor": (
        "only consumers of the newer protocol choose the broker's assignor: take kafka.partition.assignment.strategy, "
        "which has effect while the group is a classic one"
    ),
    "kafka.share.acknowledgement.mode": _NO_SHARE_GROUPS,
    "kafka.share.acquire.mode": _NO_SHARE_GROUPS,
    # Requests
    "kafka.max.in.flight.requests.per.connection": "one fetch per broker is under way while the one before is decoded",
    "kafka.enable.incremental.fetch.sessions": "each fetch request names all of a task's partitions",
    "kafka.receive.message.max.bytes": (
        "it follows from kafka.fetch.max.bytes and kafka.max.partition.fetch.bytes: take these"
    ),
    # Metrics
    "kafka.metric.reporters": "these are Java classes: the query's progress and GroupKafkaListener have the metrics",
}
OF_CLIENTS = {
    # Connections
    "kafka.bootstrap.timeout.ms": "kafka.request.timeout.ms bounds the first connection as well: take that",
    "kafka.bootstrap.resolve.timeout.ms": (
        "a name without an address is looked up again for 3 seconds, and for 10 while no name server answers: leave it "
        "out"
    ),
    "kafka.metadata.cluster.check.enable": (
        "brokers are not told which cluster and node a connection is meant for: leave it out"
    ),
    "kafka.retry.backoff.max.ms": "the pause before a request is sent again does not grow: take kafka.retry.backoff.ms",
    "kafka.metadata.recovery.rebootstrap.trigger.ms": _NO_WAIT,
    "kafka.api.version": _VERSIONS_ARE_ASKED,
    "kafka.api.version.request": _VERSIONS_ARE_ASKED,
    "kafka.socks5.proxy": "it is deprecated: take kafka.proxy.url=socks5://host:port",
    "kafka.config.providers": "only kafka.client.rack takes ${env:NAME}: let your program replace other ${...}",
    # Metrics
    "kafka.metrics.enabled": _NO_CLIENT_METRICS,
    "kafka.metrics.num.samples": _NO_CLIENT_METRICS,
    "kafka.metrics.recording.level": _NO_CLIENT_METRICS,
    "kafka.metrics.sample.window.ms": _NO_CLIENT_METRICS,
    "kafka.metric.group.prefix": _NO_CLIENT_METRICS,
    "kafka.enable.metrics.push": _NO_CLIENT_METRICS,
    # TLS
    "kafka.ssl.provider": _JAVA_TLS,
    "kafka.ssl.engine.factory.class": _JAVA_TLS,
    "kafka.ssl.keymanager.algorithm": _JAVA_TLS,
    "kafka.ssl.trustmanager.algorithm": _JAVA_TLS,
    "kafka.ssl.secure.random.implementation": _JAVA_TLS,
    "kafka.security.providers": _JAVA_TLS,
    "kafka.ssl.check.hostname": "take kafka.ssl.endpoint.identification.algorithm",
    "kafka.ssl.cafile": "take kafka.ssl.truststore.location",
    "kafka.ssl.certfile": _KEYSTORE,
    "kafka.ssl.keyfile": _KEYSTORE,
    "kafka.ssl.password": "take kafka.ssl.key.password",
    "kafka.ssl.ciphers": "take kafka.ssl.cipher.suites, which has Java's names",
    "kafka.ssl.crlfile": "certificates are not looked up in lists of revoked ones: leave it out",
    # SASL
    "kafka.sasl.login.class": _JAVA_LOGIN,
    "kafka.sasl.oauthbearer.jwt.retriever.class": _JAVA_LOGIN,
    "kafka.sasl.oauthbearer.jwt.validator.class": _JAVA_LOGIN,
    "kafka.sasl.oauth.token.provider": "take kafka.sasl.login.callback.handler.class: module:Class with token()",
    "kafka.sasl.plain.username": _JAAS,
    "kafka.sasl.plain.password": _JAAS,
    "kafka.sasl.login.connect.timeout.ms": _TOKEN_TIMEOUT,
    "kafka.sasl.login.read.timeout.ms": _TOKEN_TIMEOUT,
    "kafka.sasl.login.refresh.buffer.seconds": _REFRESH,
    "kafka.sasl.login.refresh.min.period.seconds": _REFRESH,
    "kafka.sasl.login.refresh.window.factor": _REFRESH,
    "kafka.sasl.login.refresh.window.jitter": _REFRESH,
    "kafka.sasl.login.retry.backoff.max.ms": _TOKEN_RETRY,
    "kafka.sasl.login.retry.backoff.ms": _TOKEN_RETRY,
    "kafka.sasl.oauthbearer.assertion.algorithm": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.claim.aud": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.claim.exp.seconds": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.claim.iss": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.claim.jti.include": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.claim.nbf.seconds": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.claim.sub": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.file": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.private.key.file": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.assertion.template.file": _NO_ASSERTIONS,
    "kafka.sasl.oauthbearer.header.urlencode": (
        "client id and secret are sent as they are: give them encoded where the token endpoint wants that"
    ),
    "kafka.sasl.oauthbearer.allow.unverified.audience": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.allow.unverified.issuer": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.clock.skew.seconds": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.expected.audience": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.expected.issuer": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.jwks.endpoint.url": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.scope.claim.name": _BROKER_CHECKS,
    "kafka.sasl.oauthbearer.sub.claim.name": _BROKER_CHECKS,
    "kafka.sasl.kerberos.name": "take kafka.sasl.kerberos.service.name",
    "kafka.sasl.kerberos.domain.name": "brokers' principals have the names by which brokers are reached",
    "kafka.sasl.kerberos.kinit.cmd": _OF_LIBKRB5,
    "kafka.sasl.kerberos.min.time.before.relogin": _OF_LIBKRB5,
    "kafka.sasl.kerberos.ticket.renew.jitter": _OF_LIBKRB5,
    "kafka.sasl.kerberos.ticket.renew.window.factor": _OF_LIBKRB5,
}
"""Settings that neither a source nor a sink has: by their names in lower case, and the reason, which has the advice."""
UNSUPPORTED = {**_OF_CONSUMERS, **OF_CLIENTS}  # settings that a source does not have

INTERNAL = "kafka.internal."


def why_unsupported(name: str) -> str | None:
    """Why a setting of Kafka's is refused; None if it is none, or none that is known. With or without ``kafka.``."""
    return why_among(UNSUPPORTED, name)


def why_among(reasons: Mapping[str, str], name: str) -> str | None:
    """The reason of a setting, with or without ``kafka.``; None where there is none."""
    lowered = name.lower()
    for option in (lowered, f"kafka.{lowered}"):
        if option in reasons:
            return reasons[option]
        if option.startswith(INTERNAL):
            return "it is internal to Kafka's Java client: leave it out"
    return None


_NO_SERIALIZERS = "key and value are written as keyFormat and valueFormat say: take these"
_ANY_RACK = "rows go to leaders in any rack, and equal shares of those without a key to each partition: leave it out"
_EQUAL_SHARES = "partitions that have a leader get equal shares of the rows without a key: leave it out"

UNSUPPORTED_IN_SINKS = {
    **OF_CLIENTS,
    "kafka.key.serializer": _NO_SERIALIZERS,
    "kafka.value.serializer": _NO_SERIALIZERS,
    "kafka.interceptor.classes": "these are Java classes: change rows with Spark before they are written",
    "kafka.partitioner.class": "it is a Java class: give the rows a column partition",
    "kafka.partitioner.adaptive.partitioning.enable": _EQUAL_SHARES,
    "kafka.partitioner.availability.timeout.ms": _EQUAL_SHARES,
    "kafka.partitioner.rack.aware": _ANY_RACK,
    "kafka.client.rack": _ANY_RACK,
    "kafka.buffer.memory.allocation.strategy": (
        "memory is taken as rows come, which Java's producer calls incremental: leave it out"
    ),
    "kafka.retries": "a record batch is sent again until kafka.delivery.timeout.ms is over: take that",
    "kafka.metadata.max.idle.ms": "a worker process keeps what it knows of a topic: leave it out",
    "kafka.metric.reporters": "these are Java classes: the query's progress has the number of rows written",
    "kafka.transaction.two.phase.commit.enable": (
        "brokers need not wait for another system: the query's own decision is in Kafka. Leave it out"
    ),
}
"""Settings that a sink does not have: by their names in lower case, and the reason, which has the advice."""


def why_unsupported_in_sinks(name: str) -> str | None:
    """Why a setting of Kafka's is refused; None if it is none, or none that is known. With or without ``kafka.``."""
    return why_among(UNSUPPORTED_IN_SINKS, name)


_INSTEAD_OF_READING = {
    "subscribe": "take topic",
    "subscribepattern": "take topic, or a column topic",
    "assign": "take topic and a column partition",
    "decoder": "take encoder",
    "kafka.default.api.timeout.ms": "take kafka.max.block.ms",
    "onmalformedvalue": "a row that does not fit its schema is always an error",
    "maxbrokeroutage": "take kafka.delivery.timeout.ms",
    "partition.metadata.cache.ttl.ms": "take kafka.metadata.max.age.ms",
}
_INSTEAD_OF_WRITING = {"topic": "take subscribe", "encoder": "take decoder"}


def spelled(name: str) -> str:
    """An option's name as it is documented, as Spark hands names on in small letters; others as they are."""
    declared = DECLARED.get(name.lower()) or SINK_DECLARED.get(name.lower())
    return name if declared is None or name != name.lower() else str(declared[1].metadata["name"])


def why_of_writing(name: str) -> str | None:
    """Why the source does not take an option of the sink, or a setting of Kafka's producer; None if it is none."""
    if name.lower() not in SINK_DECLARED and why_unsupported_in_sinks(name) is None:
        return None
    return f"it is for writing, and this query reads: {_INSTEAD_OF_WRITING.get(name.lower(), 'leave it out')}"


def why_of_reading(name: str) -> str | None:
    """Why the sink does not take an option of the source, or a setting of Kafka's consumer; None if it is none."""
    if name.lower() not in DECLARED and why_unsupported(name) is None:
        return None
    return f"it is for reading, and this query writes: {_INSTEAD_OF_READING.get(name.lower(), 'leave it out')}"
