"""What a message in a handler's hands is, whatever the colour of its client."""

from typing import Generic

from duly.options import BodyT


class Delivered(Generic[BodyT]):
    """Base of Delivery and AsyncDelivery: here a handler's annotation can be told for one of them."""

    __slots__ = ()
