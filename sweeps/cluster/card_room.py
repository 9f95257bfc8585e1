"""Do the trials of a spec fit on the cluster's cards? Imports neither ray nor torch."""

from sweeps.cluster.capacity import ClusterShape, Refusal
from sweeps.spec.sweep_spec import Resources
from worker.config.train_config import FieldError, TrainConfig
from worker.data.prepared import DatasetInfo
from worker.steps.memory_estimate import check_memory


def no_room(
    config: TrainConfig,
    info: DatasetInfo,
    resources: Resources,
    shape: ClusterShape | None,
    *,
    measured: bool,
) -> Refusal | None:
    """Say why a card cannot hold such trials, with the estimate; None where it can.

    ``measured``: every step is recorded, as in a match. Nothing is refused while the cards are not
    known; a worker looks again before it trains. A fraction of a card without ``trials_per_gpu`` is
    shared by processes that know nothing of each other: each is held against the whole card.
    """
    card = None if shape is None else shape.card_bytes
    if card is None or resources.gpus == 0:
        return None
    try:
        check_memory(
            config.resolved(),
            info,
            card,
            trials_per_gpu=resources.trials_per_gpu,
            measured=measured,
        )
    except FieldError as error:
        return Refusal(error.field, str(error))
    return None
