"""Looks into Kafka from a notebook: topics, messages, groups, lag, rates and schemas.

Everything is read by this process, without Spark's cluster: nothing joins a group, commits, or makes a topic. Only
:func:`schema` asks Spark, which guesses the schema. Values are tables: they show themselves in a notebook and in a
terminal, and ``to_df(spark)`` makes a DataFrame of them.
"""

from __future__ import annotations

from spark_kafka_group.explore.decoded import Decoded
from spark_kafka_group.explore.group_lag import Group, Groups, Lag, groups, lag
from spark_kafka_group.explore.json_schema import schema
from spark_kafka_group.explore.looking import Message, Messages, look
from spark_kafka_group.explore.record_rate import Interval, Rate, rate
from spark_kafka_group.explore.topic_facts import Topic, Topics, topics

__all__ = [
    "Decoded",
    "Group",
    "Groups",
    "Interval",
    "Lag",
    "Message",
    "Messages",
    "Rate",
    "Topic",
    "Topics",
    "groups",
    "lag",
    "look",
    "rate",
    "schema",
    "topics",
]
