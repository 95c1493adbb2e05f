"""What programs for spark-submit share; this is the public name of ``tools.submit`` and ``tools.ending``."""

from spark_kafka_group.tools.ending import orderly
from spark_kafka_group.tools.submit import follow, options, parser, session

__all__ = ["follow", "options", "orderly", "parser", "session"]
