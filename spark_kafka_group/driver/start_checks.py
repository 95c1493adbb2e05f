"""What is checked before any record is read: kafka.client.rack, and the topics of onCorruptRecord=deadLetter."""

from __future__ import annotations

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.reading import DEAD_LETTER, Subscription
from spark_kafka_group.values.retry_topics import dead_letter_topic, main_topic
from spark_kafka_group.wire import LogClient


def look_up_rack(options: Options) -> None:
    """As :func:`check_rack`, by new metadata, if options name a rack. Raises OptionError, BrokerError."""
    if not options.fetching.rack({}):
        return
    client = LogClient(options)
    try:
        client.partitions(options.reading.subscription)
        check_rack(options, client)
    finally:
        client.close()


def check_rack(options: Options, client: LogClient) -> None:
    """Refuse a rack that no broker has in the last metadata, unless replicas are on brokers that are away: a query can
    start while its own rack is down. Executors know their own variables. Raises OptionError."""
    rack = options.fetching.rack({})
    racks = client.racks() if rack else None
    if racks is None or rack in racks:
        return
    known = f"the brokers' racks are {', '.join(sorted(racks))}" if racks else "no broker has a broker.rack"
    raise OptionError(f"kafka.client.rack ({rack}) is not the rack of a broker: {known}. Change it or leave it out")


def check_dead_letters(options: Options) -> None:
    """Refuse topics without dead-letter topics, if they are needed; not those that match a pattern later."""
    if options.reading.on_corrupt_record == DEAD_LETTER:
        said = "onCorruptRecord (deadLetter) sends records that cannot be read"
        instead = "skip"
    elif options.values.on_malformed_value == DEAD_LETTER:
        said = "onMalformedValue (deadLetter) sends records whose values do not fit"
        instead = "null"
    else:
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
            f"{said} to a topic named TOPIC-dlt, and the cluster does not have {', '.join(missing)}: create it, or "
            f"take {instead} or fail"
        )
