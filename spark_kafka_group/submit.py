"""What programs for spark-submit share; this is the public name of ``tools.submit``, ``tools.ending`` and more."""

from spark_kafka_group.file_sinks import require_own_output
from spark_kafka_group.tools.ending import orderly
from spark_kafka_group.tools.submit import (
    add_sink_option,
    follow,
    options,
    parser,
    session,
    sink_options,
)

__all__ = [
    "add_sink_option",
    "follow",
    "options",
    "orderly",
    "parser",
    "require_own_output",
    "session",
    "sink_options",
]
