"""The options of `duly acl` that change the rights; what the rights allow is tried in tests/acl."""

from tests.cli.conftest import Call


def test_keys_and_commands_of_your_own_and_fsync_widen_the_rights(call: Call) -> None:
    least = call("acl", "--role", "consumer", "--server", "7.0", "--json").json["rules"]
    wide = call(
        *("acl", "--role", "consumer", "--server", "7.0", "--json", "--fsync"),
        *("--own-keys", "stock:*", "--own-command", "INCRBY"),
    ).json["rules"]

    added = set(wide) - set(least)
    assert any("stock:*" in rule for rule in added)
    assert any("incrby" in rule.lower() for rule in added)
    assert any("config" in rule.lower() for rule in added)
