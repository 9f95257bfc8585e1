"""The paper's two runs as settings, and their lag taken step by step."""

import math

from ndadam.theory.prediction import (
    OptimizerSetting,
)

NDADAM = OptimizerSetting("ndadam")
SGD = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3)
SGD_5E4 = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=5e-4)
#: The paper's two runs: settings, steps.
RUNS = [(SGD, 80_000), (SGD_5E4, 78_200)]


def cosine(num_steps):
    return lambda step: 0.5 * (1 + math.cos(math.pi * step / num_steps))


def recurrence(setting, num_steps):
    """The lag of SGD under a cosine, one step at a time."""
    factor, h, values = cosine(num_steps), setting.lr, []
    for step in range(num_steps):
        lr = setting.lr * factor(step)
        e = math.sqrt(2 * setting.weight_decay / (1 + setting.momentum)) * lr / math.sqrt(h)
        values.append(e)
        h += 4 * setting.weight_decay * lr / (1 - setting.momentum) * (lr - h)
    return values
