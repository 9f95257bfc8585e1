"""Schedules that take one number for all groups, and their lists from ``per_group``."""

import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR

from ndadam import NDAdam, param_groups, per_group
from tests.ndadam.small_model import small_model, train


def optimizer_of(model):
    return NDAdam(param_groups(model, alpha_v=0.05, alpha_s=0.001))


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def run(optimizer, model, schedule, steps, *metric):
    for step in range(steps):
        train(model, optimizer, 1, start=step)
        schedule.step(*metric)
    return rates(optimizer)


def test_it_gives_one_value_for_each_group():
    optimizer = optimizer_of(
        torch.nn.Sequential(*(small_model(), torch.nn.ConvTranspose1d(2, 2, 3)))
    )

    assert [g["vector_dim"] for g in optimizer.param_groups] == [0, 1, None]
    assert per_group(optimizer, alpha_v="v", alpha_s="s") == ["v", "v", "s"]


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(TypeError, match=r"optimizer must be a torch.optim.Optimizer, got list"):
        per_group([], alpha_v=1, alpha_s=2)


@pytest.mark.parametrize(
    ("make", "steps", "metric", "expected"),
    [
        (
            lambda o, both: SWALR(o, swa_lr=both(0.02, 0.0004), anneal_epochs=2),
            3,
            (),
            (0.02, 0.0004),
        ),
        (
            lambda o, both: lr_scheduler.CyclicLR(
                o, base_lr=both(0.01, 0.0002), max_lr=both(0.1, 0.002), step_size_up=3
            ),
            3,
            (),
            (0.1, 0.002),
        ),
        (
            lambda o, both: lr_scheduler.OneCycleLR(
                o, max_lr=both(0.1, 0.002), total_steps=10, pct_start=0.4
            ),
            3,
            (),
            (0.1, 0.002),
        ),
        (
            lambda o, both: lr_scheduler.ReduceLROnPlateau(
                o, patience=0, factor=0.1, min_lr=both(0.01, 0.0002)
            ),
            5,
            (1.0,),
            (0.01, 0.0002),
        ),
        (
            lambda o, both: lr_scheduler.LambdaLR(o, both(lambda t: 0.5**t, lambda t: 1.0)),
            2,
            (),
            (0.0125, 0.001),
        ),
    ],
    ids=["SWALR", "CyclicLR", "OneCycleLR", "ReduceLROnPlateau", "LambdaLR"],
)
def test_each_schedule_drives_both_rates_apart_with_its_list(make, steps, metric, expected):
    model = small_model()
    optimizer = optimizer_of(model)
    schedule = make(optimizer, lambda v, s: per_group(optimizer, alpha_v=v, alpha_s=s))

    found = run(optimizer, model, schedule, steps, *metric)

    is_vector = [group["vector_dim"] is not None for group in optimizer.param_groups]
    assert found == pytest.approx([expected[0] if v else expected[1] for v in is_vector])


def test_one_number_drives_both_alike_as_the_guide_says():
    model = small_model()
    optimizer = optimizer_of(model)
    schedule = SWALR(optimizer, swa_lr=0.02, anneal_epochs=1)

    assert run(optimizer, model, schedule, 2) == pytest.approx([0.02] * len(rates(optimizer)))


def test_a_plateau_keeps_the_ratio_of_both_until_its_lowest_rate():
    model = small_model()
    optimizer = optimizer_of(model)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    vectors, scalars = run(optimizer, model, schedule, 3, 1.0)[:: len(rates(optimizer)) - 1]

    assert vectors / scalars == pytest.approx(50)
