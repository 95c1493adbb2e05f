"""A Kerberos realm with a key distribution centre of MIT's, on a free port."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.node import free_ports

REALM = "TEST.EXAMPLE"
BROKER = "kafka/127.0.0.1"


class Realm:
    """A context manager that runs the KDC; `config` is its krb5.conf."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self._port,) = free_ports(1)
        self.config = folder / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\nrdns = false\n"
            f"dns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n}}\n"
        )
        (folder / "kdc.conf").write_text(
            f'[kdcdefaults]\nkdc_ports = ""\nkdc_tcp_ports = {self._port}\n'
            f"[realms]\n{REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/acl\n}}\n"
        )
        self._env = os.environ | {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Realm:
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the KDC, and wait until it serves."""
        with (self._folder / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(["krb5kdc", "-n"], env=self._env, stdout=log, stderr=log)
        wait_until(self._serves, within=20)

    def _serves(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self._port)) == 0

    def stop(self) -> None:
        """Stop the KDC. Harmless when repeated."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def keytab(self, principal: str, *flags: str) -> str:
        """Path of the keytab of a new principal."""
        path = self._folder / f"{principal.replace('/', '-')}.keytab"
        self.run("kadmin.local", "-q", f"addprinc -randkey {' '.join(flags)} {principal}")
        self.run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return str(path)

    def ticket_cache(self, principal: str, keytab: str) -> str:
        """Path of a cache with a ticket of a principal."""
        path = self._folder / f"{principal}.cache"
        self.run("kinit", "-k", "-t", keytab, "-c", str(path), principal)
        return str(path)

    def run(self, *command: str) -> None:
        """A tool of MIT's."""
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
