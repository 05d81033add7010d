"""Queues on any topology: one server, Sentinel or a cluster, with commits over several queues.

On a cluster each queue is in one slot, and one call changes one slot. A namespace in braces keeps all of its queues in
one slot, so that a commit may send to several of them. Other namespaces are in other slots, and so on other nodes.

    DULY_URL=redis+cluster://node-1:7000,node-2:7001,node-3:7002 python examples/34_cluster.py
"""

import os

import duly

URL = os.environ.get("DULY_URL", "memory://")
SHOPS = ("lima", "paris", "berlin")


def pack(app: duly.Duly, order: duly.Delivery) -> None:
    """Finish an order, send its parcel and reduce the stock, in one atomic step."""
    stock = f"{app.namespace}:stock:tea"  # begins with the braces of the namespace: the same slot
    order.commit(send=[(app.queue("parcels"), {"order": order.body})], redis=[("INCRBY", stock, -1)])


def main() -> None:
    for city in SHOPS:
        with duly.Duly(URL, namespace=f"{{example-{city}}}") as shop:
            orders, parcels = shop.queue("orders"), shop.queue("parcels")
            orders.send_many(range(10))
            packed = 0
            while packed < 10:
                for order in orders.receive(10, wait=30):
                    pack(shop, order)
                    packed += 1

            assert (orders.stats().acked, parcels.stats().ready) == (10, 10)
            print(f"{city}: {packed} orders, {parcels.stats().ready} parcels, in the queues {shop.queues()}")
            orders.delete()
            parcels.delete()


main()
