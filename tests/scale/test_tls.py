"""Sentinel and Cluster with TLS on every connection: of clients, replicas, sentinels and the cluster itself."""

from pathlib import Path
from typing import Final

import pytest

import duly
from duly.errors import Unavailable
from tests.conftest import need
from tests.scale.cluster import ClusterRig
from tests.scale.sentinels import SentinelRig
from tests.wire.certificates import Authority

pytestmark = [pytest.mark.fault, pytest.mark.long]

KIND: Final = "redis7"
"""The only server here that is built with TLS."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    need(KIND)
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def settings(authority: Authority) -> dict[str, str]:
    certificate = authority.sign("DNS:localhost,IP:127.0.0.1")
    return {
        "tls-cert-file": str(certificate.file),
        "tls-key-file": str(certificate.key),
        "tls-ca-cert-file": str(authority.file),
        "tls-auth-clients": "no",
        "tls-replication": "yes",
    }


def secured(url: str, authority_file: Path) -> str:
    return f"{url.replace('redis+', 'rediss+')}?ssl_ca_certs={authority_file}"


def test_a_cluster(authority: Authority, settings: dict[str, str], queue_name: str) -> None:
    with (
        ClusterRig(KIND, config={**settings, "tls-cluster": "yes"}) as rig,
        duly.Duly(secured(rig.url, authority.file)) as app,
    ):
        for number in range(10):
            app.queue(f"{queue_name}-{number}").send(number)
        replica = rig.replicas_of(rig.primaries[0])[0]
        rig.fail_over(replica)
        for number in range(10):
            (delivery,) = app.queue(f"{queue_name}-{number}").receive(1, wait=20)
            assert delivery.body == number


def test_a_sentinel_service(authority: Authority, settings: dict[str, str], queue_name: str) -> None:
    with SentinelRig(KIND, config=settings) as rig, duly.Duly(secured(rig.url, authority.file)) as app:
        queue = app.queue(queue_name)
        queue.send("x")
        rig.primary.kill9()
        (delivery,) = queue.receive(1, wait=60)
        assert delivery.body == "x"


def test_a_cluster_is_not_reached_without_tls(settings: dict[str, str], queue_name: str) -> None:
    with (
        ClusterRig(KIND, replicas=0, config={**settings, "tls-cluster": "yes"}) as rig,
        duly.Duly(rig.url, patience=0.5) as app,
        pytest.raises(Unavailable),
    ):
        app.queue(queue_name).send("x")
