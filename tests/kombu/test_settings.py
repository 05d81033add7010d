"""Options of the transport, and the address of its server."""

import os
import subprocess
import sys
from pathlib import Path

import kombu
import pytest

import duly
from duly.kombu.settings import TransportOptions, server_url


@pytest.mark.parametrize(
    ("given", "server"),
    [
        ("duly+redis://h:1/2", "redis://h:1/2"),
        ("duly+rediss://u:p@h:1/2", "rediss://u:p@h:1/2"),
        ("duly+redis+sentinel://a:1,b:2/main?db=3", "redis+sentinel://a:1,b:2/main?db=3"),
        ("duly+valkeys+cluster://a:1,b:2", "valkeys+cluster://a:1,b:2"),
        ("duly+embedded:///var/lib/duly", "embedded:///var/lib/duly"),
        ("duly+unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("duly://h:1/2", "redis://h:1/2"),
    ],
)
def test_the_address_after_the_plus_is_that_of_duly(given: str, server: str) -> None:
    assert server_url(kombu.Connection(given)) == server


def test_a_url_without_the_prefix_works_with_the_transport_by_name() -> None:
    connection = kombu.Connection("rediss://h:1/2", transport="duly.kombu:Transport")

    assert server_url(connection) == "rediss://h:1/2"


def test_options_of_tls_are_those_of_kombu(tmp_path_factory: pytest.TempPathFactory) -> None:
    connection = kombu.Connection("duly+redis://h:1/2", ssl={"ssl_ca_certs": "/ca.pem", "ssl_cert_reqs": 2})

    assert server_url(connection) == "rediss://h:1/2?ssl_ca_certs=%2Fca.pem&ssl_cert_reqs=required"
    assert server_url(kombu.Connection("duly+rediss+cluster://h:1", ssl=True)) == "rediss+cluster://h:1"


def test_after_a_fail_over_the_next_url_of_the_list_is_used() -> None:
    connection = kombu.Connection("duly+redis://a:1/2;duly+rediss://u:p%40@b:3/4")
    connection.maybe_switch_next()

    assert server_url(connection) == "rediss://u:p%40@b:3/4"


@pytest.mark.parametrize(
    "url",
    [
        "duly+redis://me:secret@h:1/2",
        "duly+redis://:secret@h:1/2",
        "duly+redis+sentinel://me:secret@a:1,b:2/main?sentinel_password=secret",
        "duly://me:secret@h:1/2",
    ],
)
def test_passwords_are_masked(url: str) -> None:
    connection = kombu.Connection(url)

    assert "secret" not in connection.as_uri()
    assert "secret" not in repr(connection)
    assert "**" in connection.as_uri()
    assert "secret" in connection.as_uri(include_password=True)


def test_a_url_without_a_password_is_shown_whole() -> None:
    assert kombu.Connection("duly+redis://h:1/2").as_uri() == "duly+redis://h:1/2"


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(duly.UsageError, match=r"no option 'leese'\. Did you mean 'lease'\?"):
        TransportOptions.of({"leese": 30})
    with pytest.raises(duly.UsageError, match="must be 'server' or 'worker', not 'broker'"):
        TransportOptions.of({"eta": "broker"})


def test_options_of_the_redis_transport_are_ignored() -> None:
    given = {"visibility_timeout": 3600, "fanout_prefix": True, "socket_timeout": 5, "max_retries": 3, "lease": 5}

    assert TransportOptions.of(given) == TransportOptions(lease=5)


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(duly.UsageError, match="cannot be a broker"):
        kombu.Connection("duly+memory://").connect()


def test_an_entry_point_registers_the_transport() -> None:
    program = (
        "import kombu, kombu.serialization; c = kombu.Connection('duly+redis://h:1/2'); print(c.transport.driver_name)"
    )

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert found.stdout == "duly\n"


def test_kombu_does_not_import_duly_and_works_if_duly_is_broken(tmp_path: Path) -> None:
    (tmp_path / "duly.py").write_text("raise RuntimeError('broken')")
    program = "import sys, kombu.serialization; sys.exit('duly' in sys.modules)"

    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True)
