"""Names and values as MLflow takes them, from names and values as they are. Loads nothing.

A name that MLflow takes stays as it is. Any other is spelled with what MLflow allows and gets six
digits of its own hash, so that two names never become one; the original goes into a tag.
"""

import hashlib
import json
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# MLflow 3.17: mlflow/utils/validation.py.
MAX_NAME = 250
MAX_PARAM = 6000
MAX_TAG = 5000
MAX_METRICS, MAX_PARAMS, MAX_TAGS = 1000, 100, 100

_ALLOWED = re.compile(r"[A-Za-z0-9_\-.:/ ]+")
_REFUSED = re.compile(r"[^A-Za-z0-9_\-.:/ ]+")
_ORIGINAL = "ndsweep.name."
_CUT = " … (cut; the whole text is the artifact {artifact})"


def mirror_name(name: str) -> str:
    """Return the name under which MLflow keeps a metric, parameter or tag."""
    if _is_accepted(name):
        return name
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    spelled = _REFUSED.sub("_", _spell_out(name))
    parts = [part.strip(" .") for part in spelled.split("/")]
    plain = "/".join(part for part in parts if part) or "unnamed"
    # Short enough for the tag that keeps the original.
    return f"{plain[: MAX_NAME - len(_ORIGINAL) - 7]}.{digits}"


def original_tag(name: str) -> tuple[str, str] | None:
    """Return the tag that keeps the original of a changed name; None for an unchanged one."""
    mapped = mirror_name(name)
    if mapped == name:
        return None
    return f"{_ORIGINAL}{mapped}", name[:MAX_TAG]


def param_text(value: Any) -> str:
    """Return a config value as text: strings as they are, pairs as "0.9, 0.99", the rest as JSON.

    MLflow's pages break JSON over lines, which makes a column of pairs hard to compare.
    """
    if isinstance(value, list | tuple) and value and all(isinstance(v, int | float) for v in value):
        return ", ".join(map(json.dumps, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cut(text: str, most: int, artifact: str) -> str:
    """Return a text that fits, marked where it was cut; ``artifact`` names where all of it is."""
    if len(text) <= most:
        return text
    marker = _CUT.format(artifact=artifact)
    return text[: most - len(marker)] + marker


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut items into lists of at most ``size``, in order."""
    rest: Sequence[T] = list(items)
    for start in range(0, len(rest), size):
        yield list(rest[start : start + size])


def _is_accepted(name: str) -> bool:
    # A name is also a path below an artifact folder: "a//b", "./a" and "/a" are refused.
    return (
        0 < len(name) <= MAX_NAME
        and _ALLOWED.fullmatch(name) is not None
        and posixpath.normpath(name) == name
        and not name.startswith(("/", ".."))
        and name != "."
    )


def _spell_out(name: str) -> str:
    """Spell Greek letters by their names, and letters with accents without."""
    return "".join(_spell_letter(letter) for letter in unicodedata.normalize("NFKD", name))


def _spell_letter(letter: str) -> str:
    if letter.isascii():
        return letter
    full = unicodedata.name(letter, "")
    if full.startswith("GREEK SMALL LETTER "):
        return full.split()[3].lower()
    if full.startswith("GREEK CAPITAL LETTER "):
        return full.split()[3].capitalize()
    return "_"
