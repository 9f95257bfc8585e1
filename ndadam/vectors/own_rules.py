"""Parameters that a caller picks out: by name pattern, class, module or the parameter itself."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from numbers import Integral, Real
from typing import Any

from torch import Tensor, nn

#: A pattern, a class of modules, a module or a parameter.
Key = str | type[nn.Module] | nn.Module | nn.Parameter

#: Of a tied parameter, each module that holds it and the name that it has there.
Places = Mapping[Tensor, list[tuple[nn.Module, str]]]


class Picks:
    """Finds for each parameter of a model the last of some keys that fits it.

    - A pattern fits a parameter if it fits its name, or that of a module that holds it: "head" fits
      "head.weight" and "head.0.bias". "*" stands for any letters, dots too, as in fnmatch.
    - A class fits what modules of it hold themselves, not what modules inside these hold.
    - A module fits all that is in it, a parameter itself.

    Args:
        argument: What to call them in messages.
        keys: In the order in which they were given.
        places: Where each parameter of the model is.

    Raises:
        TypeError: A key of another kind.
        ValueError: A key that fits no parameter.
    """

    def __init__(self, argument: str, keys: Iterable[Any], places: Places) -> None:
        self._last: dict[Tensor, Key] = {}
        for key in keys:
            fitting = list(_fitting(argument, key, places))
            if not fitting:
                names = ", ".join(name for held in list(places.values())[:3] for _, name in held)
                raise ValueError(
                    f"{argument} has {shown(key)}, which fits no parameter of the model; they are "
                    f"called {names or 'nothing'}, …"
                )
            self._last.update(dict.fromkeys(fitting, key))

    def of(self, parameter: Tensor) -> Key | None:
        """The last key that fits ``parameter``, None if none does."""
        return self._last.get(parameter)

    def fitting(self, key: Key) -> list[Tensor]:
        """Parameters for which ``key`` is the last one that fits."""
        return [p for p, last in self._last.items() if last is key]


def _fitting(argument: str, key: Any, places: Places) -> Iterable[Tensor]:
    if isinstance(key, Tensor):
        return [key] if key in places else []
    if isinstance(key, nn.Module):
        return [p for p in key.parameters() if p in places]
    if isinstance(key, str):
        return [p for p, held in places.items() if any(_fits(key, name) for _, name in held)]
    if isinstance(key, type) and issubclass(key, nn.Module):
        return [p for p, held in places.items() if any(isinstance(m, key) for m, _ in held)]
    raise TypeError(
        f"{argument} picks parameters by a name pattern, a class of modules, a module or the "
        f"parameter itself, got {key!r}"
    )


def _fits(pattern: str, name: str) -> bool:
    """Whether the whole name or its beginning up to a dot fits."""
    ends = [i for i, letter in enumerate(name) if letter == "."]
    return any(fnmatchcase(name[:end], pattern) for end in [*ends, len(name)])


def shown(key: Key) -> str:
    """A key in messages and tables."""
    if isinstance(key, str):
        return repr(key)
    if isinstance(key, type):
        return key.__name__
    if isinstance(key, Tensor):
        return f"a parameter of shape {tuple(key.shape)}"
    return f"a {type(key).__name__}"


def refuse_unless_dims(rules: Any) -> None:
    """Refuse rules that are no mapping to a dimension or None. Raises TypeError."""
    if not isinstance(rules, Mapping):
        raise TypeError(
            "rules must be a mapping from what it picks to vector_dim, or to None for scalars, "
            f"got {type(rules).__name__}"
        )
    for key, dim in rules.items():
        is_dim = isinstance(dim, Integral) and not isinstance(dim, bool)
        if dim is not None and not is_dim:
            raise TypeError(
                f"rules must give a dimension, or None for scalars, got {dim!r} for {shown(key)}"
            )


def refuse_unless_factors(factors: Any) -> None:
    """Refuse factors of rates that are no mapping to a number >= 0."""
    if not isinstance(factors, Mapping):
        raise TypeError(
            "rate_factors must be a mapping from what it picks to a factor, got "
            f"{type(factors).__name__}"
        )
    for key, factor in factors.items():
        is_number = isinstance(factor, Real) and not isinstance(factor, bool)
        if not is_number or not 0 <= float(factor) < 1e50:
            raise ValueError(
                f"rate_factors must give numbers >= 0, got {factor!r} for {shown(key)}"
            )
