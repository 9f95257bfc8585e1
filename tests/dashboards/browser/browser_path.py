"""Which Chromium is driven; nothing is imported here that only a browser needs."""

import os
import shutil


def chromium_path() -> str | None:
    """The one that is set, or the system's; None where only playwright's own is left."""
    return os.environ.get("NDSWEEP_CHROMIUM") or shutil.which("chromium")
