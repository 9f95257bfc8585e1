"""The sweep of examples/gradient-boosting in Hydra: `python in_hydra.py --multirun`."""

import statistics

import hydra
from boosting import train
from omegaconf import DictConfig


@hydra.main(version_base="1.3", config_path=".", config_name="in_hydra")
def objective(config: DictConfig) -> float:
    errors = [list(train(config.learning_rate, config.depth, seed))[-1] for seed in range(3)]
    print("sd", statistics.stdev(errors))
    return statistics.mean(errors)


objective()
