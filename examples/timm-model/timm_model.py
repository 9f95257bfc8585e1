"""Networks of timm, the smallest that it has and not pretrained, on scikit-learn's digits."""

from dataclasses import dataclass
from typing import Annotated, Literal

import timm
import torch
from pydantic import Field
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy, interpolate

import ndsweep  # ndsweep

ERROR = ndsweep.Metric("minimize", unit="%")  # ndsweep


@dataclass(frozen=True)
class Config:
    network: Literal["test_efficientnet", "test_resnet"] = "test_resnet"
    lr: Annotated[float, Field(gt=0, description="Largest step length.")] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    steps: Annotated[int, Field(ge=20, description="Steps of 32 images.")] = 80


@ndsweep.training(metrics={"validation_error": ERROR})  # ndsweep
def train(config: Config, run: ndsweep.Run) -> None:  # ndsweep
    """Classify digits of 32 x 32 pixels; report the error on 400 that are held out."""
    images, labels = (torch.tensor(a) for a in load_digits(return_X_y=True))
    images = interpolate(images.reshape(-1, 1, 8, 8).float() / 8 - 1, scale_factor=4.0)
    shuffled = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    held, part = shuffled[:400], shuffled[400:]

    torch.manual_seed(run.seed)  # ndsweep
    device = run.device  # ndsweep
    model = timm.create_model(config.network, in_chans=1, num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), config.lr, config.momentum, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, config.steps)
    run.record(model, optimizer, every=20)  # ndsweep
    for step in range(1, config.steps + 1):
        batch = part[torch.randint(len(part), (32,))]
        loss = cross_entropy(model(images[batch].to(device)), labels[batch].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            with torch.no_grad():
                guesses = model.eval()(images[held].to(device)).argmax(1).cpu()
            model.train()
            error = (guesses != labels[held]).float().mean().item()
            run.report(step, {"validation_error": error}, num_steps=config.steps)  # ndsweep
