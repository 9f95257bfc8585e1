"""Thins curves to fewer points, for pages and files."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def thin(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` items, evenly spread, with the first and the last."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
