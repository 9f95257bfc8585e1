"""Results of other tools, imported as finished sweeps: Optuna, W&B, Ray Tune, CSV."""
