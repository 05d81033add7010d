"""The rules of a role: what they open, for which server, and that the server takes them."""

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
def test_all_commands_are_taken_away_before_some_are_given(role: str) -> None:
    found = rules(role, "7.0", "shop")

    assert found[:5] == ["resetkeys", "~shop:{*}:*", "resetchannels", "clearselectors", "-@all"]
    assert all(rule.startswith("+") and "@" not in rule for rule in found[5:])
    assert found[5:] == sorted(set(found[5:]))
    assert set(found) - set(rules(role, "6.2", "shop")) == {"clearselectors"}  # older servers have none to clear


def test_the_line_has_a_place_for_the_password_and_makes_up_none() -> None:
    line = setuser("duly-producer", rules("producer", "7.0"))

    assert line.startswith(
        "ACL SETUSER duly-producer on >PASSWORD resetkeys ~duly:{*}:* resetchannels clearselectors -@all +"
    )


@pytest.mark.parametrize(
    ("version", "knows"),
    [("6.2", False), ("redis-7.0.15", False), ("7.2", True), ("redis 8.0", True), ("valkey-9.1", True)],
)
def test_what_a_version_does_not_know_is_left_out(version: str, knows: bool) -> None:
    assert ("+waitaof" in rules("producer", version)) == knows


@pytest.mark.parametrize("version", ["", "seven", "valkey-", "7", "redis-7.0; +@all"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="no version of a server"):
        rules("producer", version)


def test_a_server_that_lacks_what_duly_needs_is_refused() -> None:
    there = every_command() - {"zmscore"}

    with pytest.raises(UsageError, match="does not know zmscore"):
        rules("producer", Knowledge("Redis", (6, 0), there))


def test_keys_of_the_user_are_opened_for_those_who_commit() -> None:
    plain, all_of_them = rules("consumer", "7.0"), rules("consumer", "7.0", own_keys=["stock:*", "total"])
    one = rules("consumer", "7.0", own_keys=["stock:*"], own_commands=["DecrBy"])

    assert all_of_them[1:4] == ["~duly:{*}:*", "~stock:*", "~total"]
    assert {"+incr", "+pfadd", "+sadd"} <= set(all_of_them) - set(plain)
    assert set(one) - set(plain) == {"~stock:*", "+decrby"}


@pytest.mark.parametrize("pattern", ["stock:*", "d", "duly:stock:*", "duly2", "shop:{orders}:*"])
def test_keys_of_the_user_may_look_like_those_of_duly(pattern: str) -> None:
    assert f"~{pattern}" in rules("consumer", "7.0", own_keys=[pattern])


@pytest.mark.parametrize(
    ("role", "options", "why"),
    [
        ("producer", {"own_keys": ["stock:*"]}, "only a commit"),
        ("consumer", {"own_keys": ["*"]}, "would open all keys"),
        ("consumer", {"own_keys": ["?*"]}, "would open all keys"),
        ("consumer", {"own_keys": ["[^x]*"]}, "would open all keys"),
        ("consumer", {"own_keys": [""]}, "would open all keys"),
        ("consumer", {"own_keys": ["d*"]}, "would open keys of Duly"),
        ("consumer", {"own_keys": ["duly:{orders}:msgs"]}, "would open keys of Duly"),
        ("consumer", {"own_keys": ["shop*"], "namespace": "shop"}, "would open keys of Duly"),
        ("consumer", {"own_keys": ["a +@all"]}, "no pattern"),
        ("consumer", {"own_commands": ["INCR"]}, "need keys of your own"),
        ("consumer", {"own_keys": ["a"], "own_commands": ["FLUSHALL"]}, "cannot use FLUSHALL"),
        ("observer", {"fsync": True}, "no meaning here"),
        ("owner", {}, "is no role"),
        ("producer", {"namespace": "a*"}, "is not a namespace name"),
    ],
)
def test_what_makes_no_sense_or_opens_too_much_is_refused(role: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        rules(role, "7.0", **options)  # type: ignore[arg-type]


def test_a_user_name_cannot_smuggle_rules_in() -> None:
    with pytest.raises(UsageError, match="no user name"):
        setuser("me +@all", [])


def test_config_get_is_only_given_to_those_who_ask_for_it() -> None:
    assert all("+config|get" not in rules(role, "7.2") for role in ROLES)
    assert "+config|get" in rules("producer", "7.2", fsync=True)


def test_a_server_that_is_asked_says_the_same_as_its_version(server: StartedServer, kind: Kind) -> None:
    with duly.Duly(server(kind).url) as app, redis.Redis.from_url(server(kind).url) as client:
        asked = ask(app, every_command())
        assert asked.commands is not None
        for role in ROLES:
            assert rules(role, asked) == rules(role, known_by(client))


def test_a_server_that_does_not_tell_is_judged_by_its_version(new_user: NewUser, root: "redis.Redis") -> None:
    with duly.Duly(new_user("admin")) as app:
        assert ask(app, every_command()) == known_by(root)


def test_memory_has_no_users() -> None:
    with duly.Duly("memory://") as app, pytest.raises(UsageError, match="has no users"):
        ask(app, every_command())


def effective(root: "redis.Redis", listed: str) -> set[str]:
    """Name the commands that a user has. Older servers write rules as categories, and what is taken off them."""
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
def test_a_user_who_had_more_is_left_with_the_rights_of_its_role(
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


def test_info_tells_redis_from_valkey() -> None:
    assert known_of({"redis_version": "7.2.4", "valkey_version": "9.1.2"}) == Knowledge("Valkey", (9, 1))
    assert known_of({"redis_version": "6.2.14"}).title == "Redis 6.2"
