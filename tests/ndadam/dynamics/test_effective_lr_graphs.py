"""Measuring effective learning rates in steps that a graph replays, and on a device of its own."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ndadam import EffectiveLR
from tests.ndadam.dynamics.moving_weights import batches, loss, sgd, small_net


def measured_run(device, every, capture):
    """What twelve steps leave, two of them paused; ``capture`` makes a graph of a step, or None."""
    model = small_net().to(device)
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, every=every, shadow_betas=(0.2, 0.99))
    graphs = {}
    for t, (x, y) in enumerate(batches(12)):
        optimizer.zero_grad(set_to_none=t == 0)
        dynamics.recording = t not in (7, 8)
        loss(model, (x.to(device), y.to(device))).backward()
        if capture is None or t < 2:
            optimizer.step()
            continue
        if dynamics.phase not in graphs:
            graphs[dynamics.phase] = capture(optimizer.step)
        graphs[dynamics.phase]()
        dynamics.replayed()
    return dynamics.drain(), dynamics.gain(), dynamics.balance(), len(graphs)


def check_same_measurements(called, replayed, every, tolerance):
    (record, gain, balance, _), (other, other_gain, other_balance, graphs) = called, replayed
    assert graphs == (2 if every == 1 else 3)
    assert other.steps == record.steps
    assert other.effective_lr == pytest.approx(record.effective_lr, rel=tolerance)
    assert other.shadow_step == pytest.approx(record.shadow_step, rel=tolerance)
    assert other_gain.layers == pytest.approx(gain.layers, rel=tolerance)
    assert other_gain.steps == gain.steps
    assert (balance is None) == (every == 2)
    if balance is not None:
        assert other_balance.residual == pytest.approx(balance.residual, abs=tolerance)
        assert other_balance.steps == balance.steps


@pytest.mark.parametrize("every", [1, 2])
def test_steps_of_a_graph_are_measured_like_steps_that_are_called(every, monkeypatch):
    """A trace holds what a CUDA graph does: the calls, with the numbers that Python had then."""
    tracing = False
    monkeypatch.setattr("ndadam.dynamics.effective_lr.is_capturing", lambda device: tracing)

    def capture(step):
        nonlocal tracing
        tracing = True
        trace = make_fx(lambda: step())()
        tracing = False
        is_taken = True  # tracing takes the step that it records

        def replay():
            nonlocal is_taken
            with torch.no_grad():
                if not is_taken:
                    trace()
            is_taken = False

        return replay

    runs = [measured_run("cpu", every, how) for how in (None, capture)]
    check_same_measurements(*runs, every, 1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("every", [1, 2])
def test_steps_of_a_cuda_graph_are_measured_like_steps_that_are_called(every):
    def capture(step):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    runs = [measured_run("cuda", every, how) for how in (None, capture)]
    check_same_measurements(*runs, every, 1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_measuring_on_cuda_waits_for_nothing_and_equals_the_cpu():
    records = []
    for device in ("cpu", "cuda"):
        model = small_net().to(device)
        optimizer = sgd(model)
        dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.9, 0.99))
        for x, y in batches(3):
            optimizer.zero_grad()
            loss(model, (x.to(device), y.to(device))).backward()
            if device == "cuda" and dynamics.step > 0:
                torch.cuda.set_sync_debug_mode("error")
            try:
                optimizer.step()
            finally:
                if device == "cuda":
                    torch.cuda.set_sync_debug_mode("default")
        records.append(dynamics.drain())

    assert records[1].effective_lr == pytest.approx(records[0].effective_lr, rel=1e-6)
