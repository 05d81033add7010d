"""Which versions have which flaws, and which versions fix them."""

import pytest

from duly.doctor.facts import Product, product_of, read_version
from duly.doctor.flaws import FLAWS, fixed_version, flaws_of

OF_2025 = "CVE-2025-49844"
UNBLOCK = "redis#14164"


@pytest.mark.parametrize(
    ("product", "version", "name", "has_it"),
    [
        ("Redis", "6.2.19", OF_2025, True),
        ("Redis", "6.2.20", OF_2025, False),
        ("Redis", "7.0.15", OF_2025, True),  # a line that was never fixed
        ("Redis", "7.2.10", OF_2025, True),
        ("Redis", "7.2.11", OF_2025, False),
        ("Redis", "7.4.5", OF_2025, True),
        ("Redis", "7.4.6", OF_2025, False),
        ("Redis", "8.0.3", OF_2025, True),
        ("Redis", "8.0.4", OF_2025, False),
        ("Redis", "8.2.1", OF_2025, True),
        ("Redis", "8.2.2", OF_2025, False),
        ("Redis", "8.4.0", OF_2025, False),  # newer than the flaw
        ("Valkey", "7.2.10", OF_2025, True),
        ("Valkey", "7.2.11", OF_2025, False),
        ("Valkey", "8.0.5", OF_2025, True),
        ("Valkey", "8.0.6", OF_2025, False),
        ("Valkey", "8.1.3", OF_2025, True),
        ("Valkey", "8.1.4", OF_2025, False),
        ("Valkey", "9.0.0", OF_2025, False),
        ("Redis", "6.2.16", "CVE-2024-46981", True),
        ("Redis", "6.2.17", "CVE-2024-46981", False),
        ("Redis", "7.2.6", "CVE-2024-46981", True),
        ("Redis", "7.4.2", "CVE-2024-46981", False),
        ("Valkey", "8.0.1", "CVE-2024-46981", True),
        ("Valkey", "7.2.8", "CVE-2024-46981", False),
        ("Redis", "6.2.15", "CVE-2024-31449", True),
        ("Redis", "7.2.6", "CVE-2024-31449", False),
        ("Valkey", "8.0.0", "CVE-2024-31449", True),
        ("Valkey", "7.2.7", "CVE-2024-31449", False),
        ("Redis", "6.2.6", "CVE-2022-24735", True),
        ("Redis", "6.2.7", "CVE-2022-24735", False),
        ("Redis", "7.0.0", "CVE-2022-24735", False),
        ("Valkey", "7.2.0", "CVE-2022-24735", False),
        ("Redis", "6.2.20", "CVE-2026-23479", False),  # older than the flaw
        ("Redis", "7.4.8", "CVE-2026-23479", True),
        ("Redis", "8.0.6", "CVE-2026-23479", True),
        ("Redis", "8.6.3", "CVE-2026-23479", False),
        ("Valkey", "8.0.8", "CVE-2026-23479", True),  # revoked
        ("Valkey", "8.0.9", "CVE-2026-23479", False),
        ("Valkey", "9.0.3", "CVE-2026-23479", True),
        ("Valkey", "9.0.4", "CVE-2026-23479", False),
        ("Valkey", "9.1.0", "CVE-2026-23479", False),
        ("Valkey", "8.1.5", "CVE-2025-67733", True),
        ("Valkey", "8.1.6", "CVE-2025-67733", False),
        ("Valkey", "9.0.2", "CVE-2025-67733", True),
        ("Valkey", "9.0.3", "CVE-2025-67733", False),
        ("Redis", "7.4.6", "CVE-2025-67733", False),  # of Valkey
        ("Redis", "6.2.12", "CVE-2022-24834", True),
        ("Redis", "6.2.13", "CVE-2022-24834", False),
        ("Redis", "7.0.11", "CVE-2022-24834", True),
        ("Redis", "7.0.12", "CVE-2022-24834", False),
        ("Redis", "7.2.0", "CVE-2022-24834", False),
        ("Valkey", "7.2.4", "CVE-2022-24834", False),
        ("Redis", "6.2.6", "CVE-2022-24736", True),
        ("Redis", "6.2.7", "CVE-2022-24736", False),
        ("Redis", "6.2.20", UNBLOCK, True),
        ("Redis", "7.0.15", UNBLOCK, True),
        ("Redis", "7.2.14", UNBLOCK, True),
        ("Redis", "7.4.5", UNBLOCK, True),
        ("Redis", "7.4.6", UNBLOCK, False),
        ("Redis", "8.0.6", UNBLOCK, True),
        ("Redis", "8.2.0", UNBLOCK, False),
        ("Valkey", "8.1.1", UNBLOCK, True),
        ("Valkey", "8.1.2", UNBLOCK, False),
        ("Valkey", "9.0.0", UNBLOCK, False),
        ("Redis", "6.2.5", "CVE-2021-32626", True),
        ("Redis", "6.2.6", "CVE-2021-32626", False),
    ],
)
def test_a_version_has_a_flaw_or_not(product: Product, version: str, name: str, has_it: bool) -> None:
    found = [name for flaw in flaws_of(product, read_version(version)) for name in flaw.names]

    assert (name in found) == has_it


@pytest.mark.parametrize(
    ("product", "version", "fixed"),
    [
        ("Redis", "6.2.6", "7.4.9"),
        ("Redis", "7.0.15", "7.4.9"),
        ("Redis", "7.4.0", "7.4.9"),
        ("Redis", "8.0.4", "8.2.6"),
        ("Valkey", "7.2.5", "7.2.13"),
        ("Valkey", "8.0.8", "8.0.9"),
        ("Valkey", "8.1.0", "8.1.7"),
        ("Valkey", "9.0.0", "9.0.4"),
    ],
)
def test_the_nearest_version_without_flaws_is_named(product: Product, version: str, fixed: str) -> None:
    assert flaws_of(product, read_version(version))
    assert fixed_version(product, read_version(version)) == fixed
    assert not flaws_of(product, read_version(fixed))


def test_no_flaw_is_listed_twice() -> None:
    names = [name for flaw in FLAWS for name in flaw.names]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("product", ["Redis", "Valkey"])
def test_every_version_with_a_flaw_has_one_to_upgrade_to(product: Product) -> None:
    lines = {line for flaw in FLAWS for line in flaw.fixed.get(product, {})} | {(7, 0)}
    for line in lines:
        for patch in range(30):
            if flaws_of(product, (*line, patch)):
                fixed = read_version(fixed_version(product, (*line, patch)))
                assert fixed > (*line, patch)
                assert not flaws_of(product, fixed)


@pytest.mark.parametrize(
    ("info", "product"),
    [
        ({"redis_version": "7.4.9"}, ("Redis", "7.4.9")),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, ("Valkey", "9.1.2")),
        ({}, ("Redis", "0")),
    ],
    ids=["redis", "valkey", "missing"],
)
def test_a_product_is_read(info: dict[str, str], product: tuple[Product, str]) -> None:
    assert product_of(info) == product


@pytest.mark.parametrize(("text", "version"), [("7.0.15", (7, 0, 15)), ("8.2", (8, 2, 0)), ("", (0, 0, 0))])
def test_a_version_is_read(text: str, version: tuple[int, int, int]) -> None:
    assert read_version(text) == version
