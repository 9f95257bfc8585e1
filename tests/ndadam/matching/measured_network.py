"""A small network with batch normalisation, its batches, and an SGD under which it settles soon."""

import torch
from torch import nn
from torch.nn import functional

# Norms that settle within 300 steps: tau = 0.1 / (4 * 0.1 * 0.004) = 62.
SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.004}
BETAS = (0.9, 0.98)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(12, 24, bias=False),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, 24, bias=False),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, 4),
    )


def batches(seed):
    """Noisy classes: gradients that never die."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(4, 12, generator=torch.Generator().manual_seed(99))
    for _ in range(100):
        labels = torch.randint(4, (16,), generator=draw)
        yield centres[labels] + 1.5 * torch.randn(16, 12, generator=draw), labels


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def first_batch():
    return next(iter(batches(0)))
