"""What programs for spark-submit share; this is the public name of ``tools.submit`` and ``tools.ending``."""

from spark_kafka_group.tools.ending import orderly
from spark_kafka_group.tools.submit import add_sink_option, follow, options, parser, session, sink_options

__all__ = ["add_sink_option", "follow", "options", "orderly", "parser", "session", "sink_options"]
