"""Which places tokens may come from, as Kafka 4 has its system property for it.

An option may come from another person: it should not make each node send secrets in the clear, or hand
the files of its disk to brokers.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from spark_kafka_group.errors import OptionError

VARIABLE = "SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS"


def check(url: str) -> None:
    """Refuse a URL that is not https, unless the environment of this process allows it.

    Raises
    ------
    OptionError
        Without the URL, which may have a secret in it.
    """
    scheme = urlsplit(url).scheme
    if scheme == "https" or url in {allowed.strip() for allowed in os.environ.get(VARIABLE, "").split(",")}:
        return
    why = "a file" if scheme == "file" else "http, by which the client's secret and the token go unencrypted"
    raise OptionError(
        f"kafka.sasl.oauthbearer.token.endpoint.url is {why}: "
        f"{'' if scheme == 'file' else 'take https, or '}name this URL in the environment variable {VARIABLE} "
        f"(comma-separated), on the driver and on the executors (spark.executorEnv.{VARIABLE})"
    )
