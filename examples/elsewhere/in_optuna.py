"""The sweep of examples/gradient-boosting in Optuna: six points, three seeds each."""

import statistics

import optuna
from boosting import train


def objective(trial: optuna.Trial) -> float:
    learning_rate = trial.suggest_float("learning_rate", 0.05, 0.5, log=True)
    depth = trial.suggest_int("depth", 1, 4)
    errors = [list(train(learning_rate, depth, seed))[-1] for seed in range(3)]
    trial.set_user_attr("sd", statistics.stdev(errors))
    return statistics.mean(errors)


study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(objective, n_trials=6)
print(study.best_params, study.best_value)
columns = ("number", "value", "params", "user_attrs")
print(study.trials_dataframe(columns).sort_values("value").to_string())
