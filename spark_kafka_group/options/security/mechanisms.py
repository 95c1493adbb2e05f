"""SASL mechanisms: each a class with all that is different about it."""

from __future__ import annotations

from spark_kafka_group.text.foreign_text import Secret

LOGIN_MODULES = "org.apache.kafka.common.security"


class Mechanism:
    """The interface of a mechanism.

    `name`: as ``kafka.sasl.mechanism`` and the protocol have it.
    `login_module`: its class in ``kafka.sasl.jaas.config``.
    `takes_password`: whether it authenticates a user by a password; else by a token.
    `takes_delegation_tokens`: whether the user may be a delegation token of Kafka's (KIP-48), and the password its
        HMAC.
    `needs_tls`: whether it is refused without encryption.
    `looks_first`: whether the broker's first message is looked at before anything is answered.
    `seen`: what an eavesdropper gets without encryption, for a warning.
    """

    name: str
    login_module: str
    takes_password = True
    takes_delegation_tokens = False
    needs_tls = False
    looks_first = False
    seen: str

    def user(self, username: str, password: Secret) -> dict[str, str]:
        """A user with a password, as kafka-python takes them."""
        return {"sasl_plain_username": username, "sasl_plain_password": password.text}


class Plain(Mechanism):
    """Sends the password."""

    name = "PLAIN"
    login_module = f"{LOGIN_MODULES}.plain.PlainLoginModule"
    seen = "can read the password"


class Scram(Mechanism):
    """Proves that the password is known (RFC 5802)."""

    login_module = f"{LOGIN_MODULES}.scram.ScramLoginModule"
    takes_delegation_tokens = True
    looks_first = True
    seen = "can look for the password that fits the exchange"

    def user(self, username: str, password: Secret) -> dict[str, str]:
        """As of :class:`Mechanism`, with the escapes of names in RFC 5802, which kafka-python leaves out."""
        return super().user(username.replace("=", "=3D").replace(",", "=2C"), password)


class Scram256(Scram):
    """With SHA-256."""

    name = "SCRAM-SHA-256"


class Scram512(Scram):
    """With SHA-512."""

    name = "SCRAM-SHA-512"


class OAuthBearer(Mechanism):
    """Sends a token."""

    name = "OAUTHBEARER"
    login_module = f"{LOGIN_MODULES}.oauthbearer.OAuthBearerLoginModule"
    takes_password = False
    seen = "can read the token, and use it"


class AwsMskIam(Mechanism):
    """Sends a request to Amazon MSK, signed with AWS credentials."""

    name = "AWS_MSK_IAM"
    login_module = "software.amazon.msk.auth.iam.IAMLoginModule"
    takes_password = False
    needs_tls = True
    seen = "can use the signed request"


class Gssapi(Mechanism):
    """Shows a Kerberos ticket."""

    name = "GSSAPI"
    login_module = "com.sun.security.auth.module.Krb5LoginModule"
    takes_password = False
    seen = "can see which principal connects"


MECHANISMS = {
    mechanism.name: mechanism for mechanism in (Plain(), Scram256(), Scram512(), OAuthBearer(), AwsMskIam(), Gssapi())
}
"""Mechanisms by their names, in the order in which errors list them."""
