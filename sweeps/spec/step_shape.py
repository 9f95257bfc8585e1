"""Which fields of a config decide how long a step takes: for all who estimate it from other runs.

A step is meant with its share of reports and evaluations. Two configs of one shape take equally
long on one machine, within what two processes of the same config differ by (1 to 2 %).
"""

from collections.abc import Hashable, Mapping
from typing import Any

#: The network, its images and arithmetic, and how often it is evaluated and on how many images. A
#: closed loop (``follow``) adds 10 % to a WRN-22-7.5 on an H200 (``docs/results/cifar10-follow``).
ROUGH_FIELDS = (
    "dataset",
    "network",
    "depth",
    "widen_factor",
    "shortcut",
    "batch_size",
    "follow",
    "precision",
    "deterministic",
    "report_every",
    "test_evaluation",
    "validation_fraction",
)
#: Each changes the time of that network by 2 % at most (``docs/results/cifar10``), and that of a
#: small one by more.
FINE_FIELDS = ("recipe", "optimizer", "gamma_c", "augmentation", "loss", "metrics")
#: Of what packages register: all own fields of networks and data count roughly, others finely.
_ROUGH_PARTS, _FINE_PARTS = ("network.", "dataset."), ("optimizer.", "augmentation.", "loss.")
#: Of these it counts whether they are set, not to which value.
_SET_OR_NOT = ("follow", "gamma_c")


def exact_shape(config: Mapping[str, Any]) -> Hashable:
    """Return what decides the time of a step, for an estimate that must be right to a few percent.

    ``config`` is a resolved config as it is stored.
    """
    counted = tuple(_counted(name, config.get(name)) for name in (*ROUGH_FIELDS, *FINE_FIELDS))
    return counted, _of_parts(config, (*_ROUGH_PARTS, *_FINE_PARTS))


def rough_shape(config: Mapping[str, Any]) -> Hashable:
    """Return the same without the fields that change the time little, for a forecast."""
    counted = tuple(_counted(name, config.get(name)) for name in ROUGH_FIELDS)
    return counted, _of_parts(config, _ROUGH_PARTS)


def _of_parts(config: Mapping[str, Any], prefixes: tuple[str, ...]) -> Hashable:
    return tuple(sorted((n, str(v)) for n, v in config.items() if n.startswith(prefixes)))


def may_have_shape(
    base: Mapping[str, Any], space: Mapping[str, Any], config: Mapping[str, Any]
) -> bool:
    """Whether trials of a spec may be of the rough shape of ``config``, from its text alone.

    ``base`` and ``space`` are the spec's, as JSON values. A field that the base leaves out may take
    any value: a recipe gives it one.
    """
    return all(
        name in space
        or base.get(name) is None
        or _counted(name, base[name]) == _counted(name, config.get(name))
        for name in ROUGH_FIELDS
    )


def _counted(name: str, value: Any) -> Hashable:
    """What of a field's value counts."""
    if name in _SET_OR_NOT:
        return value is not None
    return tuple(value) if isinstance(value, list) else value
