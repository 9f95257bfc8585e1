"""Times an optimizer step on the weights of wide residual networks, beside torch's optimizers.

    python -m benchmarks.optimizer [--device cpu|cuda] [--json FILE]

Every figure comes from one process. Only the convolutions' weights are updated, the weight vectors
of ND-Adam; gradients are random and stay. On a CPU with one thread times are those of the process,
whatever else the machine does. On CUDA several copies of a network are updated in turn,
so that nothing is left in the cache from the last step, and the bandwidth is that of a large copy,
reads and writes counted.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from ndadam import NDAdam, WideResNet

CUDA_NETWORKS = {"WRN-22-7.5": (22, 7.5), "WRN-28-10": (28, 10.0)}
CPU_NETWORKS = {
    "WRN-10-1": (10, 1.0),
    "WRN-16-2": (16, 2.0),
    "WRN-16-4": (16, 4.0),
    "WRN-22-7.5": (22, 7.5),
}
COPIES = {"cpu": 1, "cuda": 3}
ROUNDS = {"cpu": 21, "cuda": 7}  # more where other processes share the caches
SECONDS_PER_ROUND = 0.04

Params = list[nn.Parameter]
Step = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One optimizer to time."""

    name: str
    make: Callable[[Params], Optimizer]
    bytes_per_weight: int | None  # the fewest it can move; None where it moves many times that
    in_graph: bool = False  # whether its step can be captured


@dataclass
class Timing:
    """What was measured of one optimizer on one network; times in milliseconds."""

    network: str
    optimizer: str
    weights: int
    state_bytes_per_weight: float
    eager: float
    host: float  # what a step costs the calling thread
    graph: float | None
    copy_fraction: float | None  # of the copy bandwidth, from the faster of eager and graph


def cases(device: str) -> list[Case]:
    """The optimizers compared on a device; the first is the one that others are compared with."""
    adam = [
        Case("Adam fused", lambda p: Adam(p, fused=True, capturable=_cuda(p)), 28, in_graph=True),
        Case("Adam foreach", lambda p: Adam(p, foreach=True), None),
        Case("Adam for-loop", lambda p: Adam(p, foreach=False), None),
        Case("SGD fused", lambda p: SGD(p, lr=0.1, momentum=0.9, fused=True), 20),
    ]
    loops = [
        Case("NDAdam foreach", lambda p: NDAdam(p, vector_dim=0, foreach=True), None),
        Case("NDAdam for-loop", lambda p: NDAdam(p, vector_dim=0, foreach=False), None),
    ]
    if device == "cpu":
        return [adam[2], adam[1], adam[0], adam[3], Case("NDAdam", _nd, None), *loops]
    fused = [
        Case("NDAdam fused", _nd, 20, in_graph=True),
        Case("NDAdam fused, recording", _nd_recording, 20, in_graph=True),
    ]
    return [*adam, *fused, *loops]


def _cuda(params: Params) -> bool:
    return params[0].is_cuda


def _nd(params: Params) -> NDAdam:
    return NDAdam(params, vector_dim=0, capturable=_cuda(params))


def _nd_recording(params: Params) -> NDAdam:
    """Also records the effective learning rate of every vector."""
    optimizer = _nd(params)
    assert optimizer.fused_step is not None
    optimizer.fused_step.records_effective_lr = True
    return optimizer


def conv_weights(depth: int, widen_factor: float) -> list[torch.Size]:
    """Shapes of the convolutions of a wide residual network."""
    with torch.device("meta"):
        network = WideResNet(depth, widen_factor, 10)
    return [m.weight.shape for m in network.modules() if isinstance(m, nn.Conv2d)]


def make_params(shapes: Sequence[torch.Size], device: str, seed: int) -> Params:
    """Random weights with random gradients."""
    generator = torch.Generator().manual_seed(seed)
    params = []
    for shape in shapes:
        p = nn.Parameter(torch.randn(shape, generator=generator).to(device))
        p.grad = 0.01 * torch.randn(shape, generator=generator).to(device)
        params.append(p)
    return params


def milliseconds(steps: Sequence[Step], device: str) -> float:
    """Mean time of a step in one round, which takes each of ``steps`` in turn."""
    repeats = max(1, int(SECONDS_PER_ROUND / (_once(steps, device, 1) * len(steps) / 1e3)))
    return _once(steps, device, min(repeats, 100))


def _once(steps: Sequence[Step], device: str, repeats: int) -> float:
    if device == "cpu":
        # In one thread that is the time it would take on a machine of its own, caches aside.
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        began = clock()
        for _ in range(repeats):
            for step in steps:
                step()
        return (clock() - began) * 1e3 / (repeats * len(steps))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(repeats):
        for step in steps:
            step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / (repeats * len(steps))


def host_milliseconds(steps: Sequence[Step], device: str) -> float:
    """Time a step keeps the calling thread, with an idle device before it."""
    times = []
    for step in steps * 7:
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def captured(step: Step) -> Step:
    """Replays a CUDA graph of ``step``."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def copy_bandwidth(device: str) -> float:
    """Bytes read and written per millisecond by a large copy."""
    numbers = 1 << (28 if device == "cuda" else 24)
    source = torch.randn(numbers, device=device)
    target = torch.empty_like(source)
    copy: Step = lambda: target.copy_(source)  # noqa: E731
    times = [milliseconds([copy], device) for _ in range(ROUNDS[device])]
    return 2 * source.nbytes / statistics.median(times)


def time_network(
    network: str, shapes: Sequence[torch.Size], device: str, bandwidth: float
) -> list[Timing]:
    """Time every optimizer on copies of one network, in turn, round by round."""
    chosen = cases(device)
    optimizers = {
        case.name: [case.make(make_params(shapes, device, seed)) for seed in range(COPIES[device])]
        for case in chosen
    }
    eager = {name: [o.step for o in made] for name, made in optimizers.items()}
    for steps in eager.values():
        _once(steps, device, 2)  # creates state, compiles
    graphs = {
        case.name: [captured(step) for step in eager[case.name]]
        for case in chosen
        if case.in_graph and device == "cuda"
    }
    eager_times = _medians(eager, device)
    graph_times = _medians(graphs, device)
    weights = sum(shape.numel() for shape in shapes)
    timings = []
    for case in chosen:
        graph = graph_times.get(case.name)
        best = min(eager_times[case.name], graph or float("inf"))
        moved = case.bytes_per_weight
        timings.append(
            Timing(
                network=network,
                optimizer=case.name,
                weights=weights,
                state_bytes_per_weight=_state_bytes(optimizers[case.name][0]) / weights,
                eager=eager_times[case.name],
                host=host_milliseconds(eager[case.name], device),
                graph=graph,
                copy_fraction=None if moved is None else moved * weights / best / bandwidth,
            )
        )
    return timings


def _medians(steps: dict[str, list[Step]], device: str) -> dict[str, float]:
    """Median over rounds that visit every optimizer, so that drift meets all alike."""
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS[device]):
        for name, taken in steps.items():
            rounds[name].append(milliseconds(taken, device))
    return {name: statistics.median(times) for name, times in rounds.items()}


def _state_bytes(optimizer: Optimizer) -> int:
    return sum(
        value.nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    )


def table(timings: Sequence[Timing], device: str) -> str:
    """A Markdown table per network; ratios are to its first optimizer."""
    lines: list[str] = []
    for network in dict.fromkeys(t.network for t in timings):
        rows = [t for t in timings if t.network == network]
        first = rows[0]
        columns = [cells(t, first, device) for t in rows]
        lines += [
            f"\n{network}, {first.weights / 1e6:.2f} M weights\n",
            _line(list(columns[0])),
            _line(["---", *["---:"] * (len(columns[0]) - 1)]),
            *[_line(list(row.values())) for row in columns],
        ]
    return "\n".join(lines)


def cells(t: Timing, first: Timing, device: str) -> dict[str, str]:
    """One row of a table, by heading."""
    row = {
        "optimizer": t.optimizer,
        "eager ms": f"{t.eager:.3f}",
        f"× {first.optimizer}": f"{t.eager / first.eager:.2f}",
    }
    if device == "cuda":
        in_graph = t.graph is not None and first.graph is not None
        row |= {
            "graph ms": f"{t.graph:.3f}" if in_graph else "–",
            "× in graph": f"{(t.graph or 0) / (first.graph or 1):.2f}" if in_graph else "–",
            "of copy": "–" if t.copy_fraction is None else f"{t.copy_fraction:.0%}",
            "host ms": f"{t.host:.3f}",
        }
    return row | {"state B/weight": f"{t.state_bytes_per_weight:.2f}"}


def _line(values: list[str]) -> str:
    return "| " + " | ".join(values) + " |"


def describe_machine(device: str) -> dict[str, str]:
    """Card or processor, and versions."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if device == "cpu":
        return {"device": f"{platform.machine()}, {torch.get_num_threads()} threads"} | versions
    import triton

    return {"device": torch.cuda.get_device_name(), "triton": triton.__version__} | versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    arguments = parser.parse_args()
    device = arguments.device
    machine = describe_machine(device)
    bandwidth = copy_bandwidth(device)
    networks = CPU_NETWORKS if device == "cpu" else CUDA_NETWORKS
    timings = []
    for network, (depth, widen_factor) in networks.items():
        timings += time_network(network, conv_weights(depth, widen_factor), device, bandwidth)
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"copy {bandwidth / 1e9:.2f} TB/s")
    print(table(timings, device))
    if arguments.json is not None:
        figures = [asdict(timing) for timing in timings]
        content = {"machine": machine, "copy_bytes_per_ms": bandwidth, "timings": figures}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
