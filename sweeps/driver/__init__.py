"""The runner, the drivers it starts, and how Ray Tune runs their trials.

May import: analysis, cluster, errors, match, mlflow_mirror, records, retention, search, spec,
store.
"""
