"""The example for clusters runs on a cluster, and its namespaces are on all nodes."""

import os
import re
import sys
from pathlib import Path

import pytest

from duly._core.topology import slot_of
from tests import warm
from tests.scale.cluster import ClusterRig

pytestmark = pytest.mark.fault

EXAMPLE = Path(__file__).parents[2] / "examples/34_cluster.py"


def test_the_example_runs_on_a_cluster(tmp_path: Path) -> None:
    with ClusterRig(replicas=0) as rig:
        words = [sys.executable, "-W", "error", str(EXAMPLE)]
        done = warm.run(words, timeout=60, cwd=tmp_path, env={**os.environ, "DULY_URL": rig.url})
        shops = re.findall(r"^(\w+): 10 orders, 10 parcels", done.stdout, re.MULTILINE)
        nodes = {rig.owner_of(slot_of(f"{{example-{shop}}}".encode())) for shop in shops}

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(shops) == 3
    assert len(nodes) == 3
