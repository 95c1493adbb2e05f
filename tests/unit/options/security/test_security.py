"""Security options: a contradiction is an error before any network call, and no error has a secret in it."""

import contextlib
import pickle
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.security import Secret
from spark_kafka_group.options.security.credentials import ClientCredentials, UnsecuredToken, credentials
from spark_kafka_group.options.security.jaas import login_module
from spark_kafka_group.wire.client.security_configs import security_configs

HUSH = "hush-7f3a"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{HUSH}";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required{};"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required {};"
SERVICE = {"sasl.kerberos.service.name": "kafka"}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": f"https://idp/token?{HUSH}"}
SASL = {"security.protocol": "SASL_PLAINTEXT"}


def parse(**settings):
    return Options.parse(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"} | {f"kafka.{k}": v for k, v in settings.items()}
    )


def plain(**more):
    return SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN} | more


def gssapi(options, **more):
    return SASL | {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": KERBEROS.format(options)} | more


def oauth(options="", **more):
    return SASL | {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH.format(options)} | more


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, r"kafka.security.protocol \(TLS\) must be one of PLAINTEXT, SSL, SASL_"),
        ({"sasl.jaas.config": PLAIN}, "kafka.sasl.jaas.config needs kafka.security.protocol SASL_PLAINTEXT or "),
        ({"ssl.truststore.location": "/t"}, "kafka.ssl.truststore.location needs kafka.security.protocol SSL or SASL_"),
        (plain() | {"ssl.truststore.location": "/t"}, "it is SASL_PLAINTEXT, so nothing would be encrypted"),
        (SASL, "kafka.sasl.mechanism is missing, which SASL_PLAINTEXT needs: one of PLAIN, SCRAM-SHA-256"),
        (SASL | {"sasl.mechanism": "PLAIN"}, "kafka.sasl.jaas.config is missing, which PLAIN needs: org.*Plain"),
        (plain(**{"sasl.mechanism": "NTLM"}), "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_"),
        (SASL | {"sasl.mechanism": "GSSAPI"}, "kafka.sasl.jaas.config is missing, which GSSAPI needs: com.sun"),
        (gssapi("useTicketCache=true"), "kafka.sasl.kerberos.service.name is missing, which GSSAPI needs"),
        (gssapi("storeKey=true", **SERVICE), "needs useKeyTab=true with keyTab and principal, or useTicketCache=true"),
        (gssapi("useKeyTab=true principal=me", **SERVICE), 'has useKeyTab=true, which needs keyTab="..."'),
        (gssapi("useKeyTab=yes", **SERVICE), "must have useKeyTab=true or useKeyTab=false"),
        (
            gssapi('useKeyTab=true keyTab="/no/such" principal=me', **SERVICE),
            r"keyTab in kafka.sasl.jaas.config \(/no/such\) cannot be read: No such file",
        ),
        (plain(**SERVICE), "kafka.sasl.kerberos.service.name is for GSSAPI, and kafka.sasl.mechanism is PLAIN"),
        (plain(**{"sasl.mechanism": "AWS_MSK_IAM"}), "names PlainLoginModule: it is for PLAIN; kafka.sasl.mechanism"),
        (plain(**{"sasl.jaas.config": SCRAM}), "names ScramLoginModule: it is for SCRAM-SHA-256 and SCRAM-SHA-512; "),
        (plain(**{"sasl.jaas.config": PLAIN.replace("username", "name")}), "has the name at character 66, which "),
        (plain(**{"sasl.jaas.config": PLAIN.replace("username", "scope")}), "has scope, which would have no effect"),
        (plain(**{"sasl.jaas.config": f"{HUSH}.plain required;"}), "begins with another class; kafka.sasl.mechanism"),
        (plain(**{"sasl.jaas.config": PLAIN.replace('username="u"', "")}), r'has no username="..." in Plain'),
        (plain(**{"sasl.jaas.config": PLAIN.replace(";", ' tokenauth="true";')}), "tokenauth, which would have no"),
        (
            plain(**{"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM.replace(";", ' tokenauth="yes";')}),
            'must have tokenauth="true" or tokenauth="false"',
        ),
        (plain(**{"sasl.jaas.config": PLAIN[:-1]}), "must have name=value or the final semicolon at its end"),
        (plain(**{"sasl.jaas.config": PLAIN * 2}), "must have one login module"),
        (plain(**ENDPOINT), "token.endpoint.url is for OAUTHBEARER, and kafka.sasl.mechanism is PLAIN: remove it"),
        (oauth(), "OAUTHBEARER needs one of kafka.sasl.oauthbearer.token.endpoint.url, "),
        (oauth(**ENDPOINT), "needs kafka.sasl.oauthbearer.client.credentials.client.id, or clientId in "),
        (oauth(' clientId="c"', **ENDPOINT), "client.credentials.client.secret, or clientSecret in"),
        (oauth(f' clientId="c" clientSecret="{HUSH}"'), "OAUTHBEARER needs one of"),
        (
            oauth(' clientId="c"', **ENDPOINT, **{"sasl.oauthbearer.client.credentials.client.id": "d"}),
            "is given twice: also as clientId in kafka.sasl.jaas.config",
        ),
        (oauth(**{"sasl.oauthbearer.token.endpoint.url": f"ftp://{HUSH}"}), "endpoint.url must be a URL with "),
        (oauth(**{"sasl.oauthbearer.token.endpoint.url": f"https://me:{HUSH}@idp/"}), "no user and password before"),
        (oauth(**{"sasl.oauthbearer.token.endpoint.url": f"https://idp:{HUSH}/token"}), "with a valid host and port"),
        (oauth(**{"sasl.oauthbearer.token.endpoint.url": f"https://[{HUSH}/token"}), "with a valid host and port"),
        (oauth(**{"sasl.oauthbearer.token.endpoint.url": f"https://idp/a {HUSH}"}), "ASCII characters without spaces"),
        (oauth(**{"sasl.oauthbearer.token.endpoint.url": f"https://:443/{HUSH}"}), "a URL with a host"),
        ({"proxy.url": f"https://u:{HUSH}@h:1"}, "kafka.proxy.url must be a URL with socks5, socks5h or http"),
        ({"proxy.url": f"http://u:{HUSH}@h"}, "kafka.proxy.url must be scheme://host:port or scheme://user:password@"),
        ({"proxy.url": f"http://u:/{HUSH}@h:1"}, "kafka.proxy.url must be scheme://host:port or scheme://user:password@"),
        ({"proxy.url": f"http://u:{HUSH}/x@h:1"}, "with a valid host and port"),
        ({"proxy.url": f"http://{HUSH}@h:1"}, "must have both user and password before the @, or neither"),
        (oauth(**{"sasl.login.callback.handler.class": "com.acme.Handler"}), "is a Java class: name module:Class of"),
        (oauth(**{"sasl.login.callback.handler.class": "collections:Counter"}), "token is missing"),
        (oauth(' unsecuredLoginStringClaim_name="u"'), r'has no unsecuredLoginStringClaim_sub="..."'),
        (SERVICE, "kafka.sasl.kerberos.service.name needs kafka.security.protocol SASL_PLAINTEXT or SASL_SSL"),
        ({"sasl.kerberos.kinit.cmd": "kinit"}, "libkrb5 renews tickets by itself"),
        ({"ssl.provider": "BC"}, "kafka.ssl.provider is not supported: it names a part of Java's TLS"),
        ({"security.protocol": "SSL", "ssl.keystore.password": HUSH}, "password needs kafka.ssl.keystore.location"),
        ({"security.protocol": "SSL", "ssl.key.password": HUSH}, "needs kafka.ssl.keystore.location or kafka.ssl."),
        ({"security.protocol": "SSL", "ssl.keystore.key": HUSH}, "needs kafka.ssl.keystore.certificate.chain"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "none"}, "has no certificates in PEM"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/file"}, r"/no/file\) cannot be read: No such"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/t", "ssl.truststore.certificates": "x"},
            "are both given: one of them",
        ),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "must be of TLSv1.2, TLSv1.3"),
        (
            {"security.protocol": "SSL", "ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"},
            r"kafka.ssl.protocol \(TLSv1.2\) is older than all",
        ),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "cannot choose among TLS 1.3's"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "aNULL"}, "aNULL is none of Java's suites"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "LDAPS"}, "must be https, or empty"),
    ],
)  # fmt: skip
def test_contradictions_are_errors_without_secrets(settings, message):
    with pytest.raises(OptionError, match=message) as raised:
        parse(**settings)
    assert HUSH not in str(raised.value)


PIECES = ('"', "'", "=", " ", ";", ",", "\\", "//", "/*", "\n", "8", "-", ".", "Hush", "hush=", "required", "password")


@given(
    module=st.sampled_from([PLAIN, SCRAM, OAUTH.format(f' clientId="c" clientSecret="{HUSH}"')]),
    mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]),
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=8),
    endpoint=st.booleans(),
)
@example(PLAIN, "PLAIN", ["Hu", '"', "Hush", "9"], False)
@example(PLAIN, "PLAIN", ["Hu", '"', "Hush", '"', "=", '"', "Hush"], False)
def test_no_part_of_a_password_that_is_badly_quoted_is_shown(module, mechanism, pieces, endpoint):
    secret = "Hush".join(["", *pieces, ""])
    for jaas in (module.replace(HUSH, secret), module.replace(f'"{HUSH}"', secret), secret, f"{secret} {module}"):
        more = ENDPOINT if endpoint else {}
        with contextlib.suppress(OptionError):
            parse(**SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas} | more)
            continue
        with pytest.raises(OptionError) as raised:
            parse(**SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas} | more)
        assert "hush" not in str(raised.value).lower(), jaas


PEM = f"-----BEGIN PRIVATE KEY-----\n{HUSH}\n-----END PRIVATE KEY-----\n"
BASE64 = "MIGHAgEAMBMGByqGSM49" + "A1b/" * 40 + "=="


@pytest.mark.parametrize("name", ["ssl.keystore.location", "ssl.truststore.location"])
@pytest.mark.parametrize(
    "value", [PEM, PEM.replace("\n", ""), PEM.replace("\n", "\\n"), HUSH * 100, f"/a\0{HUSH}", BASE64]
)
def test_a_key_where_a_path_should_be_is_not_shown(name, value):
    with pytest.raises(OptionError, match=f"^kafka.{name} must be the path of a file. Give PEM itself") as raised:
        parse(**{"security.protocol": "SSL", name: value})
    assert HUSH not in str(raised.value)
    assert "MIGH" not in str(raised.value)
    assert raised.value.__context__ is None or HUSH not in str(raised.value.__context__)


@pytest.mark.parametrize(
    "name", ["kafka.ssl.keystore.type", "kafka.request.timeout.ms", "eventLog", "kafka.check.crcs"]
)
@pytest.mark.parametrize("value", [PEM + "x" * 300, BASE64])
def test_a_key_in_any_option_is_not_shown(name, value):
    with pytest.raises(OptionError, match=f"^{name} must be") as raised:
        Options.parse({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", name: value})
    assert HUSH not in str(raised.value)
    assert "MIGH" not in str(raised.value)


ALLOWED = "SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS"
CLIENT = f' clientId="c" clientSecret="{HUSH}"'


@pytest.mark.parametrize("allowed", [None, "", "http://idp/token", f"http://idp/token?{HUSH}/more,file:///{HUSH}/"])
@pytest.mark.parametrize("url", [f"http://idp/token?{HUSH}", f"file:///{HUSH}/token"])
def test_tokens_come_from_https_or_from_where_it_is_allowed(monkeypatch, allowed, url):
    given = oauth("" if url.startswith("file") else CLIENT, **{"sasl.oauthbearer.token.endpoint.url": url})
    if allowed is None:
        monkeypatch.delenv(ALLOWED, raising=False)
    else:
        monkeypatch.setenv(ALLOWED, allowed)
    with pytest.raises(
        OptionError, match=rf"name this URL in the environment variable {ALLOWED} .*spark.executorEnv"
    ) as e:
        parse(**given)
    assert HUSH not in str(e.value)
    monkeypatch.setenv(ALLOWED, f"{allowed or ''} , {url} ,")
    options = parse(**given)
    monkeypatch.delenv(ALLOWED)
    with pytest.raises(OptionError, match=ALLOWED):  # as on an executor whose environment lacks it
        security_configs(options.security)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "soon"])
def test_numbers_of_unsecured_tokens_are_numbers(number):
    for name in ("unsecuredLoginLifetimeSeconds", "unsecuredLoginNumberClaim_n"):
        with pytest.raises(OptionError, match="must have a number for"):
            parse(**oauth(f' unsecuredLoginStringClaim_sub="u" {name}="{number}"'))


@pytest.mark.parametrize(
    ("password", "message"),
    [
        ('"hu"sh9"', "must have = and a value after the name at character 92 .*; values are in double quotes, with "),
        (
            "hush def",
            r"must have = and a value after the name at character 93 \(at character 96\); values are in double",
        ),
        (
            '"hu"sh="ef"',
            "has the name at character 92, which would have no effect: PlainLoginModule takes password, user",
        ),
        ('"hush', r"must have a value after password and = \(at character 88\); values are in double quotes"),
        ("9hush", r"must have a value after password and = \(at character 88\); values are in double quotes"),
    ],
)
def test_the_error_for_a_badly_quoted_password_gives_its_place(password, message):
    with pytest.raises(OptionError, match=message) as raised:
        parse(**plain(**{"sasl.jaas.config": PLAIN.replace(f'"{HUSH}"', password)}))
    assert not {"hu", "sh", "def", "ef"} & set(re.findall(r"\w+", str(raised.value)))


def test_secrets_show_nothing_and_cross_to_executors():
    options = parse(**plain(**{"proxy.url": f"http://u:{HUSH}@h:1"}))
    crossed = pickle.loads(pickle.dumps(options))
    assert crossed == options
    assert hash(crossed) == hash(options)
    assert credentials(crossed.security).password == Secret(HUSH)
    for shown in (repr(options), str(options.security), f"{vars(crossed)}", repr(credentials(options.security))):
        assert HUSH not in shown


def test_javas_words_for_oauth():
    words = oauth(' clientId="c" clientSecret="s" scope="r" extension_logicalCluster="lkc"', **ENDPOINT)
    package = "org.apache.kafka.common.security.oauthbearer"
    java = {"sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler"}
    for each in (words, words | java):
        assert credentials(parse(**each).security) == ClientCredentials(
            f"https://idp/token?{HUSH}", "c", Secret("s"), "r", (("logicalCluster", "lkc"),)
        )
    claims = ' unsecuredLoginStringClaim_sub="u" unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="9"'
    assert credentials(parse(**oauth(claims)).security) == UnsecuredToken((("sub", "u"), ("scope", ("a", "b"))), 9.0)


def test_comments_quotes_and_flags_of_jaas():
    module = login_module('a.B Required // one\n x=\'a"b\' /* two\n */ y=word_1 z="\\"\\\\\\t\\101" ;')
    assert (module.name, [(name, value.text) for name, value in module.options]) == (
        "a.B", [("x", 'a"b'), ("y", "word_1"), ("z", '"\\\tA')],
    )  # fmt: skip
