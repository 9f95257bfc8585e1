"""Runs the benchmark of matching as where only torch, numpy and pydantic are installed."""

import runpy
import sys

#: What an installation of the product brings beside them, and packages that need it.
ABSENT = set(
    "alembic dashboards fastapi httpx matplotlib mlflow optuna pandas PIL psutil ray rich scipy "
    "service sklearn sqlalchemy starlette torchvision typer uvicorn yaml".split()
)


class Without:
    """A finder of modules that does not find some."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


if __name__ == "__main__":
    sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
    sys.argv[0] = "matching"
    runpy.run_module("benchmarks.matching", run_name="__main__")
