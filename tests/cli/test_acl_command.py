"""The options of `duly acl` that change the rules. tests/acl tests the effect of the rules."""

from tests.cli.conftest import Call


def test_own_keys_own_commands_and_fsync_add_rules(call: Call) -> None:
    least = call("acl", "--role", "consumer", "--server", "7.0", "--json").json["rules"]
    wide = call(
        *("acl", "--role", "consumer", "--server", "7.0", "--json", "--fsync"),
        *("--own-keys", "stock:*", "--own-command", "INCRBY"),
    ).json["rules"]

    added = set(wide) - set(least)
    assert any("stock:*" in rule for rule in added)
    assert any("incrby" in rule.lower() for rule in added)
    assert any("config" in rule.lower() for rule in added)


def test_celery_adds_the_commands_of_declarations(call: Call) -> None:
    least = call("acl", "--role", "consumer", "--server", "7.0", "--json").json["rules"]
    wide = call("acl", "--role", "consumer", "--server", "7.0", "--json", "--celery").json["rules"]

    assert {"+hkeys", "+ping"} <= set(wide) - set(least)
