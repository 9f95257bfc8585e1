"""``ndsweep`` as it is, but its quickstart takes fewer seeds, points and steps of the two presets.

``python -m tests.service.cli.short_quickstart quickstart --once``; everything else is the
command's.
"""

from typing import Any

from service.__main__ import main
from service.cli import quickstart
from service.client.client import Client
from service.contract.outputs import PresetOut


def shortened(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of a preset; that of the match settles in a quarter of the steps, as it decays."""
    if name == quickstart.SWEEP:
        return spec | {"num_points": 6, "replicates": 2}
    if name != quickstart.MATCH:
        return spec
    base, source = spec["base"], spec["source"]
    return spec | {
        "replicates": 2,
        "base": base | {"steps": base["steps"] // 4},
        "source": source | {"weight_decay": 4 * float(source["weight_decay"])},
    }


class ShorterPresets(Client):
    """Hears of the service's presets, shortened."""

    def presets(self) -> list[PresetOut]:
        return [
            preset.model_copy(update={"spec": shortened(preset.name, preset.spec)})
            for preset in super().presets()
        ]


if __name__ == "__main__":
    quickstart.Client = ShorterPresets  # type: ignore[misc]
    main()
