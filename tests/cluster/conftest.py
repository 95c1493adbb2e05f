"""A standalone cluster, YARN, local-cluster, and Spark Connect, all with the wheel and none with the source tree."""

import daemons
import pytest
import yarn
from deployed import SETTINGS, Deployed
from installation import Installation, build_sdist, build_wheel


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    """Built from the source tree as it is."""
    pytest.importorskip("Cython")
    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory, sdist):
    """Built from the sdist."""
    return build_wheel(tmp_path_factory.mktemp("wheel"), sdist)


@pytest.fixture(scope="session")
def installed(tmp_path_factory, wheel):
    """The software on nodes of a cluster."""
    return Installation(tmp_path_factory.mktemp("installed") / "env", wheel, "pandas")  # as [processing] has it


@pytest.fixture(scope="session")
def standalone(tmp_path_factory, installed):
    """A master and two workers."""
    cluster = daemons.Standalone(installed, tmp_path_factory.mktemp("standalone"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def on_standalone(tmp_path_factory, installed, standalone):
    """An application in client mode."""
    application = Deployed(installed, tmp_path_factory.mktemp("application"), conf=SETTINGS, master=standalone.url)
    yield application
    application.close()


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory, installed):
    """YARN with two nodes."""
    cluster = yarn.Yarn(installed, tmp_path_factory.mktemp("yarn"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def on_yarn(tmp_path_factory, installed, hadoop):
    """An application on YARN, in client mode."""
    directory = tmp_path_factory.mktemp("on-yarn")
    application = Deployed(installed, directory, conf=hadoop.settings, variables=hadoop.variables, master="yarn")
    yield application
    application.close()


@pytest.fixture(scope="session")
def on_local_cluster(tmp_path_factory, installed):
    """An application that has two workers in its own JVM, and executors as processes."""
    directory = tmp_path_factory.mktemp("local-cluster")
    application = Deployed(installed, directory, conf=SETTINGS, master="local-cluster[2,1,1024]")
    yield application
    application.close()


@pytest.fixture(scope="session")
def connect_installed(tmp_path_factory, wheel):
    """The software of a Spark Connect server and of its executors: it starts clients for foreachBatch."""
    return Installation(tmp_path_factory.mktemp("server") / "env", wheel, "pandas", "pyspark[connect]")


@pytest.fixture(scope="session")
def connect_address(tmp_path_factory, connect_installed, standalone):
    """A Spark Connect server whose executors are on the standalone cluster."""
    settings = [f"{name}={value}" for name, value in (SETTINGS | {"spark.master": standalone.url}).items()]
    server, address = daemons.connect_server(connect_installed, tmp_path_factory.mktemp("server"), *settings)
    yield address
    server.stop()


@pytest.fixture(scope="session")
def connect_client(tmp_path_factory, wheel):
    """The software on the machine of a Spark Connect client."""
    return Installation(tmp_path_factory.mktemp("client") / "env", wheel, "pyspark[connect]")


@pytest.fixture(scope="session")
def on_connect(tmp_path_factory, connect_client, connect_address):
    """An application that is a client of Spark Connect."""
    pytest.importorskip("grpc_status")
    application = Deployed(connect_client, tmp_path_factory.mktemp("remote"), conf={}, remote=connect_address)
    yield application
    application.close()
