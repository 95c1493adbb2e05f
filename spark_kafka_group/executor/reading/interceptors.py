"""The user's on_consume: sees every Arrow batch on executors, and may change its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from spark_kafka_group.errors import InterceptorError
from spark_kafka_group.options.reading import INTERCEPTOR_METHODS
from spark_kafka_group.values import user_classes

if TYPE_CHECKING:
    import pyarrow as pa


def consumed(batches: Iterable[pa.RecordBatch], named: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The results of the interceptors for `batches`, called in the order of their names.

    Raises
    ------
    InterceptorError
        When one raises, or gives back something of another schema. The task fails: rows that an interceptor was to
        change, or to hide, do not get through unchanged, and nothing is committed.
    """
    made = [user_classes.make("interceptors", name, (), INTERCEPTOR_METHODS) for name in named]
    hooks = [interceptor.on_consume for interceptor in made if callable(getattr(interceptor, "on_consume", None))]
    for batch in batches:
        for hook in hooks:
            batch = _intercepted(hook, batch)
        yield batch


def _intercepted(hook: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch) -> pa.RecordBatch:
    name = getattr(hook, "__qualname__", repr(hook))
    try:
        changed = hook(batch)
    except user_classes.PASSED_ON:
        raise
    except BaseException as error:
        raise InterceptorError(f"{name} raised {type(error).__name__}: {error}") from error
    schema = getattr(changed, "schema", None)
    if schema != batch.schema:
        given = repr(changed) if schema is None else _one_line(schema)
        raise InterceptorError(f"{name} must return a RecordBatch of schema {_one_line(batch.schema)}, not {given}")
    return changed


def _one_line(schema: object) -> str:
    return ", ".join(str(schema).splitlines())
