"""``ndsweep`` as it is, but its quickstart takes fewer seeds and points of the two presets.

``python -m tests.service.short_quickstart quickstart --once``; everything else is the command's.
"""

from typing import Any

from service import quickstart
from service.__main__ import main
from service.client import Client
from service.outputs import PresetOut

FEWER: dict[str, dict[str, Any]] = {
    quickstart.MATCH: {"replicates": 2},
    quickstart.SWEEP: {"num_points": 6, "replicates": 2},
}


class FewerSeeds(Client):
    """Hears of the service's presets with fewer seeds."""

    def presets(self) -> list[PresetOut]:
        return [
            preset.model_copy(update={"spec": preset.spec | FEWER.get(preset.name, {})})
            for preset in super().presets()
        ]


if __name__ == "__main__":
    quickstart.Client = FewerSeeds  # type: ignore[misc]
    main()
