"""``run.record``: layer metrics of a function's own model and optimizer."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from worker.checkpoints.report_journal import ReportJournal
from worker.report import Report
from worker.training.handle import Run


def handle(folder: Path, reports: list[Report], stop: Callable[[], bool] = lambda: False) -> Run:
    return Run(
        seed=0,
        device="cpu",
        folder=folder,
        config_key="k",
        journal=ReportJournal(folder),
        stop=stop,
        send=reports.append,
        checkpoint_seconds=0,
    )


def small() -> tuple[nn.Module, torch.optim.SGD]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def take_step(model: nn.Module, optimizer: torch.optim.SGD, step: int) -> None:
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def relative_steps(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return (after - before).norm(dim=1) / before.norm(dim=1)


def test_a_report_has_the_newest_step_of_each_layer(tmp_path: Path) -> None:
    (model, optimizer), reports = small(), list[Report]()
    run = handle(tmp_path, reports)
    run.record(model, optimizer)
    for step in range(1, 4):
        before = [model[i].weight.detach().clone() for i in (0, 2)]  # type: ignore[index]
        take_step(model, optimizer, step)
        run.report(step, {"loss": 1.0})
        after = [model[i].weight.detach() for i in (0, 2)]  # type: ignore[index]

        layers = [name for name in reports[-1].metrics if name.startswith("effective_lr/")]
        for name, w0, w1 in zip(layers, before, after, strict=True):
            expected = relative_steps(w0, w1).square().mean().sqrt().item()
            assert reports[-1].metrics[name] == pytest.approx(expected, rel=1e-4)

    kinds = {name.partition("/")[0] for name in reports[-1].metrics}
    assert kinds == {"loss", "effective_lr", "angular_update", "weight_norm", "projection_ratio"}


def test_a_report_without_a_step_in_between_repeats_no_measurement(tmp_path: Path) -> None:
    (model, optimizer), reports = small(), list[Report]()
    run = handle(tmp_path, reports)
    run.record(model, optimizer, every=2)
    for step in (1, 2):
        take_step(model, optimizer, step)
        run.report(step, {"loss": 1.0})

    assert [len(report.metrics) > 1 for report in reports] == [True, False]


def test_a_run_that_goes_on_measures_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    (model, optimizer), whole = small(), list[Report]()
    run = handle(tmp_path / "whole", whole)
    run.record(model, optimizer)
    for step in range(1, 7):
        take_step(model, optimizer, step)
        run.report(step, {"loss": 1.0})

    (model, optimizer), first = small(), list[Report]()
    run = handle(tmp_path / "parts", first)
    run.record(model, optimizer)
    for step in range(1, 4):
        take_step(model, optimizer, step)
        run.report(step, {"loss": 1.0})
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert run.checkpoint(lambda folder: torch.save(state, folder / "state.pt"))

    (model, optimizer), second = small(), list[Report]()
    run = handle(tmp_path / "parts", second)
    folder = run.restore()
    assert folder is not None
    found = torch.load(folder / "state.pt", weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    run.record(model, optimizer)
    for step in range(4, 7):
        take_step(model, optimizer, step)
        run.report(step, {"loss": 1.0})

    assert [r.metrics for r in (*first, *second)] == [r.metrics for r in whole]


def test_a_model_without_weight_vectors_is_refused(tmp_path: Path) -> None:
    model = nn.BatchNorm1d(3)

    with pytest.raises(ValueError, match="model"):
        handle(tmp_path, []).record(model, torch.optim.SGD(model.parameters(), lr=0.1))
