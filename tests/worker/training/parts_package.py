"""A package with a part of every kind, for tests of the built-in training."""

from pathlib import Path

from tests.worker.training.installed import write_package

PARTS = """
    from dataclasses import dataclass, field
    from typing import Annotated, Literal
    import torch
    from annotated_types import Ge, Gt, Le
    from torch import nn
    import ndsweep

    @dataclass(frozen=True)
    class Net:
        depth: Annotated[int, Ge(1), Le(8)] = 2
        hidden: Annotated[int, Ge(1)] = 8

    def net(config: Net, data: ndsweep.DataFacts) -> nn.Module:
        layers, before = [nn.Flatten()], torch.zeros(data.shape).numel()
        for _ in range(config.depth):
            layers += [nn.Linear(before, config.hidden), nn.BatchNorm1d(config.hidden), nn.ReLU()]
            before = config.hidden
        return nn.Sequential(*layers, nn.Linear(config.hidden, data.outputs))

    @dataclass(frozen=True)
    class Words:
        length: Annotated[int, Gt(0)] = 6

    def text_net(data: ndsweep.DataFacts) -> nn.Module:
        return nn.Sequential(
            nn.Embedding(data.facts["tokens"], 4), nn.Flatten(),
            nn.Linear(4 * data.shape[0], data.outputs),
        )

    def no_vectors(data: ndsweep.DataFacts) -> nn.Module:
        class Bias(nn.Module):
            def __init__(self):
                super().__init__()
                self.bias = nn.Parameter(torch.zeros(data.outputs))

            def forward(self, inputs):
                return self.bias.expand(len(inputs), -1)

        return Bias()

    def drawn(*shape, seed=0):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))

    @ndsweep.dataset("regression")
    def numbers() -> ndsweep.Examples:
        x = drawn(80, 5)
        y = x @ torch.arange(5.0)
        return ndsweep.Examples(train=(x[:64], y[:64]), test=(x[64:].numpy(), y[64:]))

    @ndsweep.dataset("multilabel")
    def labels() -> ndsweep.Examples:
        x = drawn(80, 5)
        y = (x[:, :3] > 0).float()
        return ndsweep.Examples(train=(x[:64], y[:64]), test=(x[64:], y[64:]))

    class Pairs(torch.utils.data.Dataset):
        def __init__(self, start, stop, length):
            words = torch.arange(start, stop)[:, None] * torch.arange(1, length + 1) % 7
            self.pairs = [(row, int(row[0]) % 2) for row in words]

        def __len__(self):
            return len(self.pairs)

        def __getitem__(self, i):
            return self.pairs[i]

    @ndsweep.dataset()
    def text(config: Words) -> ndsweep.Examples:
        length = config.length
        return ndsweep.Examples(
            Pairs(0, 70, length), Pairs(70, 90, length), facts={"tokens": 7}
        )

    @ndsweep.dataset(images=True)
    def pictures() -> ndsweep.Examples:
        x = (drawn(48, 8, 8, 3).abs() * 80).clamp(max=255).byte()
        x[::2] //= 4
        y = torch.arange(48) % 2
        return ndsweep.Examples(train=(x[:40], y[:40]), test=(x[40:], y[40:]))

    @dataclass(frozen=True)
    class Free:
        eta: Annotated[float, Gt(0)] = 0.05
        lr_schedule: Literal["constant"] = "constant"

    class ScheduleFree(torch.optim.Optimizer):
        '''Steps on y, and evaluates at the mean of all y.'''

        def __init__(self, groups, lr):
            super().__init__(groups, {"lr": lr})
            self.training, self.calls = False, []

        @torch.no_grad()
        def step(self):
            assert self.training
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state.setdefault("mean", torch.zeros_like(p))
                    state["t"] = state.get("t", 0) + 1
                    p.add_(p.grad, alpha=-group["lr"])
                    state["mean"].lerp_(p, 1 / state["t"])

        def _swap(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if "mean" in self.state[p]:
                        kept = p.detach().clone()
                        p.data.copy_(self.state[p]["mean"])
                        self.state[p]["mean"].copy_(kept)

        def train(self):
            if not self.training:
                self._swap()
            self.training = True

        def eval(self):
            if self.training:
                self._swap()
            self.training = False

    @ndsweep.optimizer(rate="eta")
    def free(config: Free, groups):
        return ScheduleFree(groups, config.eta)

    @dataclass(frozen=True)
    class Sgd:
        lr: Annotated[float, Gt(0)] = 0.05
        scalar_lr: float = 0.01
        weight_decay: float = 0.5

    @ndsweep.optimizer(scalars="scalar_lr")
    def two_rates(config: Sgd, groups):
        return torch.optim.SGD(groups, lr=0.0)

    @dataclass(frozen=True)
    class Mix:
        alpha: Annotated[float, Gt(0)] = 0.4

    def mixup(config: Mix, data: ndsweep.DataFacts):
        def mix(inputs, targets):
            part = torch.distributions.Beta(config.alpha, config.alpha).sample()
            order = torch.randperm(len(inputs))
            targets = nn.functional.one_hot(targets, data.outputs).float()
            return inputs.lerp(inputs[order], part), targets.lerp(targets[order], part)

        return mix

    class Scaled(nn.Module):
        '''Squared error over its own running mean: a loss with state.'''

        def __init__(self, power):
            super().__init__()
            self.power = power
            self.register_buffer("scale", torch.ones(()))

        def forward(self, outputs, targets):
            found = (outputs - targets).abs().pow(self.power).mean()
            if outputs.requires_grad:
                self.scale.lerp_(found.detach(), 0.1)
            return found / self.scale

    @dataclass(frozen=True)
    class Power:
        power: Annotated[float, Ge(1), Le(4)] = 2.0

    @ndsweep.loss(unit="mm")
    def scaled(config: Power, data: ndsweep.DataFacts):
        return Scaled(config.power)

    @ndsweep.metric("maximize", unit="points")
    def worst(outputs, targets) -> float:
        return -(outputs - targets).abs().max()
"""
REGISTERS = {
    "networks/net": "net",
    "networks/text-net": "text_net",
    "networks/no-vectors": "no_vectors",
    "datasets/numbers": "numbers",
    "datasets/labels": "labels",
    "datasets/text": "text",
    "datasets/pictures": "pictures",
    "optimizers/free": "free",
    "optimizers/two-rates": "two_rates",
    "augmentations/mixup": "mixup",
    "losses/scaled": "scaled",
    "metrics/worst": "worst",
}


def write_parts(folder: Path, **fields: str) -> Path:
    """Write the package; return ``folder``."""
    return write_package(
        folder, PARTS, package="my-parts", module="my_parts", registers=REGISTERS, **fields
    )
