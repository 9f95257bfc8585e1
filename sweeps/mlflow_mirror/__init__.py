"""Copies of sweeps, trials and models in MLflow.

May import: analysis, errors, figures, match, records, retention, store.
"""
