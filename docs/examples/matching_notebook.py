"""Matching on a network that is not a WRN. ``docs/matching.ipynb`` is made of this script.

Cells begin with ``# %%``; those that begin with ``# %% [markdown]`` are text.
"""

# %% [markdown]
# # What is your SGD worth in AdamW, and in ND-Adam?
#
# On a perceptron for scikit-learn's digits, in a loop of our own. Nothing here needs a service.

# %%
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import ndadam
from ndadam.matching.runs import Loop
from ndadam.theory.laws import OptimizerSetting

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
labels = torch.tensor(digits.target)


def batches(seed):
    """A hundred noisy batches of 32: the noise keeps gradients alive on an easy set."""
    draw = torch.Generator().manual_seed(seed)
    for _ in range(100):
        chosen = torch.randint(len(images), (32,), generator=draw)
        yield images[chosen] + 0.5 * torch.randn(32, 64, generator=draw), labels[chosen]


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)


model = nn.Sequential(
    nn.Linear(64, 64, bias=False),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 64, bias=False),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 10),
)

# %% [markdown]
# ## Two lines attach the measurement
#
# `probe` asks with one backward pass which weight vectors the loss does not see the length of. The
# loop stays as it was.

# %%
STEPS = 1800
SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}
trained = copy.deepcopy(model)
optimizer = torch.optim.SGD(trained.parameters(), **SGD)

found = ndadam.probe(trained, next(batches(0)), loss)
dynamics = ndadam.EffectiveLR(trained, optimizer, shadow_betas=(0.9, 0.999), probe=found)

for epoch in range(4):
    for batch in batches(epoch):
        optimizer.zero_grad()
        loss(trained, batch).backward()
        optimizer.step()

print(found.counts())

# %% [markdown]
# ## What it equals
#
# Until which step, and not for which layers, is part of the answer.

# %%
answer = ndadam.equivalents(optimizer, trained, num_steps=STEPS, dynamics=dynamics, probe=found)
print(answer)

# %% [markdown]
# ## Two short runs confirm it
#
# SGD beside ND-Adam at that α^v, AdamW at that product, over the second half of the run. AdamW's
# norms need longer to settle than this run is, so it is the rougher of the two.

# %%
loop = Loop(model, loss, batches, STEPS, found, 1e-3, False, lambda step: 1.0)
settings = {
    "sgd": OptimizerSetting("sgd", **SGD),
    "ndadam": OptimizerSetting("ndadam", lr=answer.alpha_v, betas=(0.9, 0.99)),
    "adamw": OptimizerSetting("adamw", lr=answer.adamw_product / 0.5, weight_decay=0.5),
}
runs = {name: loop.train(setting, seed=0) for name, setting in settings.items()}
rates = {
    name: (sum(e * e for e in run.record.effective_lr[STEPS // 2 :]) / (STEPS - STEPS // 2)) ** 0.5
    for name, run in runs.items()
}
for name, rate in rates.items():
    print(f"{name:7s} {rate:.5f} per step, {rate / rates['sgd']:.3f} of SGD's")

# %% [markdown]
# ## The whole match in one call
#
# Prediction, calibration, fresh runs, a verdict with its interval.

# %%
match = ndadam.match_alpha_v(
    model, loss, batches, sgd=SGD, betas=(0.9, 0.99), num_steps=STEPS, seeds=(0, 1, 2)
)
print(match)

# %% [markdown]
# The page [Matching](matching.md) says how to read the verdict.
