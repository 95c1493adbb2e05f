"""Schema registries: Apicurio and srfake."""

import pytest
from support import registries
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
