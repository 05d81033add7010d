"""Every form of every script compiles on every server: Lua has limits that no linter knows (60 upvalues, say)."""

import pytest

from duly import _lua
from tests.lua.harness import Wire
from tools import check_lua

FORMS = [(path.stem, kind) for path in sorted(check_lua.SCRIPTS.glob("*.lua")) for kind in check_lua.kinds_of(path)]


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_a_script_compiles(wire: Wire, form: tuple[str, _lua.Kind]) -> None:
    script = _lua.script(*form)
    assert wire.run("SCRIPT", "LOAD", script.text) == script.sha.encode()
