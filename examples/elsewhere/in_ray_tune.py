"""The sweep of examples/gradient-boosting in Ray Tune: six points, three seeds each."""

from boosting import train
from ray import tune
from ray.tune.search.basic_variant import BasicVariantGenerator


def trainable(config: dict) -> None:
    for error in train(**config):
        tune.report({"validation_error": error})


space = {
    "learning_rate": tune.loguniform(0.05, 0.5),
    "depth": tune.randint(1, 5),
    "seed": tune.grid_search([0, 1, 2]),
}
# Without it, each seed would get points of its own.
search = BasicVariantGenerator(constant_grid_search=True, random_state=0)
how = tune.TuneConfig(num_samples=6, search_alg=search, metric="validation_error", mode="min")
results = tune.Tuner(trainable, param_space=space, tune_config=how).fit()
print(results.get_best_result().config, results.get_best_result().metrics["validation_error"])
points = results.get_dataframe().groupby(["config/learning_rate", "config/depth"])
print(points["validation_error"].agg(["mean", "std", "count"]).sort_values("mean").to_string())
