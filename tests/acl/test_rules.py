"""The rules of a role: keys and commands for each server, and that the server accepts them."""

import pytest
import redis

import duly
from duly.acl import ROLES, Knowledge, ask, every_command, known_of, rules, setuser
from duly.errors import UsageError
from tests.acl.conftest import NewUser
from tests.acl.users import SECRET, give_rights, known_by, url_as
from tests.binaries import Kind
from tests.conftest import StartedServer

every_role = pytest.mark.parametrize("role", ROLES)


@every_role
def test_all_commands_are_revoked_before_some_are_granted(role: str) -> None:
    found = rules(role, "7.0", "shop")

    assert found[:5] == ["resetkeys", "~shop:{*}:*", "resetchannels", "clearselectors", "-@all"]
    assert all(rule.startswith("+") and "@" not in rule for rule in found[5:])
    assert found[5:] == sorted(set(found[5:]))
    assert set(found) - set(rules(role, "6.2", "shop")) == {"clearselectors"}  # older servers have no selectors


def test_the_line_has_a_placeholder_for_the_password() -> None:
    line = setuser("duly-producer", rules("producer", "7.0"))

    assert line.startswith(
        "ACL SETUSER duly-producer on >PASSWORD resetkeys ~duly:{*}:* resetchannels clearselectors -@all +"
    )


@pytest.mark.parametrize(
    ("version", "knows"),
    [("6.2", False), ("redis-7.0.15", False), ("7.2", True), ("redis 8.0", True), ("valkey-9.1", True)],
)
def test_commands_that_a_version_lacks_are_left_out(version: str, knows: bool) -> None:
    assert ("+waitaof" in rules("producer", version)) == knows


@pytest.mark.parametrize("version", ["", "seven", "valkey-", "7", "redis-7.0; +@all"])
def test_an_invalid_version_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="not a version of a server"):
        rules("producer", version)


def test_a_server_without_a_required_command_is_refused() -> None:
    there = every_command() - {"zmscore"}

    with pytest.raises(UsageError, match="does not have zmscore"):
        rules("producer", Knowledge("Redis", (6, 0), there))


def test_own_keys_are_granted_to_roles_that_commit() -> None:
    plain, all_of_them = rules("consumer", "7.0"), rules("consumer", "7.0", own_keys=["stock:*", "total"])
    one = rules("consumer", "7.0", own_keys=["stock:*"], own_commands=["DecrBy"])

    assert all_of_them[1:4] == ["~duly:{*}:*", "~stock:*", "~total"]
    assert {"+incr", "+pfadd", "+sadd"} <= set(all_of_them) - set(plain)
    assert set(one) - set(plain) == {"~stock:*", "+decrby"}


@pytest.mark.parametrize("pattern", ["stock:*", "d", "duly:stock:*", "duly2", "shop:{orders}:*"])
def test_own_keys_may_resemble_those_of_duly(pattern: str) -> None:
    assert f"~{pattern}" in rules("consumer", "7.0", own_keys=[pattern])


@pytest.mark.parametrize(
    ("role", "options", "why"),
    [
        ("producer", {"own_keys": ["stock:*"]}, "only a commit"),
        ("consumer", {"own_keys": ["*"]}, "would match all keys"),
        ("consumer", {"own_keys": ["?*"]}, "would match all keys"),
        ("consumer", {"own_keys": ["[^x]*"]}, "would match all keys"),
        ("consumer", {"own_keys": [""]}, "would match all keys"),
        ("consumer", {"own_keys": ["d*"]}, "would match keys of Duly"),
        ("consumer", {"own_keys": ["duly:{orders}:msgs"]}, "would match keys of Duly"),
        ("consumer", {"own_keys": ["shop*"], "namespace": "shop"}, "would match keys of Duly"),
        ("consumer", {"own_keys": ["a +@all"]}, "cannot be a pattern"),
        ("consumer", {"own_commands": ["INCR"]}, "own commands need own keys"),
        ("consumer", {"own_keys": ["a"], "own_commands": ["FLUSHALL"]}, "cannot use FLUSHALL"),
        ("observer", {"fsync": True}, "only for roles that send"),
        ("owner", {}, "is not a role"),
        ("producer", {"namespace": "a*"}, "is not a namespace name"),
    ],
)
def test_meaningless_or_too_wide_options_are_refused(role: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        rules(role, "7.0", **options)  # type: ignore[arg-type]


def test_a_user_name_cannot_smuggle_rules_in() -> None:
    with pytest.raises(UsageError, match="cannot be a user name"):
        setuser("me +@all", [])


def test_config_get_is_only_granted_on_request() -> None:
    assert all("+config|get" not in rules(role, "7.2") for role in ROLES)
    assert "+config|get" in rules("producer", "7.2", fsync=True)


def test_a_server_reports_the_same_commands_as_its_version(server: StartedServer, kind: Kind) -> None:
    with duly.Duly(server(kind).url) as app, redis.Redis.from_url(server(kind).url) as client:
        asked = ask(app, every_command())
        assert asked.commands is not None
        for role in ROLES:
            assert rules(role, asked) == rules(role, known_by(client))


def test_the_version_decides_if_the_server_refuses_to_list_commands(new_user: NewUser, root: "redis.Redis") -> None:
    with duly.Duly(new_user("admin")) as app:
        assert ask(app, every_command()) == known_by(root)


def test_memory_has_no_users() -> None:
    with duly.Duly("memory://") as app, pytest.raises(UsageError, match="has no users"):
        ask(app, every_command())


def effective(root: "redis.Redis", listed: str) -> set[str]:
    """Return the commands of a user. Older servers write rules as categories with exceptions."""
    found: set[str] = set()
    for word in listed.split():
        if word[0] in "+-" and word != "-@all":
            named = root.acl_cat(word[2:]) if word[1] == "@" else [word[1:]]
            names = {name.decode() if isinstance(name, bytes) else name for name in named}
            parts = {each for each in found if each.partition("|")[0] in names}
            found = found | names if word[0] == "+" else found - names - parts
    return found


@every_role
def test_a_user_has_the_commands_of_its_role_and_no_others(role: str, new_user: NewUser, root: "redis.Redis") -> None:
    user = new_user(role).partition("://")[2].partition(":")[0]

    lines = [line.decode() if isinstance(line, bytes) else line for line in root.acl_list()]
    listed = next(line for line in lines if line.split()[1] == user)

    assert [word for word in listed.split() if word[0] in "~%&"] == ["~duly:{*}:*"]
    assert effective(root, listed) == {rule[1:] for rule in rules(role, known_by(root)) if rule.startswith("+")}


@pytest.mark.parametrize("kind", ["valkey", "redis7"], indirect=True)
def test_a_user_with_more_permissions_is_reduced_to_its_role(
    root: "redis.Redis", server: StartedServer, kind: Kind, queue_name: str
) -> None:
    more = ("on", "nopass", "~*", "&*", "+@all", "(+@all ~*)")
    root.execute_command("ACL", "SETUSER", queue_name, *more)  # type: ignore[no-untyped-call]
    give_rights(root, queue_name, "observer")

    with redis.Redis.from_url(url_as(server(kind).url, queue_name)) as client:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.dbsize()
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.get("others")
    with (
        redis.Redis.from_url(url_as(server(kind).url, queue_name).replace(SECRET, "any")) as stranger,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        stranger.info()
    root.acl_deluser(queue_name)


def test_info_distinguishes_redis_and_valkey() -> None:
    assert known_of({"redis_version": "7.2.4", "valkey_version": "9.1.2"}) == Knowledge("Valkey", (9, 1))
    assert known_of({"redis_version": "6.2.14"}).title == "Redis 6.2"
