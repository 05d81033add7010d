"""Every form of every script compiles on every server: Lua has limits that no linter knows, for example 60 upvalues."""

from duly import _lua
from tests.lua.harness import Wire
from tools import check_lua

FORMS = [(path.stem, kind) for path in sorted(check_lua.SCRIPTS.glob("*.lua")) for kind in check_lua.kinds_of(path)]


def test_every_script_compiles(wire: Wire) -> None:
    replies = {form: wire.run("SCRIPT", "LOAD", _lua.script(*form).text) for form in FORMS}

    assert replies == {form: _lua.script(*form).sha.encode() for form in FORMS}
