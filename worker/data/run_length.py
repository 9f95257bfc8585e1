"""Length of a run, and checks of a config against its data set. Imports no torch.

A service calls ``check_fits`` when a spec is submitted, so that a batch larger than the set is
refused then and not inside a trial.
"""

from dataclasses import dataclass

from worker.config.train_config import FieldError, TrainConfig
from worker.data.prepared import DatasetInfo
from worker.data.split import held_out_counts

#: Images of at most this side shrink to one pixel in a network that halves them twice.
_ONE_PIXEL = 4


@dataclass(frozen=True)
class Length:
    """Length of a run in steps."""

    num_steps: int
    steps_per_epoch: int
    batch_size: int
    #: Training images, without the validation split.
    num_train: int

    def size_of(self, step: int) -> int:
        """Return the number of images in a step's batch; an epoch's last batch may be smaller."""
        start = step % self.steps_per_epoch * self.batch_size
        return min(self.batch_size, self.num_train - start)


def check_fits(config: TrainConfig, info: DatasetInfo) -> Length:
    """Return the length of a config's run on a prepared set. Raises FieldError on a misfit."""
    config = config.resolved()
    num_train = info.num_train - sum(held_out_counts(info.train_counts, config.validation_fraction))
    if min(info.shape[:2]) < 4:
        raise FieldError(
            "dataset",
            "dataset must have images of at least 4 x 4 pixels, because the network halves them "
            f"twice; got {info.shape[0]} x {info.shape[1]}",
        )
    if config.shortcut == "pool_pad" and config.network == "wrn" and config.widen_factor < 1:
        raise FieldError(
            "widen_factor",
            "widen_factor must be at least 1 with shortcut 'pool_pad', which can only add "
            f"channels; got {config.widen_factor}",
        )
    length = run_length(config, num_train)
    _check_smallest_batch(config, info, length)
    return length


def _check_smallest_batch(config: TrainConfig, info: DatasetInfo, length: Length) -> None:
    """Refuse a batch of one image if a batch norm would then normalise a single value."""
    if min(map(length.size_of, (0, length.steps_per_epoch - 1))) > 1:
        return
    if config.gamma_c is not None:
        why = "gamma_c, whose batch norm needs two"
    elif config.network == "mlp":
        why = "network 'mlp', whose batch norm needs two"
    elif config.network == "wrn" and max(info.shape[:2]) <= _ONE_PIXEL:
        why = "images of 4 x 4 pixels, of which the last batch norm of a wrn sees one"
    else:
        return
    raise FieldError(
        "batch_size",
        f"batch_size must leave no batch of one image with {why}; got {length.batch_size} over "
        f"{length.num_train} training images",
    )


def run_length(config: TrainConfig, num_train: int) -> Length:
    """Return a resolved config's length over ``num_train`` images. Refuses too large batches."""
    size = config.batch_size
    if size > num_train:
        raise FieldError(
            "batch_size",
            f"batch_size must be at most the {num_train} training images (after the validation "
            f"split), got {size}",
        )
    rest = num_train % size
    per_epoch = num_train // size + (config.last_batch == "keep" and rest > 0)
    steps = config.steps if config.steps is not None else (config.epochs or 0) * per_epoch
    return Length(steps, per_epoch, size, num_train)
