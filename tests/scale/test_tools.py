"""The tools of operators on a cluster: they show all nodes, and the rest while one node does not answer."""

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from rich.console import Console

import duly
from duly._core.keys import RegistryKeys, ScheduleKeys
from duly._core.rates import Rates
from duly._core.topology import Away, Node
from duly.cli.stats import live_view
from duly.web import create_app
from tests import warm
from tests.conftest import need
from tests.scale.cluster import ClusterNode, ClusterRig

pytestmark = pytest.mark.fault

NAMESPACE: Final = "shop"
NO_END: Final = 600.0
"""A patience in seconds. A tool that waited for it would not return within the time limit of a test."""


@pytest.fixture(scope="module")
def rig() -> Iterator[ClusterRig]:
    need("valkey")
    with ClusterRig("valkey", replicas=0) as found:
        yield found


@pytest.fixture(scope="module")
def names(rig: ClusterRig) -> dict[ClusterNode, str]:
    """The name of a queue on each node, and of a topic with a group, and of a schedule."""
    slots = rig.primaries[0].slots
    found: dict[ClusterNode, str] = {}
    with duly.Duly(rig.url, namespace=NAMESPACE) as app:
        for length in range(1, 100):  # of names of one length, the slots of queue and topic differ by a constant
            queue, topic = app.queue("q" * length), app.topic("q" * length)
            owners = {slots.node_of(each._keys.slot) for each in (queue, topic)}
            if len(owners) == 1 and (node := owners.pop()) is not None:
                found.setdefault(rig.at(node), queue.name)
        assert len(found) == len(rig.primaries)
        for name in found.values():
            app.queue(name).send("x")
            app.topic(name).publish("x")
            app.topic(name).group("archive").receive(wait=0)
            app.schedule(name, name, "x", every=3600)
    return found


def registry_owner(rig: ClusterRig, keys: Any) -> ClusterNode:
    return rig.owner_of(keys(NAMESPACE).slot)


@contextmanager
def stopped(node: ClusterNode) -> Iterator[None]:
    """Stop a node. Connections to it open, and it does not answer."""
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


@pytest.fixture
def away(rig: ClusterRig, names: dict[ClusterNode, str]) -> Iterator[ClusterNode]:
    """A node that is stopped, and has neither the list of workers nor that of schedules."""
    rig.wait_until_whole()
    registries = {registry_owner(rig, RegistryKeys), registry_owner(rig, ScheduleKeys)}
    node = next(each for each in names if each not in registries)
    with stopped(node):
        yield node


@pytest.fixture
def lost(names: dict[ClusterNode, str], away: ClusterNode) -> str:
    return names[away]


@pytest.fixture
def others(names: dict[ClusterNode, str], lost: str) -> list[str]:
    return sorted(set(names.values()) - {lost})


@pytest.fixture
def run(rig: ClusterRig, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "duly", *arguments, "--url", rig.url, "--namespace", NAMESPACE]
        return warm.run(command, cwd=tmp_path, timeout=120)

    return run


@pytest.fixture
async def client(rig: ClusterRig) -> AsyncIterator[httpx.AsyncClient]:
    async with duly.AsyncDuly(rig.url, namespace=NAMESPACE, patience=NO_END) as app:
        site = create_app(app, tokens=None)
        transport = httpx.ASGITransport(app=site)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as found:
            yield found


async def get(client: httpx.AsyncClient, path: str) -> httpx.Response:
    return await asyncio.wait_for(client.get(path), 60)


class TestCommands:
    """The command line."""

    def test_all_nodes_are_shown(self, rig: ClusterRig, names: dict[ClusterNode, str], run: Callable[..., Any]) -> None:
        rig.wait_until_whole()
        every = sorted(names.values())
        done = run("stats", "--json")

        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout).keys() == {"queues"}
        assert [row["name"] for row in json.loads(done.stdout)["queues"]] == [
            *every,
            *(f"{name}/archive" for name in every),
        ]
        assert run("audit").returncode == 0

    def test_stats_and_lists_show_the_rest(
        self, away: ClusterNode, lost: str, others: list[str], run: Callable[..., Any]
    ) -> None:
        shown = [*others, *(f"{name}/archive" for name in others)]
        for arguments, listed in (
            (("stats", "--json"), lambda said: [row["name"] for row in said["queues"]]),
            (("queues", "--json"), lambda said: [row["name"] for row in (*said["queues"], *said["groups"])]),
            (("audit", "--json"), lambda said: [row["queue"] for row in said["audits"] if row["kind"] != "topic"]),
            (("topic", "ls", "--json"), lambda said: [f"{row['name']}" for row in said["topics"]]),
        ):
            done = run(*arguments)
            assert done.returncode == 1, done.stdout
            assert f"{away.node} does not answer" in done.stderr
            assert done.stderr.count("\n") == 1
            assert [each["node"] for each in json.loads(done.stdout)["missing"]] == [str(away.node)]
            assert listed(json.loads(done.stdout)) == (others if "topic" in arguments else shown), arguments

    def test_stats_name_the_missing_nodes(self, away: ClusterNode, run: Callable[..., Any]) -> None:
        said = json.loads(run("stats", "--json").stdout)

        assert [row["node"] for row in said["missing"]] == [str(away.node)]

    def test_watching_goes_on_with_the_rest(
        self, rig: ClusterRig, away: ClusterNode, others: list[str], tmp_path: Path
    ) -> None:
        command = [sys.executable, "-m", "duly", "stats", "--watch", "--json", "--url", rig.url]
        watching = warm.WarmPopen(
            [*command, "--namespace", NAMESPACE, "--interval", "100ms"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        try:
            assert watching.stdout is not None
            samples = [json.loads(watching.stdout.readline()) for _ in range(2)]
        finally:
            watching.terminate()
            watching.communicate(timeout=60)

        for sample in samples:
            assert [row["node"] for row in sample["missing"]] == [str(away.node)]
            assert {row["name"] for row in sample["queues"]} >= set(others)
        assert watching.returncode == 0

    def test_a_frame_names_the_missing_nodes(self) -> None:
        frame = live_view(
            {},
            Rates(),
            title="shop",
            workers=None,
            at=datetime.now(UTC),
            size=(80, 24),
            away=[Away(Node("node-2", 7001), "refused")],
        )
        console = Console(width=80, file=io.StringIO(), record=True)
        console.print(frame)

        assert "node-2:7001 does not answer (refused): its queues and topics are missing" in console.export_text()

    def test_commands_for_another_queue_work(
        self, away: ClusterNode, lost: str, others: list[str], run: Callable[..., Any]
    ) -> None:
        assert run("list", others[0]).returncode == 0
        assert run("send", others[0], "y").returncode == 0
        done = run("list", lost)
        assert done.returncode != 0
        assert f"queue '{lost}' is on a node that does not answer: {away.node}" in done.stderr


class TestDashboard:
    """Pages, HTTP API and metrics."""

    async def test_pages_show_the_rest(
        self, client: httpx.AsyncClient, away: ClusterNode, lost: str, others: list[str]
    ) -> None:
        for path in ("/", "/topics", "/schedules"):
            page = await get(client, path)
            assert page.status_code == 200, path
            assert f"{away.node} does not answer" in page.text, path
            assert all(f">{name}<" in page.text for name in others), path
            assert f">{lost}<" not in page.text, path

    async def test_a_page_on_the_node_names_it(self, client: httpx.AsyncClient, away: ClusterNode, lost: str) -> None:
        for path in (f"/queues/{lost}", f"/topics/{lost}", f"/topics/{lost}/groups/archive"):
            page = await get(client, path)
            assert page.status_code == 503, path
            assert f"this is on {away.node}, which does not answer" in page.text, path

    async def test_pages_of_other_nodes_work(
        self, client: httpx.AsyncClient, away: ClusterNode, others: list[str]
    ) -> None:
        for path in (f"/queues/{others[0]}", f"/topics/{others[0]}/groups/archive", "/workers"):
            assert (await get(client, path)).status_code == 200, (path, away)

    async def test_the_api_lists_the_rest(
        self, client: httpx.AsyncClient, away: ClusterNode, lost: str, others: list[str]
    ) -> None:
        for what in ("queues", "topics", "schedules"):
            said = (await get(client, f"/api/v1/{what}")).json()
            assert [row["name"] for row in said[what]] == others
            assert [row["node"] for row in said["missing"]] == [str(away.node)]

    async def test_a_search_names_the_node_that_was_not_asked(
        self, client: httpx.AsyncClient, away: ClusterNode, others: list[str], rig: ClusterRig
    ) -> None:
        async with duly.AsyncDuly(rig.url, namespace=NAMESPACE) as app:
            await app.queue(others[0]).send("x", id="searched", delay=3600)

        said = (await get(client, "/api/v1/search/searched")).json()
        page = await get(client, "/search?id=searched")

        assert [row["queue"] for row in said["messages"]] == [others[0]]
        assert [row["node"] for row in said["missing"]] == [str(away.node)]
        assert page.status_code == 200
        assert f"{away.node} does not answer" in page.text

    async def test_a_read_from_the_node_is_refused_at_once(
        self, client: httpx.AsyncClient, away: ClusterNode, lost: str
    ) -> None:
        for path in ("messages/x", "results/x", "explanations/x", "messages?state=ready", "pending", "history"):
            answer = await get(client, f"/api/v1/queues/{lost}/{path}")
            assert answer.status_code == 503, path
            assert f"this is on {away.node}, which does not answer" in answer.json()["detail"], path

    async def test_metrics_have_the_rest(
        self, client: httpx.AsyncClient, away: ClusterNode, lost: str, others: list[str]
    ) -> None:
        text = (await get(client, "/metrics")).text

        assert "duly_up 1.0" in text
        assert f'duly_node_away{{node="{away.node}"}} 1.0' in text
        assert all(f'duly_messages{{queue="{name}",state="ready"}}' in text for name in others)
        assert f'queue="{lost}"' not in text

    async def test_all_nodes_are_shown(
        self, rig: ClusterRig, names: dict[ClusterNode, str], client: httpx.AsyncClient
    ) -> None:
        rig.wait_until_whole()
        said = (await get(client, "/api/v1/queues")).json()

        assert sorted(row["name"] for row in said["queues"]) == sorted(names.values())
        assert "missing" not in said
        assert "duly_node_away{" not in (await get(client, "/metrics")).text


class TestRegistry:
    """The list of workers is on a node that does not answer."""

    @pytest.fixture
    def away(self, rig: ClusterRig, names: dict[ClusterNode, str]) -> Iterator[ClusterNode]:
        rig.wait_until_whole()
        node = registry_owner(rig, RegistryKeys)
        with stopped(node):
            yield node

    async def test_the_overview_is_shown_without_workers(self, client: httpx.AsyncClient, away: ClusterNode) -> None:
        page = await get(client, "/")
        assert page.status_code == 200
        assert f"{away.node} does not answer" in page.text
        assert (await get(client, "/healthz")).status_code == 200
        workers = await get(client, "/workers")
        assert workers.status_code == 503
        assert str(away.node) in workers.text

    async def test_a_worker_goes_on(self, rig: ClusterRig, away: ClusterNode, others: list[str]) -> None:
        handled = asyncio.Queue[str]()
        async with duly.AsyncDuly(rig.url, namespace=NAMESPACE, patience=NO_END) as app:

            @app.queue(others[0]).handler
            async def handle(body: str) -> None:
                handled.put_nowait(body)

            async with duly.Worker(app):
                await app.queue(others[0]).send("beats are left out")
                while await asyncio.wait_for(handled.get(), 60) != "beats are left out":
                    pass


class TestNames:
    """Scans of all nodes."""

    def test_nodes_are_scanned_again_after_a_slot_has_moved(
        self, rig: ClusterRig, names: dict[ClusterNode, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The queue is not on the new node when that is scanned, and not on the old one when that is."""
        rig.wait_until_whole()
        with duly.Duly(rig.url, namespace=NAMESPACE) as app:
            assert app.queues() == sorted(names.values())
            router = app._link.connections.router
            first, *_, last = router.parts()
            name = names[rig.at(last.node)]
            slot = app.queue(name)._keys.slot
            asked: list[Any] = []
            carry = app._link._with_retry

            def with_retry(part: Any, title: str, ask: Any) -> Any:
                found = carry(part, title, ask)
                asked.append(part)
                if len(asked) == 1:  # the first node was scanned: the queue moves there
                    rig.migrate(slot, rig.at(first.node))
                return found

            monkeypatch.setattr(app._link, "_with_retry", with_retry)
            try:
                assert name in app.queues()
                assert len(asked) > len(rig.primaries)
            finally:
                monkeypatch.undo()
                rig.migrate(slot, rig.at(last.node))
