"""A query's source and sink with different kafka.transactional.ids: refused before rows are written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

from spark_kafka_group.errors import OptionError
from spark_kafka_group.transactions.checkpoint_log import newest_has
from spark_kafka_group.values.source_offsets import running_with_another_id

GOES_WITHIN_S = 3.0
"""How long a source of the query's last run, which had another id, may take to end."""
PAUSE_S = 0.05


def check(transactional_id: str | None, checkpoint: str | None, shared: Path | None) -> None:
    """Refuse a micro-batch whose source leaves its offsets to a sink with another id than this one has.

    1. The batch would be written, and its offsets would not be committed. 2. The source would notice, and stop the
    query. 3. Started again with one id, it would read the batch a second time. It is noticed where this process can
    read the checkpoint; elsewhere the source alone notices.

    Parameters
    ----------
    transactional_id
        Of the sink; None where it is at least once.
    shared
        As of :func:`~spark_kafka_group.transactions.planning.planned`.

    Raises
    ------
    OptionError
    """
    if shared is None:
        return
    until = time.monotonic() + GOES_WITHIN_S
    while any(newest_has(checkpoint, source.reader) for source in running_with_another_id(shared, transactional_id)):
        if time.monotonic() > until:
            _refuse(transactional_id)
        time.sleep(PAUSE_S)


def _refuse(transactional_id: str | None) -> NoReturn:
    if transactional_id is None:
        raise OptionError(
            "a source of this query has a kafka.transactional.id, and leaves its offsets to the sink: give the sink "
            "the same one and deliveryGuarantee=exactly-once, or remove it from the source"
        )
    raise OptionError(
        f"kafka.transactional.id is {transactional_id} for the sink, and another one for a source of this query: give "
        f"both the same, or remove it from the source"
    )
