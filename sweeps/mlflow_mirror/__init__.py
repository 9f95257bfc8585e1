"""Copies of sweeps, trials and models in MLflow.

May import: analysis, errors, match, records, retention, store.
"""
