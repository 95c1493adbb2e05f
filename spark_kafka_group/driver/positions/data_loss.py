"""failOnDataLoss: records that this query has not read are gone. It stops, or it logs and counts them and goes on.

The conditions, and their names after ``KAFKA_DATA_LOSS.``, are those of Spark's kafka source.
"""

from __future__ import annotations

import logging

from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.errors import NEW_CHECKPOINT, DataLossError

log = logging.getLogger(__name__)

STOP_OR_GO_ON = (
    f"Set failOnDataLoss=false to go on with the records that are left; or start with {NEW_CHECKPOINT}, or stop the "
    f"query and move the group's offset with kafka-consumer-groups --reset-offsets"
)


class DataLoss:
    """Option failOnDataLoss."""

    def __init__(self, fail: bool, metrics: Metrics) -> None:
        self.fail = fail
        self._metrics = metrics

    def report(self, condition: str, problem: str, lost: int = 0) -> None:
        """Stop the query, or log and count the loss.

        Parameters
        ----------
        condition
            Spark's name for it.
        lost
            How many offsets; 0 where that cannot be known.

        Raises
        ------
        DataLossError
            When failOnDataLoss is true.
        """
        if self.fail:
            raise DataLossError(condition, f"{problem}. {STOP_OR_GO_ON}")
        log.warning("KAFKA_DATA_LOSS.%s: %s; going on, as failOnDataLoss is false", condition, problem)
        self._metrics.data_losses += 1
        self._metrics.offsets_lost += lost
