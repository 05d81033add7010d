"""The common base of sync and async deliveries."""

from typing import Generic

from duly.options import BodyT


class Delivered(Generic[BodyT]):
    """Base of Delivery and AsyncDelivery. The core recognises annotations of handlers by it."""

    __slots__ = ()
