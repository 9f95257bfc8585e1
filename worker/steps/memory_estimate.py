"""How much of a card a run takes, and how many runs fit on one. Imports no torch.

An estimate from the shapes of the built-in wide residual networks: what a step keeps for its
backward pass, what belongs to each weight, and what evaluation and convolutions borrow. It is made
to be above what a run takes, not beside it; docs/operations.md has it next to measured figures.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from worker.config.train_config import FieldError, TrainConfig
from worker.data.prepared import DatasetInfo

MIB = 2**20
#: CUDA's context, the libraries' kernels and the host's own cache: once per process.
CONTEXT = 900 * MIB
#: Of a card that runs may fill; what is freed in pieces cannot all be used again.
USABLE = 0.95
#: What convolutions borrow while they run, and the 64 MiB that cuBLAS keeps for each stream.
_WORKSPACE = 320 * MIB
#: Images that an evaluation on a card looks at together.
#: An H100 needs 10.8 us per image of WRN-22-7.5 with 500, 10.4 with 1,000 and no less with more.
#: 5,000 and 10,000 images are a whole number of such batches, so each set has one graph.
EVALUATED = 1000
#: Activations of them that are alive at a time.
_ALIVE = 4
#: What cuDNN tries algorithms of convolutions in when a network's first step chooses them, in
#: largest activations of a batch. The first WRN-16-4 of a process took 53 more than the second.
_TRIED = 55
#: Channels are padded for the matrix units, by this part at most beyond the next multiple.
_CHANNELS, _PADDING = 16, 1.07
#: Bytes of state for each weight, of SGD without momentum; of packages' optimizers not known.
_STATE = {"sgd": 0, "adam": 8, "adamw": 8, "ndadam": 4}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that one run takes on a card."""

    #: Weights, gradients, the optimizer's state, copies that steps and reports work with.
    weights: int
    #: What a step keeps for its backward pass, and the widest of its gradients.
    activations: int
    #: What convolutions and evaluation borrow.
    borrowed: int
    #: The images, on the card once for all runs of a process.
    images: int
    #: What choosing convolutions takes in a first step; one run at a time takes one.
    choosing: int

    @property
    def own(self) -> int:
        """What every further run of the same process takes."""
        return self.weights + self.activations + self.borrowed

    @property
    def shared(self) -> int:
        """What all runs of a process take together once, with the process itself."""
        return CONTEXT + self.images + self.choosing

    def total(self, runs: int = 1) -> int:
        """What so many runs in one process take, with the process itself."""
        return self.shared + runs * self.own

    def most(self, card_bytes: int) -> int:
        """How many runs fit side by side on a card of so many bytes."""
        left = USABLE * card_bytes - self.shared
        return max(0, math.floor(left / self.own))

    def describe(self) -> str:
        """The parts in words."""
        parts = (
            (self.weights, "weights and optimizer"),
            (self.activations, "activations"),
            (self.borrowed, "workspace and evaluation"),
            (self.choosing, "to choose convolutions"),
        )
        return ", ".join(f"{gib(size)} {name}" for size, name in parts)


def gib(size: float) -> str:
    """Bytes in words."""
    return f"{size / 2**30:.2f} GiB"


def memory_plan(
    config: TrainConfig, info: DatasetInfo, *, measured: bool = False
) -> MemoryPlan | None:
    """The plan of a resolved config's run; None for networks whose shapes are not known here.

    ``measured``: every step is recorded (``worker.report``).
    """
    if config.network != "wrn" or config.optimizer not in _STATE:
        return None
    height, width, channels = info.shape
    stepwise = config.deterministic or measured
    shape = _Shape(config, height, width, channels, info.num_classes, stepwise)
    batch = config.batch_size
    size = 2 if config.precision == "bf16" else 4
    kept, widest = shape.kept() * batch * size, shape.widest() * size
    images = (info.num_train + info.num_test) * (height * width * channels + 8)
    return MemoryPlan(
        weights=shape.parameters() * _bytes_per_weight(config, measured),
        activations=int(kept + 3 * widest * batch),
        borrowed=int(_WORKSPACE + _ALIVE * widest * min(EVALUATED, info.num_test)),
        images=images,
        choosing=int(_TRIED * widest * batch),
    )


def check_memory(
    config: TrainConfig,
    info: DatasetInfo,
    card_bytes: int,
    *,
    trials_per_gpu: int = 1,
    measured: bool = False,
) -> None:
    """Refuse what does not fit on a card, before anything is trained.

    Raises FieldError with the estimate: of ``batch_size`` when one run is too large for the card,
    of ``trials_per_gpu`` when only so many of them are.
    """
    plan = memory_plan(config, info, measured=measured)
    if plan is None:
        return
    most = plan.most(card_bytes)
    name = f"WRN-{config.depth}-{config.widen_factor:g} at batch {config.batch_size}"
    if most == 0:
        raise FieldError(
            "batch_size",
            f"batch_size must leave a run that fits on the card: {name} in {config.precision} "
            f"takes about {gib(plan.total())} ({plan.describe()}), and the card has "
            f"{gib(card_bytes)}; got batch_size = {config.batch_size}",
        )
    if trials_per_gpu > most:
        raise FieldError(
            "trials_per_gpu",
            f"trials_per_gpu must be at most {most} for {name} in {config.precision}: one takes "
            f"about {gib(plan.own)} beside the {gib(plan.shared)} that all share, "
            f"{trials_per_gpu} take {gib(plan.total(trials_per_gpu))}, and the card has "
            f"{gib(card_bytes)}; got {trials_per_gpu}",
        )


def _bytes_per_weight(config: TrainConfig, measured: bool) -> int:
    """Of one weight: itself, its gradient, a working copy, the optimizer's state, diagnostics."""
    state = 4 if config.optimizer == "sgd" and config.momentum else _STATE[config.optimizer]
    working = 2 if config.precision == "bf16" else 4
    # Before a report each weight is copied, and with SGD the share of weight decay is followed.
    diagnostics = 8 if config.optimizer == "sgd" else 4
    # A measurement keeps the weights of the step before, what was added to them, their gradients,
    # decay's share and shadow moments; products of up to eight pairs of these; and in between the
    # tangents, with two numbers of their vectors repeated.
    diagnostics += 20 + 32 + 16 if measured else 0
    return 4 + 4 + working + state + diagnostics


class _Shape:
    """Sizes of a wide residual network on one image."""

    def __init__(
        self,
        config: TrainConfig,
        height: int,
        width: int,
        channels: int,
        classes: int,
        stepwise: bool,
    ) -> None:
        base = round(16 * config.widen_factor)
        self._widths = (16, base, 2 * base, 4 * base)
        self._blocks = (config.depth - 4) // 6
        self._pixels = [math.ceil(height / k) * math.ceil(width / k) for k in (1, 1, 2, 4)]
        self._inputs, self._classes = channels, classes
        self._has_convolution = config.shortcut == "conv"
        # Step by step autograd also keeps what lies between normalisation and activation.
        self._tensors = 3 if stepwise else 2

    def kept(self) -> int:
        """Values that a step keeps for its backward pass.

        A normalisation keeps its input and the convolution behind it its own; both are there twice
        in a block.
        """
        total = self._value(0, self._pixels[0])
        for group in (1, 2, 3):
            first = self._value(group - 1, self._pixels[group - 1])
            inner = self._value(group, self._pixels[group])
            total += first + inner + 2 * (self._blocks - 1) * inner
        return self._tensors * (total + self._value(3, self._pixels[3]))

    def widest(self) -> int:
        """Values of the largest activation."""
        return max(self._value(k, self._pixels[k]) for k in range(4))

    def parameters(self) -> int:
        """Weights of all convolutions, which the normalisations' hardly add to."""
        widths, n = self._widths, self._blocks
        total = 9 * self._inputs * widths[0] + widths[3] * self._classes
        for before, after in pairwise(widths):
            total += 9 * (before * after + (2 * n - 1) * after * after)
            total += before * after if self._has_convolution and before != after else 0
        return total

    def _value(self, group: int, pixels: int) -> int:
        width = self._widths[group]
        aligned = -(-width // _CHANNELS) * _CHANNELS
        return math.ceil(aligned * _PADDING) * pixels
