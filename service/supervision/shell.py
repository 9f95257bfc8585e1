"""The one program of the system that a service needs: Ray starts its workers with bash."""

import os
import shutil

from service.settings import SettingsError


def require_bash() -> None:
    """Raise SettingsError where Ray is to run on this machine and bash is not on PATH.

    Ray would say so nowhere: it tries each worker five times, and the trials wait.
    """
    if not os.environ.get("RAY_ADDRESS") and shutil.which("bash") is None:
        raise SettingsError(
            "bash is not on PATH, and Ray starts its workers with it; install bash or complete PATH"
        )
