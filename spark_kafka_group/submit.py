"""Functions for programs that spark-submit runs; this is the public name of ``tools.submit``."""

from spark_kafka_group.tools.submit import follow, options, parser, session

__all__ = ["follow", "options", "parser", "session"]
