"""``ndsweep serve`` as it is, but its trials run these tests' workload: one CPU, short leases.

``python -m tests.faults.serve``; settings come from the environment.
"""

import sys
from collections.abc import Callable

from service.settings import Settings
from service.supervision import supervisor

WORKLOAD = "tests.faults.workload"


def with_options(command: Callable[..., list[str]], *options: str) -> Callable[..., list[str]]:
    """The same command line with options of ours behind it."""
    return lambda *arguments: [*command(*arguments), *options]


def main() -> int:
    """Serve until SIGTERM."""
    supervisor.runner_command = with_options(
        supervisor.runner_command, "--trainable", f"{WORKLOAD}:steady", "--lease", "3"
    )
    supervisor.ray_command = with_options(
        supervisor.ray_command, "--num-cpus", "1", "--num-gpus", "0", "--preload", WORKLOAD
    )
    supervisor.serve(Settings(), lambda endpoints: None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
