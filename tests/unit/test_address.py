"""Addresses of sentinels and clusters. Those of one server are tested with the client."""

from typing import Any

import pytest

from duly._core import address
from duly._core.topology import Node
from duly.errors import UsageError

SECRET = "s3cr3t"
HERE = __file__
"""A file that can be read, for options that name one."""

H1, H2 = Node("h1", 26379), Node("h2", 26380)


@pytest.mark.parametrize(
    ("scheme", "kind", "topology"),
    [
        ("redis+sentinel", "tcp", "sentinel"),
        ("valkey+sentinel", "tcp", "sentinel"),
        ("rediss+sentinel", "tls", "sentinel"),
        ("valkeys+sentinel", "tls", "sentinel"),
        ("redis+cluster", "tcp", "cluster"),
        ("valkey+cluster", "tcp", "cluster"),
        ("rediss+cluster", "tls", "cluster"),
        ("valkeys+cluster", "tls", "cluster"),
    ],
)
def test_the_scheme_names_transport_and_topology(scheme: str, kind: str, topology: str) -> None:
    path = "/mymaster" if topology == "sentinel" else ""
    found = address.parse(f"{scheme.upper()}://h1:26379,h2:26380{path}")

    assert (found.kind, found.topology) == (kind, topology)
    assert found.seeds == (H1, H2)
    assert found.shown == f"{scheme}://h1:26379,h2:26380{path}"


@pytest.mark.parametrize(
    ("hosts", "seeds"),
    [
        ("h1", [("h1", 26379)]),
        ("", [("localhost", 26379)]),
        ("h1,h2:1", [("h1", 26379), ("h2", 1)]),
        ("h1:,h2", [("h1", 26379), ("h2", 26379)]),
        ("H1.Example:1,h1.example:1", [("h1.example", 1)]),
        ("[::1]:1,[fe80:0::2]", [("::1", 1), ("fe80::2", 26379)]),
        ("h1:1,[::1]:2", [("h1", 1), ("::1", 2)]),
        ("[fe80::1%25eth0]", [("fe80::1%eth0", 26379)]),
        ("redis_1:1,10.0.0.1:65535", [("redis_1", 1), ("10.0.0.1", 65535)]),
        ("r\u00e9dis.example", [("r\u00e9dis.example", 26379)]),
    ],
)
@pytest.mark.parametrize("user", ["", "ann:pa@"], ids=["", "user"])
def test_hosts_are_split_at_commas(hosts: str, seeds: list[tuple[str, int]], user: str) -> None:
    assert address.parse(f"redis+sentinel://{user}{hosts}/mymaster").seeds == tuple(Node(*seed) for seed in seeds)


def test_nodes_of_a_cluster_have_the_usual_port() -> None:
    assert address.parse("redis+cluster://h1,[::1]").seeds == (Node("h1", 6379), Node("::1", 6379))


def test_sentinels_and_nodes_have_their_own_users() -> None:
    found = address.parse(
        f"redis+sentinel://ann:[p%40,%2C%3Aa+b@h1,h2/my%6daster?db=3&client_name=c"
        f"&sentinel_username=bob&sentinel_password=q%26%40+{SECRET}"
    )

    assert found.service == "mymaster"
    assert found.options == {"username": "ann", "password": "[p@,,:a+b", "db": 3, "client_name": "c"}
    assert found.sentinel_options == {"username": "bob", "password": f"q&@+{SECRET}"}
    assert found.shown == "redis+sentinel://h1:26379,h2:26379/mymaster?db=3"
    assert SECRET not in repr(found)
    assert "ann" not in repr(found)


def test_options_of_tls_are_for_nodes_and_sentinels() -> None:
    tls = f"ssl_ca_certs={HERE}&ssl_certfile={HERE}&ssl_keyfile={HERE}&ssl_cert_reqs=optional&ssl_check_hostname=no"
    expected = {
        "ssl_ca_certs": HERE, "ssl_certfile": HERE, "ssl_keyfile": HERE, "ssl_cert_reqs": "optional",
        "ssl_check_hostname": False,
    }  # fmt: skip

    of_sentinels = address.parse(f"rediss+sentinel://:pa@h1/mymaster?{tls}")
    of_cluster = address.parse(f"valkeys+cluster://h1?{tls}")

    assert of_sentinels.options == {"password": "pa", **expected}
    assert of_sentinels.sentinel_options == expected
    assert of_cluster.options == expected


@pytest.mark.parametrize("rest", ["", "/", "/0", "?db=0", "/0?db=0"])
def test_a_cluster_has_database_0(rest: str) -> None:
    found = address.parse(f"redis+cluster://ann:pa@h1:7000,h2:7001{rest}")

    assert found.options == {"username": "ann", "password": "pa"}
    assert (found.service, found.sentinel_options) == ("", {})
    assert found.shown == "redis+cluster://h1:7000,h2:7001"


WRONG: list[tuple[str, str]] = [
    ("redis+cluster://h1/1", "a cluster has database 0 only"),
    ("redis+cluster://h1?db=1", "a cluster has database 0 only"),
    ("redis+cluster://h1/mymaster", "a cluster has database 0 only, and no service name"),
    ("redis+cluster://h1?sentinel_password=x", r"\?sentinel_password= is for sentinels: use redis\+sentinel://"),
    ("redis://h1?sentinel_username=x", r"\?sentinel_username= is for sentinels: use redis\+sentinel://"),
    ("redis://h1:1,h2:2", r"several hosts: use redis\+cluster://.* or redis\+sentinel://"),
    ("rediss://h1,h2/0", "several hosts"),
    ("redis+sentinel://h1,h2", r"lacks the name .* as in redis\+sentinel://host1,host2/mymaster"),
    ("redis+sentinel://h1/", "lacks the name"),
    ("redis+sentinel://h1/mymaster/0", r"second slash .* give the database as \?db=0"),
    ("redis+sentinel://h1/my%0Amaster", "name of the service has a character"),
    ("redis+sentinel://h1/m\ud800", "name of the service has a character"),
    ("redis+sentinel://h1/m?db=x", r"\?db= must be a number"),
    ("redis+sentinel://h1/m?what=1", r"\?what= is not known .* sentinel_username, sentinel_password"),
    ("redis+sentinel://h1/m?sentinel_password=a&b", r"in a password, write & as %26\) is not known"),
    ("redis+sentinel://h1/m?ssl_cert_reqs=none", r"is for TLS: use rediss\+sentinel:// or valkeys\+sentinel://"),
    ("redis+cluster://h1?ssl_cert_reqs=none", r"is for TLS: use rediss\+cluster:// or valkeys\+cluster://"),
    ("rediss+cluster://h1?ssl_ca_certs=/no/ca.pem", r"\?ssl_ca_certs=/no/ca\.pem cannot be read"),
    (f"rediss+cluster://h1?ssl_keyfile={HERE}", "pass ssl_certfile= as well"),
    ("redis+cluster://h1,,h2", "no host name"),
    ("redis+cluster://h1,", "no host name"),
    ("redis+cluster://:7000", "no host name"),
    ("redis+cluster://h1:0", "port must be a number from 1 to 65535"),
    ("redis+cluster://h1:65536", "port must be a number from 1 to 65535"),
    ("redis+cluster://h1:7000,h2:port", "port must be a number"),
    (f"redis+cluster://h1:{'9' * 5000}", "port must be a number"),
    ("redis+cluster://h1:\u0661", "port must be a number"),
    ("redis+cluster://::1", r"redis://\[::1\]:6379/0"),
    ("redis+cluster://h1,fe80::1:7000", r"redis://\[::1\]:6379/0"),
    ("redis+cluster://[::1", r"redis://\[::1\]:6379/0"),
    ("redis+cluster://[::1]x", r"redis://\[::1\]:6379/0"),
    ("redis+cluster://[localhost]", r"redis://\[::1\]:6379/0"),
    ("redis+cluster://h1:1:2", r"redis://\[::1\]:6379/0"),
    ("redis+cluster://h\u2100st", "the host name has a character"),
    ("redis+cluster://h1, h2", "the host name has a character"),
    ("redis+cluster://h1..svc", "each part of the host name.*1 to 63 characters"),
    ("redis+sentinel://:pa/ss@h1/m", "a / before an @.*/ as %2F"),
    ("redis+sentinel://:pa?ss@h1/m", r"a \? before an @.*\? as %3F"),
    ("redis+sentinel://:pa#ss@h1/m", "a # before an @.*# as %23"),
    ("redis+sentinel://h1/m#x", "begins with #"),
    ("redis+sentinel://:p\ud800@h1/m", "not valid Unicode"),
    ("redis+sentinel://h1/m?sentinel_password=\ud800", "not valid Unicode"),
    ("redis+other://h1", "is not known"),
]


@pytest.mark.parametrize(("url", "says"), WRONG, ids=[ascii(url)[:60] for url, _ in WRONG])
def test_a_wrong_address_is_explained(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        address.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        f"redis+sentinel://user:{SECRET}@h1:port/m",
        f"redis+sentinel://user:{SECRET}@h1,[::1/m",
        f"redis+sentinel://user:{SECRET}@h\u2100st/m",
        f"redis+sentinel://user:{SECRET}@h1",
        f"redis+sentinel://user:{SECRET}",
        f"redis+sentinel://user:a,{SECRET}",
        f"redis+sentinel://user:a/{SECRET}@h1/m",
        f"redis+sentinel://user:a#{SECRET}@h1/m",
        f"redis+sentinel://user:a?{SECRET}@h1/m",
        f"redis+sentinel://user:a?{SECRET}=1@h1/m",
        f"redis+sentinel://h1/m?db=x&sentinel_password={SECRET}",
        f"redis+sentinel://h1/m?sentinel_password={SECRET}&what=1",
        f"redis+sentinel://h1?sentinel_password={SECRET}",
        f"redis+sentinel://h1/m?sentinel_password=a#{SECRET}",
        f"redis+sentinel://h1/m?sentinel_password=a&{SECRET}",
        f"redis+cluster://h1?sentinel_password={SECRET}",
        f"redis+cluster://user:{SECRET}@h1/7",
        f"redis://user:{SECRET}@h1,h2",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        address.parse(url)

    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


def test_a_plus_in_a_query_is_a_plus(tmp_path: Any) -> None:
    file = tmp_path / "c++ a.pem"
    file.touch()
    found = address.parse(f"rediss://h?ssl_ca_certs={str(file).replace(' ', '%20')}")
    assert found.options["ssl_ca_certs"] == str(file)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("redis+sentinel://h1,h2/s", "redis+sentinel://h2,h1/s", True),
        ("redis+cluster://h1,h2", "redis+cluster://h2,h1", True),
        ("redis+sentinel://h1,h2/s", "redis+sentinel://h1,h2/t", False),
        ("redis://h1/0", "redis://h1/0", True),
        ("redis://h1/0", "redis://h1/1", False),
        ("redis://h1/0", "redis://h2/0", False),
    ],
)
def test_the_order_of_hosts_makes_no_other_server(one: str, other: str, is_same: bool) -> None:
    assert address.parse(one).reaches_the_same_as(address.parse(other)) is is_same
