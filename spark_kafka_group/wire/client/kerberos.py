"""GSSAPI: connections are authenticated by Kerberos, through the package gssapi and the system's libkrb5.

kafka-python exchanges the tokens. This adds whose tickets they are: those of a keytab, or of a ticket cache. libkrb5
asks for tickets where the connection is made, and for new ones before they end.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.options.security import stores
from spark_kafka_group.options.security.credentials import Kerberos

CONFIG, CONFIG_FILE = "KRB5_CONFIG", "krb5.conf"
KDC_UNREACHABLE = 0x96C73A9C  # KRB5_KDC_UNREACH of libkrb5, without a sign, as gssapi has it


class Tickets:
    """Kerberos tickets of this process, for all its connections."""

    def __init__(self, source: Kerberos) -> None:
        self._source = source
        self._cache = f"MEMORY:groupkafka-{os.getpid()}-{id(self)}"

    def context(self, host: str) -> Any:
        """A context with the broker on a host, before its first token. Raises OptionError without a readable keytab."""
        import gssapi

        sent = stores.sent_along(CONFIG_FILE)
        if sent is not None:
            os.environ.setdefault(CONFIG, str(sent))
        service = gssapi.Name(self.service_of(host), name_type=gssapi.NameType.hostbased_service)
        return gssapi.SecurityContext(
            name=service.canonicalize(gssapi.MechType.kerberos), creds=self._credentials(gssapi), usage="initiate"
        )

    def service_of(self, host: str) -> str:
        """Name of the broker on a host."""
        return f"{self._source.service}@{host}"

    def explained(self, error: Any, service: str) -> BrokerError:
        """What an error of gssapi means."""
        kind = BrokerError if error.min_code == KDC_UNREACHABLE else AuthenticationError
        code, of_gssapi = (error.min_code, False) if error.min_code else (error.maj_code, True)
        why = "; ".join(error.get_all_statuses(code, of_gssapi))
        if self._source.keytab is not None:
            whose = f"principal {self._source.principal} of keytab {self._source.keytab}"
        else:
            whose = f"ticket cache {self._source.ticket_cache or os.environ.get('KRB5CCNAME', 'of this user')}"
        config = os.environ.get(CONFIG, f"/etc/{CONFIG_FILE}")
        return kind(f"Kerberos: {why}: {whose}, for {service}, by {config}")

    def _credentials(self, gssapi: Any) -> Any:
        name = None
        if self._source.principal is not None:
            name = gssapi.Name(self._source.principal, name_type=gssapi.NameType.kerberos_principal)
        if self._source.keytab is not None:
            keytab = stores.file_of("keyTab in kafka.sasl.jaas.config", self._source.keytab)
            store = {"client_keytab": str(keytab), "ccache": self._cache}
        else:
            store = {"ccache": self._source.ticket_cache} if self._source.ticket_cache is not None else {}
        return gssapi.Credentials(name=name, usage="initiate", **({"store": store} if store else {}))


@functools.cache
def tickets_of(source: Kerberos) -> Tickets:
    """The tickets that these options name."""
    return Tickets(source)


class SaslGssapi(SaslMechanismGSSAPI):  # type: ignore[misc]
    """kafka-python's mechanism, with `Tickets`."""

    def __init__(self, **config: Any) -> None:
        from gssapi.raw import GSSError

        self._tickets: Tickets = config["sasl_oauth_token_provider"]
        self._is_done = self._is_authenticated = False
        self.auth_id = self._tickets.service_of(config["host"])
        try:
            self._client_ctx = self._tickets.context(config["host"])
            self._next_token = self._client_ctx.step(None)
        except GSSError as error:
            raise self._tickets.explained(error, self.auth_id) from None

    def receive(self, auth_bytes: bytes) -> Any:
        """The broker's token; gives whether the exchange has ended."""
        from gssapi.raw import GSSError

        try:
            return super().receive(auth_bytes)
        except GSSError as error:
            raise self._tickets.explained(error, self.auth_id) from None


register_sasl_mechanism("GSSAPI", SaslGssapi, overwrite=True)
