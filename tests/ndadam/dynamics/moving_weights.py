"""Networks that turn in a few steps, and what happened to their weights written down by hand."""

import torch
from torch import nn
from torch.nn import functional

from ndadam import EffectiveLR, weight_vectors


def small_net(dtype=torch.float64):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4, eps=1e-12),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 3, 2),
        nn.Flatten(),
        nn.Linear(75, 5),
    )
    return model.to(dtype)


def batches(n, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(8, 2, 6, 6, generator=generator, dtype=dtype),
            torch.randint(5, (8,), generator=generator),
        )
        for _ in range(n)
    ]


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def sgd(model, lr=0.1, weight_decay=1e-2, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)


def train(model, optimizer, data):
    """Weights before the first and after every step, and the gradients of every step."""
    weights, grads = [snapshot(model)], []
    for batch in data:
        optimizer.zero_grad()
        loss(model, batch).backward()
        grads.append([rows(v, v.parameter.grad) for v in weight_vectors(model)])
        optimizer.step()
        weights.append(snapshot(model))
    return weights, grads


def rows(v, tensor):
    return tensor.detach().movedim(v.vector_dim, 0).flatten(1).clone()


def snapshot(model):
    return [rows(v, v.parameter) for v in weight_vectors(model)]


def rms(values):
    return values.square().mean().sqrt().item()


def random_walk(steps, rho=0.0, lr=0.1, mu=0.9, decay=1e-3, betas=None, optimizer=None):
    """SGD on gradients that are noise orthogonal to w: autocorrelation rho, size 1 / ||w||."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Linear(200, 20, bias=False).double()
    with torch.no_grad():
        # Equilibrium norm for unit gradients: (lr / (2 decay (1 - mu)))^(1/4), matching.md 1.4.
        norm = (lr / (2 * decay * (1 - mu))) ** 0.25
        model.weight.copy_(torch.randn(20, 200, generator=generator))
        model.weight.mul_(norm / torch.linalg.vector_norm(model.weight, dim=1, keepdim=True))
    made = optimizer(model) if optimizer else sgd(model, lr, decay, mu)
    dynamics = EffectiveLR(model, made, shadow_betas=betas)
    noise = torch.zeros(20, 200, dtype=torch.float64)
    for _ in range(steps):
        fresh = torch.randn(20, 200, generator=generator, dtype=torch.float64) / 200**0.5
        noise = rho * noise + (1 - rho**2) ** 0.5 * fresh
        w = model.weight.detach()
        ww = w.square().sum(1, keepdim=True)
        model.weight.grad = (noise - (noise * w).sum(1, keepdim=True) / ww * w) / ww.sqrt()
        made.step()
    return dynamics
