"""Turns pydantic's errors into messages for users: the field's path, the rule, the value."""

from collections.abc import Iterable
from typing import Any, TypedDict

from pydantic import ValidationError

from worker.config.training import METRIC_NAME
from worker.config.trial_config import FieldError

#: Pattern of a field -> description of the text that it accepts.
_PATTERNS = {
    r"^[0-9a-f]{12}$": "12 hexadecimal digits, as in the address of a sweep",
    r"^[A-Za-z0-9_-]{1,64}$": "letters, digits, - and _ alone, at most 64",
    r"^[\x21-\x7e]{1,200}$": "1 to 200 printable ASCII characters without spaces",
    r"^[^\x00]*$": "text without the character NUL",
    r"^[\x21-\x7e]{1,64}$": "the token of a lease, as ask returned it",
    METRIC_NAME: "a name that begins with a letter or _ and holds letters, digits, _, ., /, @, - "
    "and spaces alone, at most 100",
}
#: Pydantic's error types for a value that is not a mapping.
_NO_MAPPING = {"model_attributes_type", "model_type", "dict_type"}


#: Refused fields that are explained at most: nobody reads more, and a body may hold 100,000.
MAX_FIELDS = 100


class FieldReason(TypedDict):
    """One refused field. ``path`` is dotted, "" for the whole document."""

    path: str
    reason: str


#: Parts of a location that name a member of a union, not a field.
_TAGS = {"float", "int", "choice", "asha", "median", "str", "bool", "none", "list", "tuple"}


def explain(error: ValidationError) -> list[FieldReason]:
    """Return refused fields, each once, in order, with a sentence that names rule and value.

    At most ``MAX_FIELDS`` of them.
    """
    return explain_items(error.errors(include_url=False))


def explain_items(items: Iterable[Any]) -> list[FieldReason]:
    """Explain items of pydantic's ``errors()``, like ``explain``."""
    found: dict[str, list[str]] = {}
    for item in items:
        path, reason = _one(item)
        if path not in found and len(found) == MAX_FIELDS:
            break
        reasons = found.setdefault(path, [])
        if reason not in reasons:
            reasons.append(reason)
    return [FieldReason(path=path, reason="; or ".join(rs[:4])) for path, rs in found.items()]


def in_words(error: ValidationError) -> str:
    """Return the refused fields in one sentence."""
    return "; ".join(
        f"{item['path']}: {item['reason']}" if item["path"] else item["reason"]
        for item in explain(error)
    )


def _one(item: Any) -> tuple[str, str]:
    parts = [str(part) for part in item["loc"] if not _is_tag(part)]
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        return ".".join(part for part in (*parts, cause.field) if part), str(cause)
    path = ".".join(parts)
    name = _name(parts)
    if item["type"] == "missing":
        return path, f"{name} is missing"
    if item["type"] == "extra_forbidden":
        return path, f"{name} is not a field here; remove it"
    if item["type"].startswith("union_tag"):
        return _kind(path, item)
    return path, f"{_rule(name, item)}, got {shown(item['input'])}"


def _rule(name: str, item: Any) -> str:
    """Return the broken rule, with the field's name instead of Python's terms."""
    if item["type"] in _NO_MAPPING:
        return f"{name} must be a mapping of fields to values"
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] in _PATTERNS:
        return f"{name} must be {_PATTERNS[item['ctx']['pattern']]}"
    message: str = item["msg"].removeprefix("Value error, ")
    for word in ("Input", "List", "Dictionary", "Tuple", "String"):
        message = message.replace(f"{word} should", f"{name} should")
    message = message.replace("a valid tuple", "a list")  # what a tuple is written as
    # Pydantic's internal steps do not help users.
    return message.partition(" after validation")[0].partition(", unable to parse")[0]


def _name(parts: list[str]) -> str:
    """Return the field's name for a sentence, with its place in a list."""
    if not parts:
        return "the document"
    places: list[str] = []
    while parts[-1].isdigit() and len(parts) > 1:
        *parts, place = parts
        places.insert(0, f"[{place}]")
    return parts[-1] + "".join(places)


def _kind(path: str, item: Any) -> tuple[str, str]:
    """Explain an error in a union whose ``kind`` selects the member."""
    where = f"{path}.kind" if path else "kind"
    if item["type"] == "union_tag_not_found":
        return where, f"kind is missing in {shown(item['input'])}"
    ctx = item["ctx"]
    return where, f"kind must be one of {ctx['expected_tags']}, got {shown(ctx['tag'])}"


def _is_tag(part: int | str) -> bool:
    # Pydantic names a union's member by its tag or type: "float", "literal['a']", "function-…".
    if not isinstance(part, str):
        return False
    made_up = part.startswith(("function-", "constrained-"))
    return made_up or part in _TAGS or "[" in part or "(" in part


def shown(value: Any, most: int = 80) -> str:
    """Return a value as text of bounded length."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**60:
        return "a whole number of more than 60 digits"
    if isinstance(value, dict | list | tuple) and len(value) > 20:
        return f"{len(value)} items"
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"something of type {type(value).__name__}"
    return text if len(text) <= most else text[: most - 1] + "…"
