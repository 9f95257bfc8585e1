"""A perceptron on tabular data: how far diabetes is a year later, from ten measurements."""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

import ndsweep  # ndsweep

R2 = ndsweep.Metric("maximize", description="Share of the variance explained.")  # ndsweep
RMSE = ndsweep.Metric("minimize", unit="points")  # ndsweep


@dataclass(frozen=True)
class Config:
    lr: Annotated[float, Field(gt=0, description="Largest step length.")] = 0.003
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    width: Annotated[int, Field(ge=1, le=4096, description="Hidden units.")] = 32
    steps: Annotated[int, Field(ge=25, description="Steps of 32 patients.")] = 300


def r2_and_rmse(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    with torch.no_grad():
        squares = (model(inputs).squeeze(1) - targets).square().mean().item()
    return {"r2": 1 - squares / targets.var(correction=0).item(), "rmse": squares**0.5}


@ndsweep.training(metrics={"r2": R2, "rmse": RMSE})  # ndsweep
def train(config: Config, run: ndsweep.Run) -> None:  # ndsweep
    """Fit 342 patients; report R² on 100 others."""
    inputs, targets = (torch.tensor(a, dtype=torch.float32) for a in load_diabetes(return_X_y=True))
    inputs = inputs / inputs.std(0)
    shuffled = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    held, part = shuffled[:100], shuffled[100:]

    torch.manual_seed(run.seed)  # ndsweep
    model = nn.Sequential(nn.Linear(10, config.width), nn.ReLU(), nn.Linear(config.width, 1))
    nn.init.constant_(model[2].bias, targets[part].mean().item())
    rates = {"lr": config.lr, "weight_decay": config.weight_decay}
    optimizer = torch.optim.AdamW(model.parameters(), **rates)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, config.steps)
    run.record(model, optimizer, every=25)  # ndsweep
    for step in range(1, config.steps + 1):
        batch = part[torch.randint(len(part), (32,))]
        loss = (model(inputs[batch]).squeeze(1) - targets[batch]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 25 == 0:
            found = r2_and_rmse(model, inputs[held], targets[held])
            run.report(step, found, num_steps=config.steps)  # ndsweep
    run.save_weights(model)  # ndsweep
