"""A user who lacks a right is told what prints it; one with a wrong password is not sent after rights."""

import pytest

import duly
from duly.errors import ServerError
from tests.acl.conftest import NewUser

ADVICE = r"lacks a right\. What a role needs is printed by `duly acl --role producer\|consumer\|observer\|admin`"


def test_a_command_inside_a_script_that_is_refused_says_which_rights_to_look_for(
    new_user: NewUser, queue_name: str
) -> None:
    with duly.Duly(new_user("observer")) as app, pytest.raises(ServerError, match=ADVICE) as refused:
        app.queue(queue_name).send("body")

    assert f"send on queue {queue_name!r} failed" in str(refused.value)


def test_a_command_of_the_client_that_is_refused_says_it_too(new_user: NewUser) -> None:
    with duly.Duly(new_user("producer")) as app, pytest.raises(ServerError, match=ADVICE):
        app.queues()


async def test_the_async_client_says_it_too(new_user: NewUser, queue_name: str) -> None:
    async with duly.AsyncDuly(new_user("producer")) as app:
        with pytest.raises(ServerError, match=ADVICE):
            await app.queue(queue_name).stats()
        with pytest.raises(ServerError, match=ADVICE):
            await app.queues()


def test_a_wrong_password_is_no_lack_of_rights(new_user: NewUser, queue_name: str) -> None:
    url = new_user("producer").replace("@", "-wrong@")

    with duly.Duly(url) as app, pytest.raises(ServerError, match="refused the connection") as refused:
        app.queue(queue_name).send("body")

    assert "duly acl" not in str(refused.value)
