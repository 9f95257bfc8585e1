"""What trials used of their machines: panels of a trial's page, and words for it."""

from fastapi import APIRouter
from fastapi.responses import Response

from dashboards.plots.answers import NO_PLOT, Form, plot_answer
from dashboards.plots.usage import names_of, usage_plot
from dashboards.web.error_pages import PageRoute
from dashboards.wording.formatting import number
from dashboards.wording.sweep_facts import StoreDep
from sweeps.records import MachineUse
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

#: Values of each curve that a panel draws at most.
MAX_SAMPLES = 1000

#: Columns of the table of trials, as its address names them -> heading.
COLUMNS = {
    "usage.gpu_hours": "GPU-hours",
    "usage.gpu_utilization_percentage": "Load of the card (%)",
    "usage.energy_watt_hours": "Energy (Wh)",
    "usage.gpu_memory_megabytes": "Memory of the card (MB)",
    "usage.cpu_hours": "CPU-hours",
    "usage.memory_megabytes": "Main memory (MB)",
}


@router.get("/sweeps/{sweep_id}/trials/{number}/plots/usage/{name}.{form}")
def usage_panel(
    sweep_id: str, number: int, name: str, form: Form, store: Store = StoreDep
) -> Response:
    """One panel of what a trial used of its machine."""
    curves = store.usage_curves(sweep_id, number)
    shown = {key: thin(curves[key], MAX_SAMPLES) for key in names_of(name, list(curves))}
    plot = usage_plot(name, shown) if shown else NO_PLOT
    return plot_answer(
        plot, form, file_name=f"{sweep_id}-{number}-usage", empty="This was not measured."
    )


def measured(use: MachineUse, name: str) -> float | None:
    """The value of one of ``COLUMNS``."""
    found: float | None = vars(use)[name.removeprefix("usage.")]
    return found


def columns_of(use: MachineUse) -> list[str]:
    """The columns that a sweep has values for."""
    return [name for name in COLUMNS if measured(use, name) is not None]


def hours_text(use: MachineUse) -> str:
    """Hours of cards, or of the processor; "" if neither was measured."""
    if use.gpu_hours is not None:
        return f"{number(use.gpu_hours, 3)} GPU-hours"
    return f"{number(use.cpu_hours, 3)} CPU-hours" if use.cpu_hours is not None else ""


def detail_text(use: MachineUse) -> str:
    """Load and energy of the cards, or memory of the process, and whether it was shared."""
    words = []
    if use.gpu_utilization_percentage is not None:
        words.append(f"load {number(use.gpu_utilization_percentage, 3)} %")
    if use.energy_watt_hours is not None:
        words.append(energy_text(use.energy_watt_hours))
    if not words and use.memory_megabytes is not None:
        words.append(f"{number(use.memory_megabytes, 3)} MB")
    if use.sharing is not None and use.sharing > 1:
        words.append(f"shared by up to {use.sharing} trials")
    return ", ".join(words)


def energy_text(watt_hours: float) -> str:
    """Energy in Wh, or kWh from 1,000 Wh on."""
    if watt_hours >= 1000:
        return f"{number(watt_hours / 1000, 3)} kWh"
    return f"{number(watt_hours, 3)} Wh"
