"""Payloads as handlers want them, and what they return as payloads.

bytes as they are, str as UTF-8, pydantic models by pydantic, anything else that msgspec knows
(Struct, dataclass, TypedDict, dict, int, ...) as JSON.

Law: what a handler asks for is checked when it is decorated; a payload that does not fit is
Malformed, whatever library says so. pydantic is used where the user has imported it, and never
imported here.
"""

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from oncemq.errors import ConfigError

Decode = Callable[[bytes], Any]

KNOWN = "bytes, str, a msgspec Struct, a dataclass, a TypedDict, dict, a pydantic model, or Message"


class MalformedPayload(Exception):
    """The payload is not what the handler takes; no retry will change that."""


def decoder(wanted: Any) -> Decode:
    """How a payload becomes what the handler takes; ConfigError when nothing can make it so."""
    if wanted is bytes:
        return bytes
    if wanted is str:
        return _strictly(lambda payload: payload.decode())
    if _is_pydantic(wanted):
        return _strictly(wanted.model_validate_json)
    try:
        strangers = list(_strangers(msgspec.inspect.type_info(wanted)))
        decode = msgspec.json.Decoder(wanted).decode
    except TypeError as error:
        raise ConfigError(f"a payload cannot be made a {_name(wanted)}: {error}") from error
    if strangers:
        inside = "" if wanted in strangers else f" (in {_name(wanted)})"
        raise ConfigError(f"a payload cannot be made a {_name(strangers[0])}{inside}; take {KNOWN}")
    return _strictly(decode)


def encode(value: Any) -> bytes:
    """What a handler returned, as a payload."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if _is_pydantic(type(value)):
        return value.model_dump_json().encode()
    try:
        return msgspec.json.encode(value)
    except TypeError as error:
        raise TypeError(
            f"a handler returned a {_name(type(value))}, which is no payload: {error}"
        ) from error


def _strictly(decode: Decode) -> Decode:
    def strict(payload: bytes) -> Any:
        try:
            return decode(payload)
        except (msgspec.MsgspecError, ValueError) as error:
            raise MalformedPayload(_why(error)) from error

    return strict


def _why(error: Exception) -> str:
    """Where and why it does not fit; without the payload itself, which pydantic would repeat."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return str(error)
    faults: Any = listed(include_url=False, include_input=False)
    return "; ".join(f"{each['msg']} - at {'.'.join(map(str, each['loc']))}" for each in faults)


def _is_pydantic(kind: Any) -> bool:
    pydantic: Any = sys.modules.get("pydantic")
    return (
        pydantic is not None
        and isinstance(kind, type)
        and issubclass(kind, getattr(pydantic, "BaseModel", ()))
    )


def _strangers(info: Any) -> "list[Any]":
    """The types inside that msgspec has no JSON for."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting: list[Any] = [info]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting += each
        elif isinstance(each, msgspec.inspect.CustomType):
            found.append(each.cls)
        elif (
            isinstance(each, msgspec.inspect.Type | msgspec.inspect.Field) and id(each) not in seen
        ):
            seen.add(id(each))
            waiting += (getattr(each, name) for name in each.__struct_fields__)
    return found


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)
