"""The kernels of EffectiveLR against sums in float64, on a device or interpreted."""

import copy

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="the kernels are written in Triton")

from ndadam import EffectiveLR, NDAdam, param_groups
from ndadam.fused.row_sums import RowSums, layout_of
from tests.ndadam.fused.fused_reference import DEVICE

# (shape, vector_dim, order of the dimensions in memory): one for each tile and layout.
PLACES = [
    ((5, 3), 0, None),
    ((70, 27), 0, None),
    ((17, 3, 5, 5), 0, None),
    ((6, 700), 0, None),
    ((3, 2049), 0, None),
    ((8, 3, 3, 3), 0, (0, 2, 3, 1)),  # channels_last
    ((9, 70), 1, None),  # a linear layer that keeps (in, out)
    ((4, 6, 3, 3), 1, None),  # a transposed convolution
    ((1, 7, 4), 1, None),  # positions
]


def laid_out(shape, order, generator):
    """Random numbers of ``shape`` whose dimensions lie in memory in ``order``."""
    values = torch.randn(shape, generator=generator)
    if order is not None:
        back = [order.index(d) for d in range(len(order))]
        values = values.permute(order).contiguous().permute(back)
    return values.to(DEVICE)


def exact(p, dim):
    return p.detach().double().cpu().movedim(dim, 0).flatten(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums_of_all_layouts_agree_with_float64(dtype):
    generator = torch.Generator().manual_seed(0)
    params = []
    for shape, dim, order in PLACES:
        p = nn.Parameter(laid_out(shape, order, generator).to(dtype))
        p.grad = torch.empty_like(p).copy_(torch.randn(shape, generator=generator))
        params.append((p, dim))
    params[1][0].grad = None
    assert RowSums.takes(params)
    sums = RowSums(params)
    out = torch.full((4, sums.num_rows), torch.nan, device=DEVICE)
    before = [exact(p, dim) for p, dim in params]
    grads = [
        torch.zeros_like(w) if p.grad is None else exact(p.grad, dim)
        for w, (p, dim) in zip(before, params, strict=True)
    ]

    assert sums.before(out)
    with torch.no_grad():
        for p, _ in params:
            p.add_(torch.randn(p.shape, generator=generator).to(p), alpha=0.01)
    sums.after(out)

    after = [exact(p, dim) for p, dim in params]
    moved = [b - a for a, b in zip(before, after, strict=True)]
    expected = [
        torch.cat([(a * b).sum(1) for a, b in zip(x, y, strict=True)])
        for x, y in ((moved, moved), (before, before), (moved, before), (grads, before))
    ]
    for found, right in zip(out.double().cpu(), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("p", "dim", "expected"),
    [
        (torch.empty(4, 6), 0, (4, 6, 6, 6, 0)),
        (torch.empty(6, 4), 1, (4, 6, 1, 1, 4)),
        (torch.empty(5, 4, 3, 3), 1, (4, 45, 9, 9, 36)),
        (torch.empty(1, 7, 4), 1, (7, 4, 4, 4, 0)),
        (torch.empty(4, 6)[:, :5], 0, None),  # gaps
        (torch.empty(0, 6), 0, None),
        (torch.empty(2, 3, 4, 5).permute(1, 0, 3, 2), 2, (5, 24, 1, 1, 5)),
        (torch.empty(8, 5)[::2], 1, None),
    ],
)
def test_where_rows_lie(p, dim, expected):
    found = layout_of(p, dim)

    assert (None if found is None else tuple(found)) == expected


def test_gradients_of_another_kind_are_left_to_the_calls():
    p = nn.Parameter(torch.randn(4, 6, device=DEVICE))
    sums = RowSums([(p, 0)])
    out = torch.zeros(4, 4, device=DEVICE)

    p.grad = torch.randn(6, 4, device=DEVICE).t()
    assert not sums.before(out)
    p.grad = torch.randn(4, 6, device=DEVICE)
    assert sums.before(out)


class Mixed(nn.Module):
    """Layers of every layout, small enough for the interpreter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.back = nn.ConvTranspose2d(4, 3, 2)
        self.linear = nn.Linear(75, 5)

    def forward(self, x):
        x = self.back(self.norm(self.conv(x)).relu())
        return self.linear(x.flatten(1))


def run(steps, monkeypatch, *, by_kernels, make=None, waiting=3, **choices):
    """What is recorded of a few steps, and whether kernels did it."""
    path = "ndadam.dynamics.effective_lr.has_kernels"
    monkeypatch.setattr(path, lambda rows: by_kernels)
    monkeypatch.setattr("ndadam.dynamics.summary.Summary.steps_at_once", waiting)
    model = Mixed().to(DEVICE)
    optimizer = (make or (lambda m: torch.optim.AdamW(m.parameters(), lr=0.01)))(model)
    dynamics = EffectiveLR(model, optimizer, **choices)
    generator = torch.Generator().manual_seed(1)
    drained = []
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 2, 6, 6, generator=generator).to(DEVICE)).square().mean().backward()
        optimizer.step()
        if step == 4:
            drained.append(dynamics.drain())
    return [*drained, dynamics.drain()], dynamics


OPTIMIZERS = {
    "AdamW": None,
    "ND-Adam": lambda m: NDAdam(param_groups(m)),
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_recorded_is_what_the_calls_record(name, monkeypatch):
    make = OPTIMIZERS[name]
    called, _ = run(8, monkeypatch, by_kernels=False, make=make)
    found, dynamics = run(8, monkeypatch, by_kernels=True, make=make)

    assert dynamics._by_kernels
    assert dynamics._buffers is None  # no copies of single elements beside the kernels' own
    for a, b in zip(found, called, strict=True):
        assert a.steps == b.steps
        assert a.effective_lr == pytest.approx(b.effective_lr, rel=1e-4)
        for layer, records in a.layers.items():
            for quantity, values in vars(records).items():
                expected = getattr(b.layers[layer], quantity)
                assert values == pytest.approx(expected, rel=1e-3, abs=1e-6)


class InOut(nn.Module):
    """A weight whose vectors are columns."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))


# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("is_granted", [True, False])
def test_a_fused_step_sums_what_the_kernels_around_it_would(dtype, is_granted, monkeypatch):
    for module in ("ndadam.fused.step", "ndadam.optimizer.ndadam"):
        monkeypatch.setattr(f"{module}.runs_kernels", lambda p: True)
    monkeypatch.setattr("ndadam.dynamics.effective_lr.has_kernels", lambda rows: True)
    if not is_granted:
        monkeypatch.setattr("ndadam.fused.launch.Launch.can_sum", lambda *args: False)
    torch.manual_seed(0)
    layers = (nn.Linear(40, 6), nn.Conv2d(3, 5, 3), nn.Linear(6200, 2), InOut(48, 8), InOut(70, 5))
    model = nn.Sequential(*layers).to(DEVICE, dtype)
    rules = {InOut: 1}
    optimizer = NDAdam(param_groups(model, rules=rules))

    def step():
        for p in model.parameters():
            p.grad = torch.randn(p.shape).to(DEVICE, dtype)
        optimizer.step()

    step()  # what is not of unit norm yet becomes so
    dynamics = EffectiveLR(model, optimizer, rules=rules)
    for _ in range(3):
        before = [v.parameter.detach().double() for v in dynamics.rows.vectors]
        step()
        assert dynamics._request.is_written == is_granted
    record = dynamics.drain()

    # The interpreter cuts bfloat16 off where a device rounds, so that w does not come back to the
    # bit from its direction.
    is_cut_off = DEVICE == "cpu" and dtype == torch.bfloat16 and is_granted
    rel = 0.02 if is_cut_off else 1e-4
    for v, w in zip(dynamics.rows.vectors, before, strict=True):
        moved = v.parameter.double() - w
        dims = [d for d in range(w.dim()) if d != v.vector_dim % w.dim()]
        ratio = moved.square().sum(dims) / w.square().sum(dims)
        inner = (v.parameter.grad.double() * w).sum(dims) / w.square().sum(dims)
        found = record.layers[v.layer]
        assert found.effective_lr[-1] == pytest.approx(ratio.mean().sqrt().item(), rel=rel)
        assert found.radial_gradient[-1] == pytest.approx(inner.mean().item(), rel=rel, abs=1e-3)


def test_sums_that_wait_are_in_states_and_in_copies(monkeypatch):
    monkeypatch.setattr("ndadam.dynamics.effective_lr.has_kernels", lambda rows: True)
    monkeypatch.setattr("ndadam.dynamics.summary.Summary.steps_at_once", 16)
    model = Mixed().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    first, second = (EffectiveLR(model, optimizer) for _ in range(2))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(6, 2, 6, 6, device=DEVICE)).square().mean().backward()
        optimizer.step()

    copied = copy.deepcopy(first)
    second.load_state_dict(first.state_dict())

    assert first.drain() == second.drain() == copied.drain()


@pytest.mark.parametrize("waiting", [1, 3, 16])
def test_records_do_not_depend_on_how_many_are_summed_up_together(waiting, monkeypatch):
    one, _ = run(7, monkeypatch, by_kernels=False, waiting=1)
    several, _ = run(7, monkeypatch, by_kernels=False, waiting=waiting)

    for a, b in zip(several, one, strict=True):
        assert a.steps == b.steps
        assert a.effective_lr == pytest.approx(b.effective_lr, rel=1e-6)


def test_a_closure_and_what_needs_single_elements_take_the_calls(monkeypatch):
    _, dynamics = run(1, monkeypatch, by_kernels=True, shadow_betas=(0.9, 0.99))
    assert dynamics._kernels is None
    model = Mixed().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    dynamics = EffectiveLR(model, optimizer)
    x = torch.randn(6, 2, 6, 6, device=DEVICE)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)

    assert not dynamics._by_kernels
    assert len(dynamics.drain().effective_lr) == 1
