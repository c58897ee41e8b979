"""The file of a transform: TOML, or Python with a function under `@pipeline`.

Law: a key that nobody knows is refused by name, with the nearest that is known.
"""

import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import msgspec

from oncemq.errors import ConfigError
from oncemq.spark.pipelines.transforms.definition import Definition, Source, Target


def pipeline(
    *,
    sources: Mapping[str, Source],
    target: Target,
    name: str = "",
    mode: Literal["append", "update"] = "append",
    checkpoint: str = "",
    every: float = 0.0,
    spark: Mapping[str, str] | None = None,
    dead: str = "",
) -> Callable[[Callable[..., Any]], Definition]:
    """Make a function of data frames a pipeline: it gets the sources by their names.

    The pipeline is named as the function is, unless it has another `name`.
    """

    def wrap(function: Callable[..., Any]) -> Definition:
        return Definition(
            name=name or function.__name__,
            sources=dict(sources),
            target=target,
            function=function,
            mode=mode,
            checkpoint=checkpoint,
            every=every,
            spark=dict(spark or {}),
            dead=dead,
        ).check()

    return wrap


def load(text: str) -> Definition:
    """What `FILE`, or `FILE:NAME` with a pipeline of a Python file, defines."""
    path, name = Path(text), ""
    if not path.is_file() and ":" in text:
        before, _, name = text.rpartition(":")
        path = Path(before)
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; a transform is a .toml or a .py file")
    if path.suffix not in (".toml", ".py"):
        raise ConfigError(f"{path}: a transform is a .toml or a .py file")
    try:
        return _toml(path) if path.suffix == ".toml" else _python(path, name)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.detail}") from error


def _toml(path: Path) -> Definition:
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}") from None
    _known(given, Definition, "")
    for name, source in cast("dict[str, Any]", given.get("sources", {})).items():
        _known(source, Source, f"sources.{name}.")
    _known(given.get("target", {}), Target, "target.")
    try:
        found = msgspec.convert({"name": path.stem, **given}, Definition).check()
    except msgspec.ValidationError as error:
        raise ConfigError(_said(str(error))) from None
    if not found.function:
        return found
    return msgspec.structs.replace(found, function=_named(str(found.function), path.parent))


def _known(given: object, kind: type[msgspec.Struct], place: str) -> None:
    if not isinstance(given, dict):
        raise ConfigError(f"{place.rstrip('.')} is a table of settings, not {given!r}")
    for key in cast("dict[str, object]", given):
        if key not in kind.__struct_fields__:
            near = get_close_matches(key, kind.__struct_fields__, n=1)
            allowed = f"known are {', '.join(kind.__struct_fields__)}"
            hint = f"did you mean {near[0]}?" if near else allowed
            raise ConfigError(f"there is no key {place}{key}; {hint}")


def _said(error: str) -> str:
    """`Expected `int`, got `str` - at `$.target.topic`` as `target.topic: …`."""
    what, _, place = error.partition(" - at `$")
    key = place.strip("`.").replace("[...]", ".*").lstrip(".")
    return f"{key}: {what}".replace("`", "'") if key else what.replace("`", "'")


def _named(text: str, directory: Path) -> Callable[..., Any]:
    """MODULE:FUNCTION, with the directory of the file first on the path."""
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise ConfigError(f"function: write MODULE:FUNCTION, not {text!r}")
    _on_the_path(directory)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"function: {error}; looked in {directory} first") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"function: there is no function {name!r} in {module.__file__}")
    return found


def _python(path: Path, name: str) -> Definition:
    module = _run(path)
    found = {each.name: each for each in vars(module).values() if isinstance(each, Definition)}
    if not found:
        raise ConfigError(
            "it defines no pipeline: put @pipeline(sources=…, target=…), of "
            "oncemq.spark.pipelines, above a function"
        )
    if not name and len(found) > 1:
        names = ", ".join(f"{path}:{each}" for each in found)
        raise ConfigError(f"it defines several pipelines; say which: {names}")
    if name and name not in found:
        raise ConfigError(f"it defines no pipeline {name!r}, but {', '.join(found)}")
    return found[name] if name else next(iter(found.values()))


def _run(path: Path) -> ModuleType:
    _on_the_path(path.parent)
    # Not among the modules that are known by name: tasks get its functions by value.
    spec = util.spec_from_file_location(f"pipeline in {path.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _on_the_path(directory: Path) -> None:
    if (place := str(directory.absolute())) not in sys.path:
        sys.path.insert(0, place)


def checked_call(definition: Definition) -> Callable[..., Any]:
    """The function; ConfigError when it does not take the sources by their names."""
    function = cast("Callable[..., Any]", definition.function)
    try:
        inspect.signature(function).bind(**definition.sources)
    except TypeError as error:
        raise ConfigError(
            f"the function takes the sources ({', '.join(definition.sources)}) by name: {error}"
        ) from None
    return function
