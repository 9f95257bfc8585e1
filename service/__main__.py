"""``python -m service``: the command ``ndsweep``."""

from service.cli import app

app(prog_name="ndsweep")
