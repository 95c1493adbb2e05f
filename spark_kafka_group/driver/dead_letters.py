"""onCorruptRecord=deadLetter: its topics must exist before any record is read."""

from __future__ import annotations

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.reading import DEAD_LETTER
from spark_kafka_group.options.subscription import Subscription
from spark_kafka_group.values.retry_topics import dead_letter_topic, main_topic
from spark_kafka_group.wire import LogClient


def check(options: Options) -> None:
    """Refuse to read topics whose dead-letter topics do not exist. Topics that match a pattern later are not checked.

    Without onCorruptRecord=deadLetter no broker is asked.

    Raises
    ------
    OptionError, BrokerError
    """
    if options.reading.on_corrupt_record != DEAD_LETTER:
        return
    client = LogClient(options)
    try:
        topics = options.reading.subscription.named() or {
            tp.topic for tp in client.partitions(options.reading.subscription)
        }
        read = {main_topic(topic, options.reading.retry_delays_ms) for topic in topics}
        # A pattern may find the dead-letter topics too.
        wanted = Subscription(tuple(map(dead_letter_topic, read - set(map(dead_letter_topic, read)))))
        missing = wanted.missing(client.partitions(wanted)) if wanted.topics else []
    finally:
        client.close()
    if missing:
        raise OptionError(
            f"onCorruptRecord (deadLetter) sends records that cannot be read to a topic named TOPIC-dlt, "
            f"and the cluster does not have {', '.join(missing)}: create it, or take skip or fail"
        )
