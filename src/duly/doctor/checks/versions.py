"""Which server it is."""

from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.flaws import flaws_of, mended_version
from duly.doctor.product import Product, Version, product_of, read_version
from duly.doctor.report import Finding
from duly.doctor.subject import Subject

VERSION: Final = Subject(
    "version", "The scripts use commands that older servers do not have: an app refuses such a server."
)
FLAWS: Final = Subject(
    "known-flaws",
    "Every client of a queue may run scripts and block, which is how these flaws of the server are reached.",
)
_OLDEST: Final[dict[Product, Version]] = {"Redis": (6, 2, 0), "Valkey": (7, 2, 0)}


def version(facts: Facts) -> Finding:
    """Look whether the server is new enough."""
    info = facts.info
    if isinstance(info, Missing):
        return VERSION.unknown(facts, info)
    product, text = product_of(info)
    oldest = _OLDEST[product]
    if read_version(text) >= oldest:
        return VERSION.ok(f"{product} {text}")
    needed = ".".join(map(str, oldest[:2]))
    return VERSION.bad(
        f"{product} {text}, and {needed} is needed",
        f"# upgrade the server to {product} {needed} or later; pip install 'duly[embedded]' brings one along",
    )


def known_flaws(facts: Facts) -> Finding:
    """Look whether the version is one with flaws that scripts or blocked clients can reach."""
    info = facts.info
    if isinstance(info, Missing):
        return FLAWS.unknown(facts, info)
    product, text = product_of(info)
    found = flaws_of(product, read_version(text))
    if not found:
        return FLAWS.ok("none known of this version")
    named = "; ".join(f"{', '.join(flaw.names)}: {flaw.what}" for flaw in found)
    return FLAWS.warn(
        f"{product} {text} has {named}",
        f"# upgrade to {product} {mended_version(product, read_version(text))} or later, best the newest of its line. "
        "A distribution may have mended it without another number: see its changelog",
    )
