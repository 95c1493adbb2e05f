"""Sends dead letters back to the topics they came from; this is the public name of ``processing.replay``."""

from spark_kafka_group.processing.replay import REFUSED, WANTED, Letters, Wanted, send_back, survey

__all__ = ["REFUSED", "WANTED", "Letters", "Wanted", "send_back", "survey"]
