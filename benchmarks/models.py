"""Times optimizer steps, and what EffectiveLR adds to them, on the parameters of whole models.

    python -m benchmarks.models [--device cpu|cuda] [--models ...] [--dtypes ...] [--json FILE]

ND-Adam with the groups of ``param_groups`` beside torch's fused AdamW, on the same parameters with
random gradients; no forward pass, no weights to download. ResNet-50, ConvNeXt-T, ViT-B/16 and
MobileNetV3 are torchvision's; GPT-2 (124 M, its matrices as (in, out)) and a transformer of 1.3 B
have the parameters of theirs. *graph* is the device's time, in a CUDA graph; *host* how long a call
keeps the calling thread on an idle device.

Without a card (``--device cpu``) what EffectiveLR costs the host is measured with the launches left
out: seconds of Python and torch, and the number of torch's calls.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torchvision
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.optimizer import (
    captured,
    describe_machine,
    host_milliseconds,
    milliseconds,
)
from ndadam import EffectiveLR, NDAdam, param_groups

ROUNDS = 7
STEPS_AT_ONCE = 16  # whose sums are summed up together
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class InOut(nn.Module):
    """A linear layer that keeps its weight as (in, out), as GPT-2's layers in transformers do."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))


class Transformer(nn.Module):
    """The parameters of a decoder whose head is its embedding; it computes nothing."""

    def __init__(
        self, layers: int, width: int, context: int, linear: Callable[[int, int], nn.Module]
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50257, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "qkv": linear(width, 3 * width),
                    "out": linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": linear(width, 4 * width),
                    "down": linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "ResNet-50": torchvision.models.resnet50,
    "ConvNeXt-T": torchvision.models.convnext_tiny,
    "ViT-B/16": torchvision.models.vit_b_16,
    "MobileNetV3": torchvision.models.mobilenet_v3_large,
    "GPT-2": lambda: Transformer(12, 768, 1024, InOut),
    "1.3 B": lambda: Transformer(24, 2048, 2048, nn.Linear),
}
RULES: dict[Any, int | None] = {InOut: 1}


def rules_of(model: nn.Module) -> dict[Any, int | None]:
    """The rules for a model's own layers."""
    return RULES if any(isinstance(m, InOut) for m in model.modules()) else {}


def adamw(model: nn.Module, device: str) -> Optimizer:
    """Torch's fused AdamW."""
    return AdamW(model.parameters(), lr=1e-4, fused=True, capturable=device == "cuda")


def ndadam(model: nn.Module, device: str) -> Optimizer:
    """ND-Adam with its usual groups, at rates that leave the weights where they are."""
    groups = param_groups(model, alpha_v=1e-4, alpha_s=1e-6, rules=rules_of(model))
    return NDAdam(groups, capturable=device == "cuda")


OPTIMIZERS = {"AdamW fused": adamw, "NDAdam": ndadam}


@dataclass
class Timing:
    """One optimizer on one model; milliseconds, and None where nothing was measured."""

    model: str
    dtype: str
    optimizer: str
    weights: int
    state_bytes_per_weight: float
    eager: float
    graph: float | None
    host: float
    measured_eager: float
    measured_graph: float | None
    measured_host: float


def build(name: str, device: str, dtype: torch.dtype) -> nn.Module:
    """A model with random gradients."""
    with torch.device(device):
        model = MODELS[name]().to(dtype)
    generator = torch.Generator(device).manual_seed(0)
    for p in model.parameters():
        p.grad = 0.01 * torch.randn(p.shape, generator=generator, device=device, dtype=dtype)
    return model


def time_model(name: str, device: str, dtype: str) -> Iterator[Timing]:
    """Every optimizer, one after the other, so that a large model fits."""
    for kind, make in OPTIMIZERS.items():
        model = build(name, device, DTYPES[dtype])
        optimizer = make(model, device)
        for _ in range(3):  # creates state, compiles
            optimizer.step()
        plain = _times(optimizer, None, device)
        dynamics = EffectiveLR(model, optimizer, rules=rules_of(model))
        for _ in range(3):
            optimizer.step()
        measured = _times(optimizer, dynamics, device)
        weights = sum(p.numel() for p in model.parameters())
        yield Timing(
            model=name,
            dtype=dtype,
            optimizer=kind,
            weights=weights,
            state_bytes_per_weight=_state_bytes(optimizer) / weights,
            eager=plain[0],
            graph=plain[1],
            host=plain[2],
            measured_eager=measured[0],
            measured_graph=measured[1],
            measured_host=measured[2],
        )
        del model, optimizer, dynamics
        if device == "cuda":
            torch.cuda.empty_cache()


def _times(
    optimizer: Optimizer, dynamics: EffectiveLR | None, device: str
) -> tuple[float, float | None, float]:
    """Milliseconds of a step: eager, in a graph, and of the host."""
    step = optimizer.step
    eager = statistics.median(milliseconds([step], device) for _ in range(ROUNDS))
    host = host_milliseconds([step], device)
    if device == "cpu":
        return eager, None, host
    replay = captured(step)

    def replayed() -> None:
        replay()
        if dynamics is not None:
            dynamics.replayed()

    graph = statistics.median(milliseconds([replayed], device) for _ in range(ROUNDS))
    if dynamics is not None:
        dynamics.drain()
    return eager, graph, host


def _state_bytes(optimizer: Optimizer) -> int:
    return sum(
        value.nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    )


HEAD = """\
| model | weights | optimizer | eager ms | × AdamW | graph ms | × AdamW | host ms | \
state B/weight | EffectiveLR: eager | in a graph | host ms |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def row(t: Timing, first: Timing) -> str:
    """One line of the table; ratios are to AdamW, what EffectiveLR adds is of the same step."""
    graph = "–" if t.graph is None else f"{t.graph:.3f}"
    ratio = "–" if t.graph is None or first.graph is None else f"{t.graph / first.graph:.2f}"
    in_graph = "–"
    if t.graph is not None and t.measured_graph is not None:
        in_graph = f"{100 * (t.measured_graph / t.graph - 1):+z.1f} %"
    cells = [
        t.model,
        f"{t.weights / 1e6:.1f} M",
        t.optimizer,
        f"{t.eager:.3f}",
        f"{t.eager / first.eager:.2f}",
        graph,
        ratio,
        f"{t.host:.3f}",
        f"{t.state_bytes_per_weight:.2f}",
        f"{100 * (t.measured_eager / t.eager - 1):+z.1f} %",
        in_graph,
        f"{t.measured_host - t.host:+z.3f}",
    ]
    return "| " + " | ".join(cells) + " |"


@dataclass
class HostCost:
    """What EffectiveLR costs the host per step of a model, launches left out."""

    model: str
    parameters: int
    vectors: int
    microseconds: float
    calls: float
    calls_before: float


class _Calls(TorchDispatchMode):
    """Counts torch's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def _as_on_a_card(steps_at_once: int) -> Iterator[None]:
    """Take what a card takes, and launch nothing."""
    with (
        patch("ndadam.dynamics.effective_lr.has_kernels", lambda rows: True),
        patch("ndadam.dynamics.summary.Summary.steps_at_once", steps_at_once),
        patch("ndadam.fused.launch.DirectLaunches.run", lambda *args: None),
    ):
        yield


def host_cost(name: str) -> HostCost:
    """Processor time and calls per step, with the kernels' launches left out, and by calls alone.

    What the sums of a step are turned into takes as many calls for a small network as for a large
    one, and on a card these do not wait for what they compute: their time is that of a small one.
    """
    model = MODELS[name]() if name != "1.3 B" else Transformer(24, 64, 64, nn.Linear)
    small = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    with _as_on_a_card(25 * STEPS_AT_ONCE):
        seconds, dynamics = _per_step(model)
        waiting, _ = _per_step(small)
    with _as_on_a_card(STEPS_AT_ONCE):
        summed_up, _ = _per_step(small)
        calls = _calls(small, STEPS_AT_ONCE)
    calls_before = _calls(model, 1)
    return HostCost(
        name,
        len(dynamics.rows.vectors),
        dynamics.rows.num_vectors,
        1e6 * (seconds + max(summed_up - waiting, 0.0)),
        calls,
        calls_before,
    )


class _Still(SGD):
    """An optimizer whose step does nothing, with hooks."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass


def _per_step(model: nn.Module) -> tuple[float, EffectiveLR]:
    """Seconds that EffectiveLR takes per step of an optimizer that does nothing."""
    optimizer = _still(model)
    bare = _seconds(optimizer)
    dynamics = EffectiveLR(model, optimizer, rules=rules_of(model))
    _seconds(optimizer)
    return min(_seconds(optimizer) for _ in range(3)) - bare, dynamics


def _calls(model: nn.Module, steps: int) -> float:
    """Torch's calls per step that EffectiveLR makes."""
    optimizer = _still(model)
    dynamics = EffectiveLR(model, optimizer, rules=rules_of(model))
    for _ in range(steps):
        optimizer.step()
    with _Calls() as counted:
        for _ in range(steps):
            optimizer.step()
    dynamics.detach()
    return counted.count / steps


def _still(model: nn.Module) -> Optimizer:
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    return _Still(model.parameters(), lr=0.0)


def _seconds(optimizer: Optimizer) -> float:
    steps = 4 * STEPS_AT_ONCE
    began = time.process_time()
    for _ in range(steps):
        optimizer.step()
    return (time.process_time() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--models", nargs="*", choices=list(MODELS), help="only these")
    parser.add_argument("--dtypes", nargs="*", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    arguments = parser.parse_args()
    machine = describe_machine(arguments.device)
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    names = arguments.models or list(MODELS)
    found: list[Any] = []
    if arguments.device == "cpu":
        found = _print_host_costs(names)
    else:
        for dtype in arguments.dtypes:
            print(f"\n{dtype}\n\n{HEAD}", flush=True)
            for name in names:
                timings = list(time_model(name, arguments.device, dtype))
                found += timings
                for timing in timings:
                    print(row(timing, timings[0]), flush=True)
    if arguments.json is not None:
        content = {"machine": machine, "timings": [asdict(one) for one in found]}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


def _print_host_costs(names: list[str]) -> list[HostCost]:
    print(
        "\n| model | parameters | vectors | host µs | calls of torch | without the kernels |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    costs = []
    for name in names:
        cost = host_cost(name)
        costs.append(cost)
        print(
            f"| {name} | {cost.parameters} | {cost.vectors} | {cost.microseconds:.0f} | "
            f"{cost.calls:.1f} | {cost.calls_before:.0f} |",
            flush=True,
        )
    return costs


if __name__ == "__main__":
    main()
