"""What programs for spark-submit share; this is the public name of ``tools.submit``, ``tools.ending`` and more."""

from spark_kafka_group.tools.ending import orderly
from spark_kafka_group.tools.submit import (
    add_sink_option,
    follow,
    options,
    parser,
    session,
    sink_options,
)
from spark_kafka_group.values.file_sinks import require_own_output

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
