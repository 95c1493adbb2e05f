"""Stores that cannot be used say why, and how to make one that can; Java's rules for JAAS and names of suites hold."""

import re
import shlex
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.certificates import KEY_PASSWORD, STORE_PASSWORD, run

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.security import stores
from spark_kafka_group.options.security.tls import TLS13, openssl_name

TLS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafka.security.protocol": "SSL"}


def problem(**settings):
    with pytest.raises(OptionError) as raised:
        Options.parse(TLS | {f"kafka.ssl.{name.replace('_', '.')}": value for name, value in settings.items()})
    assert "wr0ng" not in str(raised.value)
    return str(raised.value)


def test_passwords_and_kinds_of_stores(authority, stranger, tmp_path):
    trust, keys = authority.truststore("PKCS12"), authority.path("client.p12")
    assert "needs kafka.ssl.truststore.password" in problem(truststore_location=trust)
    assert "kafka.ssl.truststore.password is wrong" in problem(truststore_location=trust, truststore_password="wr0ng")
    assert "kafka.ssl.keystore.password is wrong" in problem(keystore_location=keys, keystore_password="wr0ng")
    assert "in PKCS12 the key has the store's password" in problem(
        keystore_location=keys, keystore_password=STORE_PASSWORD, key_password="wr0ng"
    )
    assert "has no private key" in problem(keystore_location=trust, keystore_password=STORE_PASSWORD)
    encrypted = authority.encrypted("client")
    assert "needs kafka.ssl.key.password" in problem(keystore_location=encrypted)
    assert "kafka.ssl.key.password is wrong" in problem(keystore_location=encrypted, key_password="wr0ng")
    assert "is PEM, which has none" in problem(truststore_location=authority.certificate, truststore_password="wr0ng")
    assert "a private key (-----BEGIN PRIVATE KEY-----) and the chain" in problem(
        keystore_location=authority.certificate
    )
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(Path(stranger.path("client.key")).read_text() + Path(authority.path("client.crt")).read_text())
    assert "is not that of the first certificate" in problem(keystore_location=str(mixed))
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x00\x01")
    assert "none of PEM, PKCS12 and JKS" in problem(truststore_location=str(nonsense))


def test_jks_with_wrong_passwords(authority):
    trust = authority.truststore("JKS")
    assert f"{trust}) is JKS, which needs kafka.ssl.truststore.password" in problem(truststore_location=trust)
    assert "kafka.ssl.truststore.password is wrong" in problem(truststore_location=trust, truststore_password="wr0ng")
    keys = {"keystore_location": authority.jks("client", KEY_PASSWORD), "keystore_password": STORE_PASSWORD}
    wrong = "kafka.ssl.keystore.password (or kafka.ssl.key.password) is wrong"
    assert wrong in problem(**keys, key_password="wr0ng-password")
    assert "has no private key" in problem(keystore_location=trust, keystore_password=STORE_PASSWORD)
    same = {"kafka.ssl.keystore.location": authority.jks("client"), "kafka.ssl.keystore.password": STORE_PASSWORD}
    assert Options.parse(TLS | same).security.tls


def test_jks_leaves_no_file_and_no_password_behind(authority, monkeypatch, tmp_path):
    stores.as_pkcs12.cache_clear()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = []
    run_keytool = subprocess.run

    def watched(command, **more):
        (folder,) = tmp_path.iterdir()
        started.append((command, stat.S_IMODE(folder.stat().st_mode)))
        return run_keytool(command, **more)

    store = {"kafka.ssl.keystore.location": authority.jks("client", KEY_PASSWORD)}
    monkeypatch.setattr(subprocess, "run", watched)
    passwords = {"kafka.ssl.keystore.password": STORE_PASSWORD, "kafka.ssl.key.password": KEY_PASSWORD}
    assert Options.parse(TLS | store | passwords).security.tls
    assert [mode for _, mode in started] == [0o700] * 2
    assert not {STORE_PASSWORD, KEY_PASSWORD} & {word for command, _ in started for word in command}
    assert not list(tmp_path.iterdir())


def test_jks_without_a_keytool_has_the_line_that_converts_it(authority, monkeypatch):
    trust = authority.truststore("JKS")
    stores.as_pkcs12.cache_clear()
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "")
        patched.delenv("JAVA_HOME", raising=False)
        result = problem(truststore_location=trust, truststore_password=STORE_PASSWORD)
    assert "is a JKS store: Java's keytool reads it, which is neither in JAVA_HOME nor in PATH here" in result
    line = re.search(r"keytool -importkeystore.*", result)[0]
    run(*shlex.split(line), given=f"{STORE_PASSWORD}\n{STORE_PASSWORD}\n{STORE_PASSWORD}\n")
    target = shlex.split(line)[shlex.split(line).index("-destkeystore") + 1]
    more = {"kafka.ssl.truststore.location": target, "kafka.ssl.truststore.password": STORE_PASSWORD}
    assert Options.parse(TLS | more).security.tls


def test_javas_names_of_suites_are_openssls():
    lines = run("openssl", "ciphers", "-stdname", "-s", "-tls1_2", "DEFAULT:AES:-PSK:-SRP:-aNULL:-DSS").splitlines()
    names = {line.split()[0]: line.split()[2] for line in lines}
    javas = {suite for suite in names if re.search("_(AES_[0-9]+_(GCM|CBC)|CHACHA20)_", suite) and suite not in TLS13}
    assert len(javas) > 20
    assert {suite: openssl_name(suite) for suite in javas} == {suite: names[suite] for suite in javas}


JAVA = """
import java.util.*;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

public class Jaas {
    public static void main(String[] lines) {
        for (String line : lines) {
            try {
                var entries = JaasContext.loadClientContext(
                    Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(line))).configurationEntries();
                System.out.println(entries.get(0).getLoginModuleName() + new TreeMap<>(entries.get(0).getOptions()));
            } catch (RuntimeException refused) {
                System.out.println("refused");
            }
        }
    }
}
"""
CONFIGURATIONS = [
    'a.B required u="x" p="y";', "a.B required u='x' p=y;", 'a.B REQUIRED;', 'a.B optional p="a\\"b\\\\c\\td\\101\\8";',
    'a.B required p="x"', "a.B", "a.B required p;", "a.B required p=;",
    "a.B required p=12;", "a.B required p=x12.y-z_$;",
    'a.B sometimes p="x";', 'a.B required p="x"; a.C required;', 'a.B required p="x', 'a.B required // c\n p="x";',
    'a.B required /* c */ p="/*x*/";', 'a.B required p="é€";', "a.B required p=é€;", 'a.B required p = "x" ;', "", ";",
    'a.B required p="x" p="y";', "a.B required p=-x;", 'a.B required "p"="x";',
    "a.B required p=a=b;", 'a.B required p="";',
]  # fmt: skip


def test_jaas_is_read_as_kafka_reads_it(tmp_path):
    from spark_kafka_group.options.security.jaas import login_module
    from spark_kafka_group.testing import download

    def ours(text):
        try:
            module = login_module(text)
        except ValueError:
            return "refused"
        return module.name + "{" + ", ".join(f"{name}={value.text}" for name, value in module.options) + "}"

    source = tmp_path / "Jaas.java"
    source.write_text(JAVA)
    jars = f"{download.jars('kafka_2.13')}/*"
    command = [
        download.java(),
        "-Dfile.encoding=UTF-8",
        "-Dsun.jnu.encoding=UTF-8",
        "-Dstdout.encoding=UTF-8",
        "-cp",
        jars,
    ]
    env = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, str(source), *CONFIGURATIONS], capture_output=True, env=env, check=True, timeout=60
    )
    java = done.stdout.decode().splitlines()
    assert [ours(text) for text in CONFIGURATIONS] == java
