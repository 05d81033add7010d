"""Finds the app or task that a target like `shop.jobs:app` names. Errors list the apps and tasks that exist."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from duly._async.app import AsyncDuly
from duly._async.task import AsyncTask
from duly._core.handlers import TaskDefinition, TaskSet
from duly._core.naming import nearest
from duly._sync.app import Duly
from duly._sync.task import Task
from duly.errors import UsageError
from duly.worker.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType

App = Duly | AsyncDuly

_LOG: Final = logging.getLogger("duly.worker")

_DEFAULT_NAME: Final = "app"
_EXPECTED: Final = "a target is written package.module:name, like shop.jobs:app"


def load_app(target: str) -> App:
    """Import the module of `target` and return its app. A function without arguments is called to make it."""
    module_name, name = _split(target)
    _put_current_directory_on_path()
    module = _import(module_name, target)
    found = _look_up(module, name)
    if not isinstance(found, App) and callable(found) and not inspect.isclass(found):
        found = _call(found, f"{module_name}:{name}")
    if isinstance(found, App):
        return found
    raise UsageError(f"{module_name}:{name} is {_describe(found)}, not a Duly or AsyncDuly. {_suggest(module)}")


class FoundTask(NamedTuple):
    """A task that a target names."""

    app: App
    queue: Any
    definition: TaskDefinition


def load_task(target: str, app_target: str | None = None) -> FoundTask:
    """Find the task that `shop:app.welcome` or `shop:welcome` names. With `app_target`, find it by its name alone."""
    if app_target is not None:
        return _task_named(load_app(app_target), target)
    if ":" not in target:
        raise UsageError(f"{target!r} names no app: write it as shop:app.{target}, or give --app shop:app")
    module_name, path = _split(target)
    _put_current_directory_on_path()
    found: Any = _import(module_name, target)
    module, parts = found, path.split(".")
    for at in range(len(parts)):
        if isinstance(found, App):
            return _task_named(found, ".".join(parts[at:]))
        found = _look_up(module, ".".join(parts[: at + 1]))
    if isinstance(found, Task | AsyncTask):
        return FoundTask(found.queue._app, found.queue, found._definition)
    if isinstance(found, App):
        raise UsageError(f"{target} is an app: name one of its tasks. {_known_tasks(found)}")
    raise UsageError(f"{target} is {_describe(found)}, not a task: it is made by @app.task")


def _task_named(app: App, name: str) -> FoundTask:
    found = [
        FoundTask(app, registered.queue, registered.handler.tasks[name])
        for registered in app._definitions.handlers.values()
        if isinstance(registered.handler, TaskSet) and name in registered.handler.tasks
    ]
    if not found:
        raise UsageError(f"there is no task {name!r}.{nearest(name, _task_names(app))} {_known_tasks(app)}")
    if len(found) > 1:
        queues = " and ".join(repr(each.queue.name) for each in found)
        raise UsageError(f"there is a task {name!r} on queue {queues}: name the function, like shop:{name}")
    return found[0]


def _task_names(app: App) -> list[str]:
    handlers = [registered.handler for registered in app._definitions.handlers.values()]
    return [name for handler in handlers if isinstance(handler, TaskSet) for name in handler.tasks]


def _known_tasks(app: App) -> str:
    names = ", ".join(_task_names(app))
    return f"It has {names}" if names else "It has none: they are made by @app.task"


def _split(target: str) -> tuple[str, str]:
    module_name, colon, name = target.partition(":")
    if not colon:
        name = _DEFAULT_NAME
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        dotted = module_name.removesuffix(".py").replace("\\", "/").strip("./").replace("/", ".")
        raise UsageError(f"{target!r} names a file; write the module with dots: {dotted}:{name or _DEFAULT_NAME}")
    if not _is_dotted(module_name) or not _is_dotted(name):
        raise UsageError(f"{target!r} is not a target: {_EXPECTED}")
    return module_name, name


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _put_current_directory_on_path() -> None:
    """Make the user's modules importable: the command `duly` starts with its own directory on the path instead."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _import(module_name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not _is_target_missing(module_name, error):
            _raise_failure(f"the module {module_name} could not be imported", error)
        raise UsageError(_missing_text(module_name, error.name, target)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's module may raise anything
        _raise_failure(f"the module {module_name} could not be imported", error)


def _is_target_missing(module_name: str, error: ModuleNotFoundError) -> bool:
    """Return whether the target itself does not exist, rather than a module that it imports."""
    return error.name is not None and f"{module_name}.".startswith(f"{error.name}.")


def _missing_text(module_name: str, missing: str | None, target: str) -> str:
    text = f"no module named {missing!r}, for the target {target!r}: searched {Path.cwd()} and Python's path."
    package, _, last = module_name.rpartition(".")
    if package and ":" not in target and missing == module_name:
        text += f" Did you mean {package}:{last}?"
    elif missing is not None and "." not in missing:
        where = f"of {missing}.py" if missing == module_name else f"that has {missing} in it"
        text += f" Start it in the directory {where}, or set PYTHONPATH."
    return text


def _raise_failure(what: str, error: BaseException) -> NoReturn:
    """Raise UsageError with the traceback of the user's code, and without frames of Duly."""
    lines = traceback.format_exception(type(error), error, _skip_our_frames(error.__traceback__))
    raise UsageError(f"{what}; it raised:\n{''.join(lines).rstrip()}") from None


def _skip_our_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if file not in (__file__, importlib.__file__) and not file.startswith("<frozen importlib"):
            return frames
        frames = frames.tb_next
    return None


def _look_up(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(
                f"the module {module.__name__} ({module.__file__}) has no {name!r}. {_suggest(module)}"
            ) from None
    return found


def _call(factory: Callable[[], Any], shown: str) -> Any:
    if _needs_arguments(factory):
        raise UsageError(f"{shown} needs arguments: a function that makes the app must do without")
    try:
        made = factory()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's function may raise anything
        _raise_failure(f"{shown}() failed", error)
    if inspect.iscoroutine(made):
        made.close()
        raise UsageError(f"{shown} is an async function: the app must be made by a plain one")
    return made


def _needs_arguments(factory: Callable[..., Any]) -> bool:
    try:
        inspect.signature(factory).bind()
    except TypeError:
        return True
    except ValueError:  # built in, without a signature: the call shows it
        return False
    return False


def _describe(found: object) -> str:
    return f"the class {found.__name__}" if inspect.isclass(found) else f"of type {type(found).__name__}"


def _suggest(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, App)]
    if names:
        return f"Apps found there: {', '.join(names)}"
    return "No app was found there: it is made like app = duly.Duly()"


def warn_of_memory(app: App) -> None:
    """Warn that only handlers of this process can send to a worker on `memory://`."""
    if app._address.kind == "memory":
        event(_LOG, logging.WARNING, "worker.in_memory", note="no other process can send to memory://; set DULY_URL")
