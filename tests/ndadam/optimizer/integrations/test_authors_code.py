"""The authors' optimizer beside ours on one trajectory, each known difference switched on in turn.

Their code is written anew here in numpy, from its description in decision 0005.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ndadam import NDAdam

Array = np.ndarray[Any, np.dtype[np.float64]]

ORACLES = json.loads((Path(__file__).parents[2] / "oracles.json").read_text())
STEPS, EPS = 50, 1e-3
#: Four vectors of five numbers, and two scalars.
SHAPE, SCALARS = (4, 5), 2
VECTOR_RATE, SCALAR_RATE = 0.05, 0.002


@dataclass(frozen=True)
class Differences:
    """What the authors' code does otherwise than the paper."""

    starts_as_it_is: bool = False
    adds_eps_before_correction: bool = False
    scalar_rate: float = SCALAR_RATE
    beta2: float = 0.999
    decay_of_vectors: float = 0.0
    writes_gradient: bool = False


OURS = Differences()
THEIRS = Differences(True, True, VECTOR_RATE, 0.99, 0.0, True)


def twin(
    w: Array,
    scalars: Array,
    gradients: Iterator[tuple[Array, Array]],
    d: Differences,
    eps: float = EPS,
) -> Iterator[tuple[Array, Array]]:
    """Yield vectors (rows) and scalars after each step."""

    def lengths(of: Array) -> Array:
        return np.sqrt((of * of).sum(axis=1, keepdims=True))

    w, scalars = w.copy(), scalars.copy()
    if not d.starts_as_it_is:
        w /= lengths(w)
    beta1, beta2 = 0.9, d.beta2
    m, v = np.zeros_like(w), np.zeros((len(w), 1))
    scalar_m, scalar_v = np.zeros_like(scalars), np.zeros_like(scalars)
    for t, (given, scalar_g) in enumerate(gradients, start=1):
        g = given if d.writes_gradient else given.copy()
        if d.decay_of_vectors:
            g += d.decay_of_vectors * w
        g -= (g * w).sum(axis=1, keepdims=True) * w
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (g * g).sum(axis=1, keepdims=True)
        scalar_m = beta1 * scalar_m + (1 - beta1) * scalar_g
        scalar_v = beta2 * scalar_v + (1 - beta2) * scalar_g**2
        first, second = 1 - beta1**t, np.sqrt(1 - beta2**t)

        def step(mean: Array, square: Array, first: float = first, second: Any = second) -> Array:
            if d.adds_eps_before_correction:
                moved: Array = mean / first * second / (np.sqrt(square) + eps)
            else:
                moved = mean / first / (np.sqrt(square) / second + eps)
            return moved

        w = w - VECTOR_RATE * step(m, v)
        w /= lengths(w)
        scalars = scalars - d.scalar_rate * step(scalar_m, scalar_v)
        yield w, scalars


def start() -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    return 2 * random.normal(size=SHAPE), random.normal(size=SCALARS)


def gradients(scale: float = 0.05) -> Iterator[tuple[Array, Array]]:
    """A constant part and noise, of the size at which eps counts."""
    random = np.random.default_rng(1)
    constant, scalar_constant = random.normal(size=SHAPE), random.normal(size=SCALARS)
    for _ in range(STEPS):
        noise, scalar_noise = random.normal(size=SHAPE), random.normal(size=SCALARS)
        yield scale * (constant + noise), scale * (scalar_constant + scalar_noise)


def theirs(d: Differences, w: Array | None = None) -> list[tuple[Array, Array]]:
    rows, scalars = start()
    return list(twin(rows if w is None else w, scalars, gradients(), d))


def ours(
    d: Differences = OURS, *, moving_eps: bool = False, turned: float = 0.0
) -> list[tuple[Array, Array]]:
    """What NDAdam does. ``moving_eps``: eps as it acts where it is added before the correction.

    ``turned``: times w, added to the gradients of vectors.
    """
    rows, scalars = start()
    w, b = (torch.nn.Parameter(torch.from_numpy(of)) for of in (rows, scalars))
    groups = [
        {"params": [w], "vector_dim": 0, "lr": VECTOR_RATE},
        {"params": [b], "vector_dim": None, "lr": d.scalar_rate},
    ]
    optimizer = NDAdam(groups, betas=(0.9, d.beta2), eps=EPS)
    found = []
    for t, (g, scalar_g) in enumerate(gradients(), start=1):
        w.grad, b.grad = torch.from_numpy(g) + turned * w.detach(), torch.from_numpy(scalar_g)
        for group in optimizer.param_groups:
            group["eps"] = EPS / np.sqrt(1 - d.beta2**t) if moving_eps else EPS
        optimizer.step()
        found.append((w.detach().numpy().copy(), b.detach().numpy().copy()))
    return found


def apart(one: list[tuple[Array, Array]], other: list[tuple[Array, Array]]) -> float:
    """The largest difference of any number at any step."""
    return max(
        float(np.abs(mine - yours).max())
        for pair in zip(one, other, strict=True)
        for mine, yours in zip(*pair, strict=True)
    )


def test_without_the_differences_it_is_ours() -> None:
    assert apart(theirs(OURS), ours()) < 1e-12


def test_with_all_of_them_it_is_theirs() -> None:
    """Two steps as their code takes them, of the oracles."""
    paper = ORACLES["ndadam_2x2_two_steps_paper"]
    given = iter([(np.array(g), np.zeros(1)) for g in paper["grads"]])
    d = replace(THEIRS, beta2=paper["betas"][1])

    steps = [w for w, _ in twin(np.array(paper["w0"]), np.zeros(1), given, d, paper["eps"])]

    expected = ORACLES["ndadam_2x2_two_steps_official_pytorch_variant"]["steps"]
    for w, other in zip(steps, expected, strict=True):
        assert np.abs(w - np.array(other["w"])).max() < 1e-12


def test_eps_before_the_correction_is_an_eps_that_falls_with_time() -> None:
    other = theirs(replace(OURS, adds_eps_before_correction=True))

    assert apart(other, ours()) > 1e-3
    assert apart(other, ours(moving_eps=True)) < 1e-12


def test_one_rate_for_both_moves_scalars_at_that_of_vectors() -> None:
    d = replace(OURS, scalar_rate=VECTOR_RATE)

    assert apart(theirs(d), ours()) > 0.1
    assert apart(theirs(d), ours(d)) < 1e-12
    for (w, _), (same, _) in zip(theirs(d), ours(), strict=True):
        assert np.abs(w - same).max() < 1e-12


def test_beta2_is_the_setting_that_it_looks_like() -> None:
    d = replace(OURS, beta2=0.99)

    assert apart(theirs(d), ours()) > 1e-3
    assert apart(theirs(d), ours(d)) < 1e-12


def test_vectors_that_start_as_they_are_take_another_first_step() -> None:
    """``g - (g · w) w`` is no projection where w has another length."""
    d = replace(OURS, starts_as_it_is=True)
    rows, _ = start()

    assert np.abs(theirs(d)[0][0] - ours()[0][0]).max() > 1e-2
    units = rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    assert apart(theirs(d, units), ours()) < 1e-12


def test_decay_of_vectors_has_no_effect_and_is_refused_here() -> None:
    decayed = theirs(replace(OURS, decay_of_vectors=0.1))

    assert apart(decayed, theirs(OURS)) < 1e-12
    assert apart(decayed, ours(turned=0.1)) < 1e-12
    w = torch.nn.Parameter(torch.ones(SHAPE))
    with pytest.raises(ValueError, match="weight_decay"):
        NDAdam([w], vector_dim=0, weight_decay=0.1)


@pytest.mark.parametrize("writes", [True, False])
def test_only_theirs_writes_the_projection_into_the_gradient(writes: bool) -> None:
    rows, scalars = start()
    ((g, scalar_g), *_) = gradients()
    kept = g.copy()

    next(twin(rows, scalars, iter([(g, scalar_g)]), replace(OURS, writes_gradient=writes)))

    assert (g == kept).all() != writes
    w = torch.nn.Parameter(torch.from_numpy(rows))
    w.grad = torch.from_numpy(kept.copy())
    NDAdam([w], lr=VECTOR_RATE, vector_dim=0).step()
    assert (w.grad.numpy() == kept).all()
