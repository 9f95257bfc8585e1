"""Parts of the built-in training: a perceptron, tumours, Lion, the focal loss and macro-F1."""

import torch
from pydantic import BaseModel, Field
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import ndsweep  # ndsweep


class Net(BaseModel):
    width: int = Field(32, ge=1, le=4096, description="Hidden units.")


def network(config: Net, data: ndsweep.DataFacts) -> nn.Module:  # ndsweep
    hidden = nn.Linear(data.shape[0], config.width)
    return nn.Sequential(hidden, nn.ReLU(), nn.Linear(config.width, data.outputs))


def tumours() -> ndsweep.Examples:  # ndsweep
    x, y = load_breast_cancer(return_X_y=True)
    x, x_test, y, y_test = train_test_split((x - x.mean(0)) / x.std(0), y, random_state=0)
    return ndsweep.Examples(train=(x, y), test=(x_test, y_test))  # ndsweep


class LionFields(BaseModel):
    lr: float = Field(1e-3, gt=0, le=1)


class Lion(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.sub_(mean.lerp(p.grad, 0.1).sign_(), alpha=group["lr"])
                mean.lerp_(p.grad, 0.01)


def lion(config: LionFields, groups: list[dict]) -> Lion:
    return Lion(groups, {"lr": config.lr})


class Focal(BaseModel):
    gamma: float = Field(2.0, ge=0, le=10, description="0: cross-entropy.")


def focal(config: Focal, data: ndsweep.DataFacts):  # ndsweep
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nats = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return ((1 - torch.exp(-nats)) ** config.gamma * nats).mean()

    return loss


@ndsweep.metric("maximize")  # ndsweep
def macro_f1(outputs: Tensor, targets: Tensor) -> float:
    return f1_score(targets.cpu(), outputs.argmax(1).cpu(), average="macro")
