"""Certificates and stores, made by openssl and keytool when tests need them."""

import datetime
import os
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

STORE_PASSWORD = "store-s3cret"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
KEY_PASSWORD = "key-s3cret"


def run(*command, given=None):
    """Run a tool; returns its output."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Authority:
    """A CA in a directory of its own, and the certificates that it has signed."""

    def __init__(self, directory, name):
        self.directory = Path(directory) / name
        self.directory.mkdir(parents=True)
        self.certificate, self._key = self.path("ca.pem"), self.path("ca.key")
        run("openssl", "req", "-x509", *NEW_KEY, "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-keyout", self._key, "-out", self.certificate)  # fmt: skip

    def path(self, name):
        return str(self.directory / name)

    def sign(self, name, san=None, days=2):
        """A key pair for CN=`name`: name.key, name.pem (with the key) and name.p12."""
        key, request, signed, both = (self.path(f"{name}.{kind}") for kind in ("key", "csr", "crt", "pem"))
        extension = self.path(f"{name}.ext")
        Path(extension).write_text(f"subjectAltName={san}\n" if san else "basicConstraints=CA:FALSE\n")
        run("openssl", "req", "-new", *NEW_KEY, "-nodes", "-subj", f"/O=tests/CN={name}",
            "-keyout", key, "-out", request)  # fmt: skip
        run("openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
            "-days", str(days), "-extfile", extension, "-out", signed)  # fmt: skip
        Path(both).write_text(Path(key).read_text() + Path(signed).read_text())
        run("openssl", "pkcs12", "-export", "-inkey", key, "-in", signed, "-certfile", self.certificate,
            "-name", name, "-passout", f"pass:{STORE_PASSWORD}", "-out", self.path(f"{name}.p12"))  # fmt: skip
        return both

    def sign_for(self, name, seconds):
        """A key pair for CN=`name` that expires so soon: name.pem, in place of the one that is there, in one step."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.load_pem_x509_certificate(Path(self.certificate).read_bytes()).subject
        signing = serialization.load_pem_private_key(Path(self._key).read_bytes(), None)
        now = datetime.datetime.now(datetime.UTC)
        signed = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(seconds=seconds))
            .sign(signing, hashes.SHA256())
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.path(f"{name}.pem")
        Path(f"{path}.new").write_bytes(secret + signed.public_bytes(serialization.Encoding.PEM))
        os.replace(f"{path}.new", path)
        return path

    def truststore(self, kind):
        """A store of keytool's with the CA's certificate."""
        path = self.path(f"trust.{kind.lower()}")
        if not Path(path).exists():
            run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", self.certificate, "-keystore", path,
                "-storetype", kind, "-storepass", STORE_PASSWORD)  # fmt: skip
        return path

    def jks(self, name, key_password=STORE_PASSWORD):
        """A JKS store of keytool's with a key pair, its key with this password."""
        path = self.path(f"{name}.{len(key_password)}.jks")
        if not Path(path).exists():
            run("keytool", "-importkeystore", "-noprompt", "-srckeystore", self.path(f"{name}.p12"), "-srcstorepass",
                STORE_PASSWORD, "-srcalias", name, "-destkeystore", path, "-deststoretype", "JKS", "-deststorepass",
                STORE_PASSWORD, "-destkeypass", key_password)  # fmt: skip
        return path

    def encrypted(self, name):
        """The PEM of a key pair, its key with a password."""
        key, path = self.path(f"{name}.enc.key"), self.path(f"{name}.enc.pem")
        run("openssl", "pkcs8", "-topk8", "-v2", "aes256", "-in", self.path(f"{name}.key"), "-out", key,
            "-passout", f"pass:{KEY_PASSWORD}")  # fmt: skip
        Path(path).write_text(Path(key).read_text() + Path(self.path(f"{name}.crt")).read_text())
        return path
