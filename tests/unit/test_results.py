"""Results as they are kept: one letter and a text."""

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

from duly._core.results import packed_result, refusal_of, unpacked_result
from duly.errors import CodecError, HandlerFailed, NotFinished


@dataclasses.dataclass
class Point:
    x: int


class Model(pydantic.BaseModel):
    x: int


class Struct(msgspec.Struct):
    x: int


class Broken(pydantic.BaseModel):
    def model_dump(self, **_: Any) -> Any:
        raise KeyError("secret")


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (None, "jnull"),
        (True, "jtrue"),
        ("", 'j""'),
        ({"a": [1, "ü"]}, 'j{"a":[1,"ü"]}'),
        (b"", "b"),
        (b"\0\xff", "bAP8="),
    ],
)
def test_a_result_is_a_letter_and_a_text(value: Any, packed: str) -> None:
    assert packed_result(value, 100) == packed
    assert refusal_of(packed) is None
    assert unpacked_result(packed) == value


@pytest.mark.parametrize("value", [Point(1), Model(x=1), Struct(1)], ids=lambda value: type(value).__name__)
def test_an_object_is_packed_as_its_json(value: Any) -> None:
    assert unpacked_result(packed_result(value, 100)) == {"x": 1}


@pytest.mark.parametrize("value", [bytearray(b"raw"), memoryview(b"raw")], ids=["bytearray", "memoryview"])
def test_all_kinds_of_bytes_are_bytes(value: Any) -> None:
    assert unpacked_result(packed_result(value, 100)) == b"raw"


def test_no_result_is_none() -> None:
    assert unpacked_result("") is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "a result of type object cannot be kept"),
        (float("inf"), "JSON has no NaN and no infinity"),
        ("x" * 99, "101 bytes"),
        (b"x" * 101, "101 bytes"),
        (Broken(), "a result of type Broken cannot be kept: KeyError"),
    ],
    ids=["object", "infinity", "large", "large bytes", "a model that raises"],
)
def test_a_result_that_cannot_be_kept_has_a_reason(value: Any, why: str) -> None:
    packed = packed_result(value, 100)

    assert why in (refusal_of(packed) or "")
    assert "secret" not in packed
    with pytest.raises(CodecError, match=r"bytes|kept"):
        unpacked_result(packed)


def test_a_result_that_just_fits_is_kept() -> None:
    assert refusal_of(packed_result("x" * 98, 100)) is None
    assert refusal_of(packed_result(b"x" * 100, 100)) is None


@pytest.mark.parametrize("packed", ["j{", "b!", "bA", "z1"])
def test_an_unreadable_result_raises(packed: str) -> None:
    with pytest.raises(CodecError, match=r"damaged|unknown"):
        unpacked_result(packed)


def test_the_errors_name_the_side_that_must_act() -> None:
    assert issubclass(NotFinished, TimeoutError)
    assert HandlerFailed("text").message is None
