"""Schemas of a registry, each asked for once in a process and kept for its life."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar
from urllib.parse import quote

from spark_kafka_group.errors import RegistryError, RegistryTimeoutError, UnknownSchemaError
from spark_kafka_group.executor.schemas.avro_schema import with_references
from spark_kafka_group.executor.schemas.registry_requests import NoRegistryError, RegistryRequests
from spark_kafka_group.options.schema_registry import SchemaRegistry
from spark_kafka_group.text.foreign_text import excerpt, printable

log = logging.getLogger(__name__)

T = TypeVar("T")

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
MOST_REFERENCES = 200  # schemas that one schema needs, at most
SAID_AFTER_S = 10.0  # a registry that is restarted is usually back before
UNKNOWN_S = 10.0  # how long an id is asked for that a registry does not have: registries copy schemas from each other
UNKNOWN_PAUSE_S = 0.5
UNKNOWN_AGAIN_S = 60.0
"""After a wait in vain, nothing unknown is waited for, and no such id is asked for again, for that long."""
MOST_UNKNOWN = 10_000  # ids that are kept; bytes that only look framed have any number of them


@dataclass(frozen=True)
class SchemaReference:
    """Another schema that a schema needs, and the name that it has there."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as a registry has it.

    `kind`: ``AVRO``, ``JSON`` or ``PROTOBUF``, or what a registry may have beside them.
    `id`, `guid`, `subject`, `version`: None where the registry does not say it.
    """

    text: str
    kind: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    id: int | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class RegistryPatience:
    """How long a registry is waited for that does not answer: so many attempts, or so long, or for ever.

    `behind_others`: whether it is waited for too while another server answers in its place, as a proxy does.
    """

    attempts: int | None = None
    limit_ms: int | None = None
    behind_others: bool = False


class Registry:
    """A client of the registries that the options name, for one process. Threads that share it may ask twice.

    Every method raises UnknownSchemaError, RegistryTimeoutError when `patience` is over, or another RegistryError.
    Without `patience` a request is repeated ``schema.registry.max.retries`` times.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._registry = registry
        self._requests = RegistryRequests(registry)
        self._briefly = RegistryPatience(attempts=1 + registry.max_retries)
        self._clock = clock
        self._sleep = sleep
        self._schemas: dict[int | str, RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}
        self._unknown: dict[int | str, float] = {}  # when it was asked for last
        self._in_vain_at = float("-inf")

    def latest(self, subject: str, patience: RegistryPatience | None = None) -> RegisteredSchema:
        """The latest version of a subject; asked for anew each time."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        return self._schema(path, self._ask(path, patience))

    def version(self, subject: str, version: int, patience: RegistryPatience | None = None) -> RegisteredSchema:
        """A version of a subject."""
        key = subject, version
        if key not in self._versions:
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            self._versions[key] = self._schema(path, self._ask(path, patience))
        return self._versions[key]

    def referenced(
        self, schema: RegisteredSchema, patience: RegistryPatience | None = None
    ) -> tuple[RegisteredSchema, ...]:
        """The schemas that a schema needs, also by way of others, each after those that it needs itself."""
        found: dict[tuple[str, int], RegisteredSchema] = {}

        def add(needing: RegisteredSchema, above: tuple[tuple[str, int], ...]) -> None:
            for reference in needing.references:
                key = reference.subject, reference.version
                if key in above or len(above) + len(found) >= MOST_REFERENCES:
                    why = "needs itself" if key in above else f"needs more than {MOST_REFERENCES} others"
                    raise RegistryError(f"version {key[1]} of subject {key[0]} {why}, by its references")
                if key not in found:
                    needed = self.version(*key, patience)
                    add(needed, (*above, key))
                    found[key] = needed

        add(schema, ())
        return tuple(found.values())

    def whole_text(self, schema: RegisteredSchema, patience: RegistryPatience | None = None) -> str:
        """An Avro schema with those that it refers to in it."""
        if not schema.references:
            return schema.text
        return with_references(schema.text, [each.text for each in self.referenced(schema, patience)])

    def schemas(self, keys: Iterable[int | str], patience: RegistryPatience) -> dict[int | str, RegisteredSchema]:
        """The schemas of these ids and GUIDs, without those that the registry does not know after a while."""
        keys = set(keys)
        missing = {key for key in keys - self._schemas.keys() if self._may_ask(key)}
        waits = self._clock() - self._in_vain_at >= UNKNOWN_AGAIN_S
        waited_s = 0.0  # without outages
        while missing := {key for key in missing if not self._found(key, patience)}:
            if not waits or waited_s >= UNKNOWN_S:
                self._note_unknown(missing, waits)
                break
            self._sleep(UNKNOWN_PAUSE_S)
            waited_s += UNKNOWN_PAUSE_S
        return {key: self._schemas[key] for key in keys & self._schemas.keys()}

    def _may_ask(self, key: int | str) -> bool:
        return self._clock() - self._unknown.get(key, float("-inf")) >= UNKNOWN_AGAIN_S

    def _note_unknown(self, keys: set[int | str], waited: bool) -> None:
        if waited:
            self._in_vain_at = self._clock()
            some = ", ".join(map(str, sorted(keys, key=str)[:5]))
            log.warning(
                "schema registry (%s) does not have schema %s after %.0f s: values with it are malformed",
                self._registry.shown_urls, some, UNKNOWN_S,
            )  # fmt: skip
        if len(self._unknown) + len(keys) > MOST_UNKNOWN:
            self._unknown.clear()
        self._unknown.update(dict.fromkeys(keys, self._clock()))

    def _found(self, key: int | str, patience: RegistryPatience) -> bool:
        path = f"/schemas/ids/{key}" if isinstance(key, int) else f"/schemas/guids/{quote(key, safe='')}"
        try:
            self._schemas[key] = self._schema(path, self._ask(path, patience))
        except UnknownSchemaError:
            return False
        return True

    def register(self, subject: str, schema: RegisteredSchema, patience: RegistryPatience | None = None) -> int:
        """Register a schema as a subject's next version, if it is not there; returns its id."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        number = self._ask(path, patience, _content(schema))
        if not isinstance(number, dict) or not isinstance(number.get("id"), int):
            raise self._no_schema(path)
        return int(number["id"])

    def registered(
        self, subject: str, schema: RegisteredSchema, patience: RegistryPatience | None = None
    ) -> RegisteredSchema:
        """Register a schema; it as the registry has it then. Of several registries one writes, and the others know a
        schema a little later."""
        self.register(subject, schema, patience)
        waited_s = 0.0
        while True:
            try:
                return self.lookup(subject, schema, patience)
            except UnknownSchemaError:
                if waited_s >= UNKNOWN_S:
                    raise
            self._sleep(UNKNOWN_PAUSE_S)
            waited_s += UNKNOWN_PAUSE_S

    def lookup(
        self, subject: str, schema: RegisteredSchema, patience: RegistryPatience | None = None
    ) -> RegisteredSchema:
        """The schema as it is registered under a subject, with id and version."""
        path = f"/subjects/{quote(subject, safe='')}"
        return self._schema(path, self._ask(path, patience, _content(schema)))

    def _ask(self, path: str, patience: RegistryPatience | None, content: dict[str, Any] | None = None) -> Any:
        """The answer, once there is one: an outage of registries is told once, and waited for."""
        patience = patience or self._briefly
        began, attempts, warned = self._clock(), 0, False
        pause_s = self._registry.retries_wait_ms / 1000
        limit_s = inf if patience.limit_ms is None else patience.limit_ms / 1000
        while True:
            try:
                answer = self._requests.ask(path, content, limit_s - (self._clock() - began))
            except (RegistryTimeoutError, NoRegistryError) as error:
                if isinstance(error, NoRegistryError) and not patience.behind_others:
                    raise RegistryError(str(error)) from None
                attempts += 1
                away_s = self._clock() - began
                left_s = limit_s - away_s
                if left_s <= 0 or attempts == patience.attempts:
                    raise RegistryTimeoutError(
                        f"no schema registry has answered, in {attempts} attempts and {away_s:.0f} s: {error}"
                    ) from None
                if not warned and away_s >= SAID_AFTER_S and patience.attempts is None:
                    warned = True
                    log.warning("%s. The task waits for it, and goes on", printable(str(error)))
                self._sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, self._registry.retries_max_wait_ms / 1000)
            except RegistryError:
                self._say_again(warned, began)
                raise
            else:
                self._say_again(warned, began)
                return answer

    def _say_again(self, warned: bool, began: float) -> None:
        if warned:
            log.warning("schema registry answers again, after %.0f s", self._clock() - began)

    def _schema(self, path: str, answer: Any) -> RegisteredSchema:
        """A registry's answer as a value."""
        try:
            references = tuple(
                SchemaReference(_typed(str, each["name"]), _typed(str, each["subject"]), _typed(int, each["version"]))
                for each in answer.get("references") or ()
            )
            return RegisteredSchema(
                _typed(str, answer["schema"]),
                _said(str, answer, "schemaType") or AVRO,
                references,
                id=_said(int, answer, "id"),
                guid=_said(str, answer, "guid"),
                subject=_said(str, answer, "subject"),
                version=_said(int, answer, "version"),
            )
        except (KeyError, TypeError, AttributeError):
            raise self._no_schema(path) from None

    def _no_schema(self, path: str) -> RegistryError:
        return RegistryError(
            f"schema registry ({self._registry.shown_urls}) answers {path} with something else than a schema, as no "
            f"schema registry does: check schema.registry.url"
        )


def _typed(kind: type[T], value: object) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError
    return value


def _said(kind: type[T], answer: dict[str, Any], name: str) -> T | None:
    return None if answer.get(name) is None else _typed(kind, answer[name])


def _content(schema: RegisteredSchema) -> dict[str, Any]:
    references = [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references]
    return {"schema": schema.text, "schemaType": schema.kind} | ({"references": references} if references else {})


def of_kind(schema: RegisteredSchema, kind: str, asked_by: str, instead: str) -> RegisteredSchema:
    """`schema`, if it is of this kind. Raises RegistryError.

    `asked_by`: the option that asks for the kind, and its value.
    `instead`: what its user may do.
    """
    if schema.kind != kind:
        raise RegistryError(
            f"{asked_by} needs a schema of type {kind}, and subject {schema.subject} has version {schema.version} of "
            f"type {excerpt(schema.kind)}: {instead}"
        )
    return schema


_registries: dict[tuple[int, SchemaRegistry], Registry] = {}


def registry_for(registry: SchemaRegistry) -> Registry:
    """The client of this process for the options; those who read other topics share it, with the schemas it has."""
    key = os.getpid(), registry
    if key not in _registries:
        _registries[key] = Registry(registry)
    return _registries[key]
