"""Schema registries: Apicurio and srfake."""

import pytest
from support import registries
from support.certificates import Authority
from support.go_programs import NO_GO, go


@pytest.fixture(scope="session")
def apicurio():
    with registries.Apicurio() as registry:
        yield registry


@pytest.fixture(scope="session")
def srfake():
    if go() is None:
        pytest.skip(NO_GO.format("srfake"))
    with registries.Srfake() as registry:
        yield registry


@pytest.fixture(params=["apicurio", "srfake"])
def registry(request):
    """Either of the two."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """The CA of a registry that is reached by TLS, and of its clients."""
    made = Authority(tmp_path_factory.mktemp("certificates"), "ca")
    made.sign("broker", san="IP:127.0.0.1,DNS:localhost")
    made.sign("client")
    return made
