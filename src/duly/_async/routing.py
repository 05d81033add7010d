"""Which pool serves a call: that of the only server, of the primary that sentinels name, or of a node of a cluster."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from duly._async.pool import AsyncPool, NotPrimary
from duly._async.sentinels import AsyncSentinels
from duly._async.slots import AsyncSlots
from duly._core import outages
from duly._core.address import Address
from duly._core.topology import Node, Part, Placed, SlotMap, read_redirection

_LOG: Final = logging.getLogger("duly")

MakePool = Callable[[Node | None], AsyncPool]
"""Makes a pool of a node. None: of the only server, or of no server yet."""


class AsyncRoute(NamedTuple):
    """Where to send the next try of a call."""

    pool: AsyncPool
    is_asking: bool
    """Whether the node serves the slot for this try only, because the slot is moving there."""


class AsyncRouter(Protocol):
    """Chooses the pool of each try of a call."""

    @property
    def pools(self) -> Sequence[AsyncPool]:
        """All pools that may have connections."""

    async def pool_for(self, keys: Placed | None) -> AsyncPool:
        """Return the pool of the node that serves these keys. It may be one that raises why there is no such node."""

    async def parts(self) -> Sequence[Part | None]:
        """Return what to ask in turn in order to reach all keys: parts of a cluster, or None for the only server."""

    def layout(self) -> SlotMap | None:
        """Return which node serves which slots, as far as is known. None: there is one node at a time."""

    async def has_moved_since(self, layout: SlotMap | None) -> bool:
        """Return whether a slot has moved since that layout, by asking a node."""

    async def all_pools(self) -> Sequence[AsyncPool]:
        """Return the pools of all nodes that together have all keys."""

    def node_of(self, keys: Placed) -> Node | None:
        """Return the node that serves these keys, as far as is known. None for all: there is one at a time."""

    def redirected(self, pool: AsyncPool, error: Exception) -> AsyncRoute | None:
        """Return where an error reply sends the call. None: it does not redirect the call."""

    def doubt(self, pool: AsyncPool, error: Exception | None) -> None:
        """Check which node serves before the next try, since a call to this pool failed."""

    def announcer_of(self, pool: AsyncPool) -> Node | None:
        """Return the node that announces the node of a pool, if the address of the app does not name it."""

    async def aclose(self) -> None:
        """Close the connections that are not in a pool."""

    def abandon(self) -> None:
        """Drop the connections that are not in a pool, from any thread."""


class _AsyncOnePool:
    """One node at a time has all keys."""

    def __init__(self, make_pool: MakePool) -> None:
        self._make_pool = make_pool
        self._pool: AsyncPool = make_pool(None)

    @property
    def pools(self) -> Sequence[AsyncPool]:
        return [self._pool]

    def node_of(self, keys: Placed) -> Node | None:  # noqa: ARG002
        return None

    async def parts(self) -> Sequence[Part | None]:
        return [None]

    def layout(self) -> SlotMap | None:
        return None

    async def has_moved_since(self, layout: SlotMap | None) -> bool:  # noqa: ARG002
        return False

    def redirected(self, pool: AsyncPool, error: Exception) -> AsyncRoute | None:  # noqa: ARG002
        return None

    def announcer_of(self, pool: AsyncPool) -> Node | None:  # noqa: ARG002
        return None


class AsyncOneServer(_AsyncOnePool):
    """Every call goes to the same server."""

    async def pool_for(self, keys: Placed | None) -> AsyncPool:  # noqa: ARG002
        return self._pool

    async def all_pools(self) -> Sequence[AsyncPool]:
        return [self._pool]

    def doubt(self, pool: AsyncPool, error: Exception | None) -> None:
        pass

    async def aclose(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class AsyncSentinelRouter(_AsyncOnePool):
    """Every call goes to the primary, which sentinels name."""

    def __init__(self, address: Address, make_pool: MakePool) -> None:
        super().__init__(make_pool)
        self._address = address
        self._sentinels = AsyncSentinels(address)
        self._switching = threading.Lock()

    async def pool_for(self, keys: Placed | None) -> AsyncPool:  # noqa: ARG002
        node = await self._sentinels.primary()
        if node is None:
            self._pool.retire(ConnectionError(f"no sentinel names the primary: {self._sentinels.silence}"))
        elif node != self._pool.node:
            self._switch(node)
        return self._pool

    async def all_pools(self) -> Sequence[AsyncPool]:
        return [await self.pool_for(None)]

    def _switch(self, node: Node) -> None:
        """Use another primary. Blocked calls are aborted, so that their callers claim there."""
        with self._switching:
            if node == self._pool.node:  # another thread was faster
                return
            old, self._pool = self._pool, self._make_pool(node)
        if old.node is not None:
            _LOG.warning("%s: the primary is %s now, and was %s", self._address.shown, node, old.node)
            self._pool.outage = old.outage  # the outage of the service ends with the first answer
            old.retire(ConnectionError(f"{old.node} is no longer the primary"))

    def doubt(self, pool: AsyncPool, error: Exception | None) -> None:
        if pool.node is None:
            return
        self._sentinels.doubt(pool.node)
        if isinstance(error, NotPrimary) and error.primary is not None:
            self._sentinels.learn(error.primary)

    async def aclose(self) -> None:
        await self._sentinels.aclose()

    def abandon(self) -> None:
        self._sentinels.abandon()


class AsyncClusterRouter:
    """Each call goes to the node that serves the slot of its keys. There is a pool for each node."""

    def __init__(self, address: Address, make_pool: MakePool) -> None:
        self._address = address
        self._make_pool = make_pool
        self._slots = AsyncSlots(address)
        self._pools: dict[Node, AsyncPool] = {}
        self._map = self._slots.known
        """The map by which pools were dropped last."""

    @property
    def pools(self) -> Sequence[AsyncPool]:
        return list(self._pools.values())

    async def pool_for(self, keys: Placed | None) -> AsyncPool:
        slot = 0 if keys is None else keys.slot
        node = await self._slots.node_of(slot)
        if self._map is not self._slots.known:
            self._drop_demoted()
        return self._no_pool(f"no node serves slot {slot}") if node is None else self._pool_at(node)

    async def all_pools(self) -> Sequence[AsyncPool]:
        nodes = await self._slots.primaries()
        pools = [self._pool_at(node) for node in nodes]
        if gaps := self._slots.known.gaps:  # keys of these slots exist, but cannot be found
            pools.append(self._no_pool(f"no node serves {gaps} of the slots"))
        return pools

    async def parts(self) -> Sequence[Part | None]:
        await self._slots.primaries()
        return self._slots.known.parts

    def layout(self) -> SlotMap | None:
        return self._slots.known.copy()

    async def has_moved_since(self, layout: SlotMap | None) -> bool:
        now = await self._slots.read_again()
        return layout is not None and not now.is_like(layout)

    def node_of(self, keys: Placed) -> Node | None:
        return self._slots.known.node_of(keys.slot)

    def redirected(self, pool: AsyncPool, error: Exception) -> AsyncRoute | None:
        if pool.node is None or (found := read_redirection(str(error), pool.node.host)) is None:
            return None
        if found.node is None:
            self._slots.doubt(pool.node)
            return AsyncRoute(pool, is_asking=False)
        if found.kind == "moved":
            self._slots.moved(found.slot, found.node)
        return AsyncRoute(self._pool_at(found.node), is_asking=found.kind == "ask")

    def doubt(self, pool: AsyncPool, error: Exception | None) -> None:  # noqa: ARG002
        if pool.node is not None:
            self._slots.doubt(pool.node)

    async def aclose(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def announcer_of(self, pool: AsyncPool) -> Node | None:
        return None if pool.node is None or pool.node in self._address.seeds else self._slots.shown_by

    def _pool_at(self, node: Node) -> AsyncPool:
        pool = self._pools.get(node)
        return self._pools.setdefault(node, self._make_pool(node)) if pool is None else pool

    def _no_pool(self, why: str) -> AsyncPool:
        """Return a pool that raises why there is no node."""
        pool = self._make_pool(None)
        silence = self._slots.silence
        pool.retire(ConnectionError(why) if silence is None else silence)
        return pool

    def _drop_demoted(self) -> None:
        """Abort the connections to nodes that serve no slot any more: a node that hangs would not end blocked calls.

        A node that takes over its first slot may have a pool before the map names it. So only nodes of the last map
        are dropped.
        """
        before, self._map = self._map, self._slots.known
        for node in set(before.primaries).difference(self._map.primaries):
            pool = self._pools.pop(node, None)
            if pool is not None:
                _LOG.warning("%s: %s serves no slots any more", self._address.shown, node)
                self._end_outage(pool, self._map.successors(before, node))
                pool.retire(ConnectionError(f"{node} serves no slots any more"))

    def _end_outage(self, pool: AsyncPool, successors: Iterable[Node]) -> None:
        """End an outage with the node. Leases may have run out, so they are renewed before claims at its successors."""
        outages.end(pool.service)
        now = time.monotonic()
        for node in successors:
            self._pool_at(node).outage.succeed(pool.outage, now)
