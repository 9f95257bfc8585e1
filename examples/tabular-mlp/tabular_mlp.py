"""A perceptron on tabular data: how far diabetes is a year later, from ten measurements."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

import ndadam
import ndsweep  # ndsweep

R2 = ndsweep.Metric("maximize", description="Share of the variance explained.")  # ndsweep
RMSE = ndsweep.Metric("minimize", unit="deviations")  # ndsweep


@dataclass(frozen=True)
class Config:
    optimizer: Literal["adam", "ndadam"] = "adam"
    lr: Annotated[float, Field(gt=0, description="Step length.")] = 0.003
    alpha_v: Annotated[float, Field(gt=0, description="ND-Adam's, of weight vectors.")] = 0.01
    width: Annotated[int, Field(ge=1, le=4096, description="Hidden units.")] = 32
    steps: Annotated[int, Field(ge=25, description="Steps of 32 patients.")] = 300


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return (model(batch[0]).squeeze(1) - batch[1]).square().mean()


@ndsweep.training(metrics={"r2": R2, "rmse": RMSE})  # ndsweep
def train(config: Config, run: ndsweep.Run) -> None:  # ndsweep
    """Fit 342 patients; report R² on 100 others."""
    inputs, targets = (torch.tensor(a, dtype=torch.float32) for a in load_diabetes(return_X_y=True))
    inputs, targets = inputs / inputs.std(0), (targets - targets.mean()) / targets.std()
    shuffled = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    held, part = shuffled[:100], shuffled[100:]

    torch.manual_seed(run.seed)  # ndsweep
    hidden = [nn.Linear(10, config.width, bias=False), nn.LayerNorm(config.width), nn.ReLU()]
    model = nn.Sequential(*hidden, nn.Linear(config.width, 1))
    if config.optimizer == "ndadam":
        groups = ndadam.param_groups(model, alpha_v=config.alpha_v, alpha_s=config.lr)
        optimizer = ndadam.NDAdam(groups)
    else:
        optimizer = torch.optim.Adam(model.parameters(), config.lr)
    probe = ndadam.probe(model, (inputs[part], targets[part]), loss_of)
    run.record(model, optimizer, every=25, probe=probe)  # ndsweep
    for step in range(1, config.steps + 1):
        batch = part[torch.randint(len(part), (32,))]
        loss = loss_of(model, (inputs[batch], targets[batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            with torch.no_grad():
                rest = loss_of(model, (inputs[held], targets[held])).item()
            found = {"r2": 1 - rest / targets[held].var(correction=0).item(), "rmse": rest**0.5}
            run.report(step, found, num_steps=config.steps)  # ndsweep
    run.save_weights(model)  # ndsweep
