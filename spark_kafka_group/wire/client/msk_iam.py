"""AWS_MSK_IAM: a connection to Amazon MSK is authenticated by a request signed with AWS credentials.

kafka-python signs it. This adds options of Java's IAMLoginModule: a profile, or a role to assume. botocore looks for
the credentials where the connection is made, and renews them.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.msk import AwsMskIamClient, SaslMechanismAwsMskIam

from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.options.security.credentials import AwsCredentials

STS_TIMEOUT_S = 5.0
"""Credentials are also asked for by the thread that sends heartbeats, which must not be away for long."""
SESSION_NAME = "groupkafka"
OF_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.")
PASSES = ("Throttling", "RequestLimitExceeded", "ServiceUnavailable", "Internal", "RequestTimeout")
"""Beginnings of error codes after which another attempt may succeed."""


class Keys:
    """AWS credentials of this process, for all its connections."""

    def __init__(self, source: AwsCredentials) -> None:
        self._source = source
        self._made: Any = None

    def frozen(self) -> Any:
        """Keys and token that are valid now. Raises AuthenticationError, or BrokerError when the lack may pass."""
        from botocore.exceptions import BotoCoreError, ClientError, PartialCredentialsError, ProfileNotFound

        try:
            if self._made is None:
                self._made = self._found()
            return self._made.get_frozen_credentials()
        except ProfileNotFound:
            raise AuthenticationError(
                f"awsProfileName in kafka.sasl.jaas.config: AWS's files have no profile {self._source.profile} here"
            ) from None
        except PartialCredentialsError as error:
            raise AuthenticationError(f"AWS credentials are not whole: {error}") from None
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "no code"))
            kind = BrokerError if code.startswith(PASSES) else AuthenticationError
            raise kind(f"role {self._source.role_arn} cannot be assumed: {code}") from None
        except BotoCoreError as error:
            raise BrokerError(f"no AWS credentials: {error}") from None

    def region_of(self, host: str) -> str:
        """The region of a broker, which is in its name; else the one that is configured. Raises AuthenticationError."""
        named = OF_HOST.search(host)
        region = named[1] if named else _region(self._source.profile)
        if not region:
            raise AuthenticationError(f"the AWS region of {host} is not known: set AWS_REGION")
        return str(region)

    def _found(self) -> Any:
        session = _session(self._source.profile)
        found = session.get_credentials()
        if found is None:
            raise AuthenticationError(
                "no AWS credentials are here: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile "
                "(awsProfileName), or give the machine a role"
            )
        if self._source.role_arn is None:
            return found
        from botocore.config import Config
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

        once = Config(connect_timeout=STS_TIMEOUT_S, read_timeout=STS_TIMEOUT_S, retries={"max_attempts": 0})
        region = self._source.sts_region or _region(self._source.profile)
        if not region:
            raise AuthenticationError("the region of AWS STS is not known: set awsStsRegion in kafka.sasl.jaas.config")
        fetcher = AssumeRoleCredentialFetcher(
            functools.partial(session.create_client, region_name=region, config=once),
            found,
            self._source.role_arn,
            extra_args={"RoleSessionName": self._source.role_session_name or SESSION_NAME},
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


@functools.cache
def keys_of(source: AwsCredentials) -> Keys:
    """The credentials that these options name."""
    return Keys(source)


class MskIam(SaslMechanismAwsMskIam):  # type: ignore[misc]
    """kafka-python's mechanism, with credentials from `Keys`."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._keys: Keys = config["sasl_oauth_token_provider"]

    def _build_client(self) -> Any:
        frozen = self._keys.frozen()  # first: it explains a profile that does not exist
        region = self._keys.region_of(self.host)
        return AwsMskIamClient(self.host, frozen.access_key, frozen.secret_key, region, frozen.token)


register_sasl_mechanism("AWS_MSK_IAM", MskIam, overwrite=True)


def _session(profile: str | None) -> Any:
    """A session of botocore's, which reads AWS's files anew."""
    from botocore.session import Session

    return Session(profile=profile)


def _region(profile: str | None) -> Any:
    """The region that is configured, if there is one."""
    return os.environ.get("AWS_REGION") or _session(profile).get_config_variable("region")
