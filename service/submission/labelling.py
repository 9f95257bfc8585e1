"""What people find a sweep by, changed at any time."""

from service.contract.inputs import Labels
from sweeps.records import Sweep
from sweeps.store.store import Store


def label(store: Store, sweep_id: str, labels: Labels) -> Sweep:
    """Replace a sweep's tags or notes; what is None stays. Raises SweepNotFound."""
    sweep = store.get_sweep(sweep_id)
    if labels.tags is not None:
        sweep = store.set_tags(sweep_id, labels.tags)
    if labels.notes is not None:
        sweep = store.set_notes(sweep_id, labels.notes)
    return sweep
