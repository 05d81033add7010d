"""Schedules: list, create or replace, run, pause, resume and remove them."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from duly._port import run_schedule
from duly.web.api import requests, responses
from duly.web.api.operation import ApiCall, Operation
from duly.web.names import NotFound
from duly.web.pagination import page_of


async def _list(call: ApiCall) -> responses.SchedulesShown:
    page = page_of(await call.site.snapshots.schedules(), attrgetter("name"), call.query.limit, call.query.after)
    shown = [responses.schedule_response(each, with_payload=call.sees_payloads) for each in page.items]
    away = (await call.site.names.survey()).away
    return responses.SchedulesShown(shown, page.next, responses.missing_nodes(away))


async def _put(call: ApiCall) -> responses.Scheduled:
    given: requests.ScheduleOf = call.body
    is_new = await call.site.app.schedule(
        call.path_param("name"),
        given.queue,
        given.to_duly(),
        cron=given.cron,
        every=given.every,
        tz=given.tz,
        catch_up=given.catch_up,
    )
    return responses.Scheduled(is_new)


async def _run(call: ApiCall) -> responses.Sent:
    id_ = await run_schedule(call.site.app, call.path_param("name"))
    if id_ is None:
        raise _not_found(call)
    return responses.Sent(id=str(id_))


async def _remove(call: ApiCall) -> None:
    _check_found(await call.site.app.unschedule(call.path_param("name")), call)


async def _pause(call: ApiCall) -> None:
    _check_found(await call.site.app.pause_schedule(call.path_param("name")), call)


async def _resume(call: ApiCall) -> None:
    _check_found(await call.site.app.resume_schedule(call.path_param("name")), call)


def _check_found(is_found: bool, call: ApiCall) -> None:  # noqa: FBT001
    if not is_found:
        raise _not_found(call)


def _not_found(call: ApiCall) -> NotFound:
    return NotFound(f"there is no schedule {call.path_param('name')!r}")


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/schedules",
        name="list_schedules",
        summary="List the schedules by name, a page at a time.",
        needs="viewer",
        handle=_list,
        query=requests.NamePage,
        answer=responses.SchedulesShown,
    ),
    Operation(
        method="PUT",
        path="/schedules/{name}",
        name="put_schedule",
        summary="Create a schedule, or replace the one with this name. Repeating it changes nothing.",
        needs="operator",
        handle=_put,
        body=requests.ScheduleOf,
        answer=responses.Scheduled,
        is_logged=True,
    ),
    Operation(
        method="DELETE",
        path="/schedules/{name}",
        name="remove_schedule",
        summary="Remove a schedule. Messages that it has sent stay.",
        needs="operator",
        handle=_remove,
        answer=None,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="/schedules/{name}/run",
        name="run_schedule",
        summary="Send the message of a schedule now. Its later runs stay as they are.",
        needs="operator",
        handle=_run,
        answer=responses.Sent,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="/schedules/{name}/pause",
        name="pause_schedule",
        summary="Pause a schedule. The runs until it is resumed are never sent.",
        needs="operator",
        handle=_pause,
        answer=None,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="/schedules/{name}/resume",
        name="resume_schedule",
        summary="Resume a schedule with its next run.",
        needs="operator",
        handle=_resume,
        answer=None,
        is_logged=True,
    ),
)
