"""redis-py is optional: Duly runs without it, and takes the address of clients of its versions 5 to 8."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartedServer
from tests.packaging.place import ROOT, Place
from tests.servers import Server
from tests.wire.certificates import Authority, OpensslMissing
from tests.wire.relay import TlsRelay

pytestmark = pytest.mark.slow

VERSIONS = ("5.0.*", "5.2.*", "6.4.*", "7.*", "8.*")
SECRET = "open-sesame"

WITHOUT = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "redis":
            raise ImportError("redis-py is blocked")

sys.meta_path.insert(0, Blocker())
import duly, duly.worker, duly.acl, duly.doctor, duly.testing
assert "redis" not in sys.modules
"""

BOTH_WAYS = """
import asyncio, sys
import duly

def sync(url):
    with duly.Duly(url) as app:
        queue = app.queue("plain")
        queue.send({"order": 1}, delay=0.01)
        [d] = queue.receive(wait=20)
        d.ack()
        return d.body

async def asynchronous(url):
    async with duly.AsyncDuly(url) as app:
        queue = app.queue("plain-async")
        await queue.send({"order": 2}, delay=0.01)
        [d] = await queue.receive(wait=20)
        await d.ack()
        return d.body

print(sync(sys.argv[1]), asyncio.run(asynchronous(sys.argv[1])), "redis" in sys.modules)
"""

WITH_CLIENTS = """
import asyncio, sys
import redis, redis.asyncio
import duly

port, path, tls_port, authority, secret = sys.argv[1:]
name = f"clients-{redis.__version__}"

class Provider(redis.CredentialProvider):
    def get_credentials(self):
        return "anna", secret

host = {"host": "127.0.0.1", "port": int(port)}
tls = {"host": "127.0.0.1", "port": int(tls_port), "ssl": True, "password": secret}
kinds = [
    {**host, "password": secret, "db": 1, "client_name": "shop"},
    {**host, "username": "anna", "password": secret},
    {**host, "credential_provider": Provider()},
    {"unix_socket_path": path, "password": secret},
    {**tls, "ssl_ca_certs": authority},
    {**tls, "ssl_cert_reqs": "none"},
    {**tls, "ssl_cert_reqs": None},
]

async def asynchronous(options):
    client = redis.asyncio.Redis(**options)
    async with duly.AsyncDuly(client) as app:
        queue = app.queue(name)
        sent = await queue.send(1)
        [d] = await queue.receive(wait=20)
        await d.ack()
        assert d.id == sent
    await client.aclose()

for options in kinds:
    with redis.Redis(**options) as client, duly.Duly(client) as app:
        queue = app.queue(name)
        sent = queue.send(1)
        [d] = queue.receive(wait=20)
        d.ack()
        assert d.id == sent
    asyncio.run(asynchronous(options))

urls = [f"redis://anna:{secret}@127.0.0.1:{port}/2", f"rediss://:{secret}@127.0.0.1:{tls_port}?ssl_ca_certs={authority}"]
for url in urls:
    with redis.Redis.from_url(url) as client, duly.Duly(client) as app:
        assert app.queue(f"{name}-by-url").send(1)

from redis.sentinel import Sentinel
with duly.Duly(Sentinel([("127.0.0.1", 1)]).master_for("primary")) as app:
    assert "redis+sentinel://127.0.0.1:1/primary" in repr(app)
print(redis.__version__)
"""


def test_nothing_imports_redis_py() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_messages_are_sent_and_received_on_a_server_without_redis_py(plain: Place, server: StartedServer) -> None:
    assert plain.run("python", "-c", "import redis").returncode == 1  # void otherwise
    done = plain.run("python", "-W", "error", "-c", BOTH_WAYS, server("valkey").url)
    assert (done.stdout, done.stderr) == ("{'order': 1} {'order': 2} False\n", "")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Give the places of a server with users, and with a door for TLS: port, socket, port with TLS, authority."""
    try:
        authority = Authority(tmp_path_factory.mktemp("certificates"))
    except OpensslMissing:
        pytest.skip("the openssl program is missing")
    users = {"requirepass": SECRET, "user": f"anna on >{SECRET} ~* &* +@all"}
    context = authority.server_context(authority.sign("IP:127.0.0.1"))
    with Server("valkey", users) as server, TlsRelay(server.port, context) as relay:
        yield [str(server.port), str(server.socket), str(relay.port), str(authority.file), SECRET]


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_of_each_version_gives_its_address_and_credentials(
    plain: Place, guarded: list[str], version: str, tmp_path: Path
) -> None:
    command = ["install", "--quiet", "--target", str(tmp_path), "--no-deps", f"redis=={version}"]
    if sys.version_info < (3, 11, 3):
        command.append("async-timeout")
    installed = subprocess.run(
        [sys.executable, "-m", "pip", *command], capture_output=True, text=True, timeout=110, check=False
    )
    assert installed.returncode == 0, installed.stderr

    done = plain.run("python", "-c", WITH_CLIENTS, *guarded, PYTHONPATH=str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(version.partition(".")[0])


@pytest.mark.long
@pytest.mark.parametrize("neighbour", ["celery[redis]==5.5.*", "celery[redis]==5.6.*", "arq", "saq", "repid[redis]"])
def test_one_environment_can_have_duly_and_another_queue(neighbour: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", str(ROOT), neighbour],
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_wires_work_with_the_lowest_hiredis_that_is_allowed(tmp_path: Path) -> None:
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (lowest,) = [line.replace(">=", "==") for line in requirements if line.startswith("hiredis")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), lowest]
    subprocess.run(pip, capture_output=True, timeout=110, check=True)

    tests = ["tests/wire/test_replies.py", "tests/wire/test_login.py", "tests/unit/test_packing.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
