"""Upkeep of queues, groups and the server: delete, audit, repair and examine."""

from __future__ import annotations

import asyncio
from typing import Final

from duly.doctor import Report, examine
from duly.errors import UsageError
from duly.message import Audit
from duly.web.api import requests, responses
from duly.web.api.operation import ApiCall, Operation


async def _delete(call: ApiCall) -> None:
    inbox = await call.inbox()
    if call.query.confirm != inbox.label:
        raise UsageError(
            f"confirm must be {inbox.label!r}, the name of the queue or group to delete, not {call.query.confirm!r}"
        )
    await inbox.delete()


async def _audit(call: ApiCall) -> responses.Audited:
    inbox = await call.inbox()
    return _audited(await call.run_while_connected(inbox.audit()))


async def _repair(call: ApiCall) -> responses.Audited:
    inbox = await call.inbox()
    return _audited(await call.run_while_connected(inbox.audit(repair=True)))


def _audited(found: Audit) -> responses.Audited:
    return responses.Audited(found.ok, found.checked, found.difference, found.faults, found.repaired, found.stats)


async def _examine(call: ApiCall) -> responses.Examined:
    report: Report = await call.run_while_connected(asyncio.to_thread(examine, call.site.app))
    findings = [responses.Finding(each.name, each.verdict, each.found, each.why, each.fix) for each in report.findings]
    return responses.Examined(report.ok, report.server, findings)


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="DELETE",
        path="{inbox}",
        name="delete",
        summary="Delete a queue or group with all its messages and counters. `confirm` must be its name.",
        needs="admin",
        handle=_delete,
        query=requests.Delete,
        answer=None,
        is_logged=True,
    ),
    Operation(
        method="GET",
        path="{inbox}/audit",
        name="audit",
        summary="Check that every message is accounted for. It reads all messages, until the client disconnects.",
        needs="operator",
        handle=_audit,
        answer=responses.Audited,
    ),
    Operation(
        method="POST",
        path="{inbox}/audit",
        name="repair",
        summary="Check that every message is accounted for, and repair faults.",
        needs="admin",
        handle=_repair,
        answer=responses.Audited,
        is_logged=True,
    ),
)

OTHER_OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/doctor",
        name="examine",
        summary="Examine the server and its settings, as `duly doctor` does.",
        needs="admin",
        handle=_examine,
        answer=responses.Examined,
    ),
)
