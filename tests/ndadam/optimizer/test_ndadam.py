"""The step: by hand, against the paper's numbers, the twin and torch, and its invariances."""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ndadam import NDAdam, NDAdamReference, param_groups

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
# Hand-sized float64 cases agree to rounding errors of a few operations.
EXACT = {"rtol": 0, "atol": 1e-12}


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def run(optimizer_class, w, grads, **settings):
    """Weights after each of the steps with these gradients."""
    p = torch.nn.Parameter(w.clone())
    optimizer = optimizer_class([p], **settings)
    weights = []
    for grad in grads:
        p.grad = grad.clone()
        optimizer.step()
        weights.append(p.detach().clone())
    return weights


def step_once(w, grad, lr):
    return run(NDAdam, double([w]), [double([grad])], lr=lr, vector_dim=0)[0][0]


def test_first_step_turns_by_arctan_lr():
    """From (1, 0) with lr = 3/4 a step down must land on (4/5, -3/5).

    The radial 7 must vanish, and the size of the tangential 2 must not matter.
    """
    w = step_once([1.0, 0.0], grad=[7.0, 2.0], lr=0.75)

    torch.testing.assert_close(w, double([0.8, -0.6]), rtol=0, atol=1e-8)


@pytest.mark.parametrize("optimizer_class", [NDAdam, NDAdamReference])
@pytest.mark.parametrize(
    ("case", "vector_dim"),
    [
        ("ndadam_2x2_two_steps_paper", 0),
        ("ndadam_2x2_two_steps_columns_are_vectors", 1),
        ("ndadam_2x2_two_steps_columns_are_vectors", -1),
    ],
)
def test_two_steps_equal_the_papers_numbers(optimizer_class, case, vector_dim):
    setting = ORACLES["ndadam_2x2_two_steps_paper"]
    expected = ORACLES[case]
    p = torch.nn.Parameter(double(setting["w0"]))
    optimizer = optimizer_class(
        [p], lr=setting["alpha"], betas=setting["betas"], eps=setting["eps"], vector_dim=vector_dim
    )
    torch.testing.assert_close(p.detach(), double(expected["w_after_init"]), **EXACT)

    for grad, after in zip(setting["grads"], expected["steps"], strict=True):
        before = p.detach().clone()
        p.grad = double(grad)
        optimizer.step()
        torch.testing.assert_close(p.detach(), double(after["w"]), **EXACT)
        moved = torch.linalg.vector_norm(p.detach() - before, dim=1 - vector_dim % 2)
        torch.testing.assert_close(moved, double(after["eff_lr"]), **EXACT)


def test_the_state_equals_the_papers_moments():
    case = ORACLES["ndadam_2x2_two_steps_paper"]
    p = torch.nn.Parameter(double(case["w0"]))
    optimizer = NDAdam([p], lr=case["alpha"], vector_dim=0)

    for t, (grad, after) in enumerate(zip(case["grads"], case["steps"], strict=True), start=1):
        p.grad = double(grad)
        optimizer.step()
        state = optimizer.state[p]
        torch.testing.assert_close(state["exp_avg"], double(after["m"]), **EXACT)
        torch.testing.assert_close(state["exp_avg_sq"], double(after["v"])[:, None], **EXACT)
        assert state["step"].item() == t


def test_the_authors_code_takes_other_steps():
    """They do not normalise at the start and add eps before bias correction: decision 0005."""
    setting = ORACLES["ndadam_2x2_two_steps_paper"]
    theirs = ORACLES["ndadam_2x2_two_steps_official_pytorch_variant"]["steps"]

    ours = run(NDAdam, double(setting["w0"]), map(double, setting["grads"]), lr=0.05, vector_dim=0)

    for mine, other in zip(ours, theirs, strict=True):
        assert (mine - double(other["w"])).abs().max() > 1e-3


def test_first_step_with_eps_0_has_tangent_length_alpha_exactly():
    expected = ORACLES["first_step_closed_form"]
    alpha = expected["alpha"]

    w = step_once([0.6, 0.8], grad=[0.3, -5.0], lr=alpha)
    exact = run(
        NDAdam, double([[0.6, 0.8]]), [double([[0.3, -5.0]])], lr=alpha, eps=0.0, vector_dim=0
    )

    moved = torch.linalg.vector_norm(exact[0][0] - double([0.6, 0.8]))
    assert moved.item() == pytest.approx(expected["eff_lr_post_normalisation"], abs=1e-12)
    assert math.acos((exact[0][0] @ double([0.6, 0.8])).item()) == pytest.approx(
        expected["angle"], abs=1e-12
    )
    torch.testing.assert_close(w, exact[0][0], rtol=0, atol=1e-9)


def test_three_steps_of_scalars_equal_adam_by_hand():
    case = ORACLES["adam_scalars_three_steps"]

    steps = run(
        NDAdam, double(case["p0"]), map(double, case["grads"]), lr=case["lr"], betas=case["betas"]
    )

    for after, expected in zip(steps, case["p"], strict=True):
        torch.testing.assert_close(after, double(expected), **EXACT)


SHAPES = [((5, 7), 0), ((5, 7), 1), ((4, 3, 3, 3), 0), ((4, 3, 2, 2), 1), ((3, 1, 3, 3), 0)]


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize(("shape", "vector_dim"), SHAPES)
def test_every_path_equals_the_twin_for_100_steps(shape, vector_dim, foreach):
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(shape, dtype=torch.float64, generator=generator)
    grads = [torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(100)]

    twin = run(NDAdamReference, w, grads, vector_dim=vector_dim)
    ours = run(NDAdam, w, grads, vector_dim=vector_dim, foreach=foreach)

    for a, b in zip(ours, twin, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def test_large_parameters_updated_in_pieces_equal_small_ones_updated_together():
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(300, 1000, generator=generator)
    grads = [torch.randn(300, 1000, generator=generator) for _ in range(3)]

    pieces = run(NDAdam, w, grads, vector_dim=0)  # 300,000 elements: two pieces
    together = run(NDAdam, w, grads, vector_dim=0, foreach=True)

    for a, b in zip(pieces, together, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 10, 1000])
def test_float32_follows_the_twin_in_float64(steps):
    generator = torch.Generator().manual_seed(2)
    w = torch.randn(6, 20, generator=generator)
    grads = [torch.randn(6, 20, generator=generator) for _ in range(steps)]

    ours = run(NDAdam, w, grads, lr=0.01, vector_dim=0)[-1]
    twin = run(NDAdamReference, w.double(), [g.double() for g in grads], lr=0.01, vector_dim=0)[-1]

    # Rounding errors of 6e-8 per step walk randomly: a few 1e-6 after 1,000 steps.
    assert (ours.double() - twin).norm() / twin.norm() < 1e-7 * (5 + steps**0.5)
    assert (torch.linalg.vector_norm(ours, dim=1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4)])
@pytest.mark.filterwarnings("ignore:no parameter group has vector_dim")
def test_scalars_take_the_steps_of_torch_adam(shape, maximize, weight_decay):
    generator = torch.Generator().manual_seed(3)
    w = torch.randn(shape, dtype=torch.float64, generator=generator)
    grads = [torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(50)]
    settings = {"lr": 0.01, "weight_decay": weight_decay, "maximize": maximize}

    for a, b in zip(
        run(NDAdam, w, grads, **settings), run(torch.optim.Adam, w, grads, **settings), strict=True
    ):
        torch.testing.assert_close(a, b, **EXACT)


def test_maximize_ascends():
    w, grad = double([[0.6, 0.8]]), double([[1.0, 2.0]])

    up = run(NDAdam, w, [grad], vector_dim=0, maximize=True)

    torch.testing.assert_close(up, run(NDAdam, w, [-grad], vector_dim=0), **EXACT)


def random_case(seed, shape=(3, 5), steps=6):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(shape, dtype=torch.float64, generator=generator)
    return w, [torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(steps)]


def test_the_oracles_invariances_hold_to_the_last_digits():
    """As far off as the oracle's own float64; the properties below say it of any case."""
    known = ORACLES["invariances"]
    setting = ORACLES["ndadam_2x2_two_steps_paper"]
    w, grads = double(setting["w0"]), [double(g) for g in setting["grads"]]
    kept = {"lr": setting["alpha"], "betas": setting["betas"], "vector_dim": 0}

    def ends(w, grads, eps=setting["eps"]):
        return run(NDAdam, w, grads, eps=eps, **kept)[-1]

    plain, at_eps_0 = ends(w, grads), ends(w, grads, eps=0.0)
    gaps = {
        "loss_scale_1000_eps0_max_abs_diff": ends(w, [1000 * g for g in grads], 0.0) - at_eps_0,
        "weight_init_scale_7_max_abs_diff": ends(7 * w, grads) - plain,
        "norms_after_each_step_max_abs_dev": torch.linalg.vector_norm(plain, dim=1) - 1,
    }
    for key, gap in gaps.items():
        assert gap.abs().max() <= max(known[key], 4 * torch.finfo(torch.float64).eps), key
    doubled = ends(w, [1024 * g for g in grads], 0.0)
    assert torch.equal(doubled, at_eps_0) is known["loss_scale_1024_eps0_bitwise_equal"]


SEEDS = st.integers(0, 2**31 - 1)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, scale=st.floats(1e-3, 1e3))
def test_the_size_of_the_loss_does_not_matter(seed, scale):
    w, grads = random_case(seed)

    plain = run(NDAdam, w, grads, vector_dim=0, eps=0.0)
    scaled = run(NDAdam, w, [scale * g for g in grads], vector_dim=0, eps=0.0)

    torch.testing.assert_close(scaled, plain, **EXACT)


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, exponent=st.integers(-20, 20))
def test_powers_of_two_on_the_loss_change_no_bit(seed, exponent):
    w, grads = random_case(seed)

    plain = run(NDAdam, w, grads, vector_dim=0, eps=0.0)
    scaled = run(NDAdam, w, [2.0**exponent * g for g in grads], vector_dim=0, eps=0.0)

    assert all(torch.equal(a, b) for a, b in zip(scaled, plain, strict=True))


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, scale=st.floats(1e-3, 1e3))
def test_the_size_of_the_initial_weights_does_not_matter(seed, scale):
    w, grads = random_case(seed)

    plain = run(NDAdam, w, grads, vector_dim=0)

    torch.testing.assert_close(run(NDAdam, scale * w, grads, vector_dim=0), plain, **EXACT)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, radial=st.floats(-10, 10))
def test_radial_gradients_as_from_weight_decay_do_nothing(seed, radial):
    w, grads = random_case(seed)
    p, q = (torch.nn.Parameter(w.clone()) for _ in range(2))
    plain, decayed = NDAdam([p], vector_dim=0), NDAdam([q], vector_dim=0)

    for grad in grads:
        p.grad, q.grad = grad.clone(), grad + radial * q.detach()
        plain.step()
        decayed.step()

    torch.testing.assert_close(q.detach(), p.detach(), **EXACT)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_rotating_the_space_rotates_the_result(seed):
    w, grads = random_case(seed)
    rotation, _ = torch.linalg.qr(random_case(seed + 1, (5, 5), 0)[0])

    plain = run(NDAdam, w, grads, vector_dim=0)
    rotated = run(NDAdam, w @ rotation, [g @ rotation for g in grads], vector_dim=0)

    torch.testing.assert_close(rotated, [p @ rotation for p in plain], **EXACT)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, order=st.permutations(range(3)))
def test_vectors_do_not_know_each_other(seed, order):
    w, grads = random_case(seed)
    order = list(order)

    plain = run(NDAdam, w, grads, vector_dim=0)
    permuted = run(NDAdam, w[order], [g[order] for g in grads], vector_dim=0)

    torch.testing.assert_close(permuted, [p[order] for p in plain], **EXACT)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS, lr=st.floats(0, 10), beta1=st.floats(0, 0.99), beta2=st.floats(0, 0.999))
def test_vectors_keep_unit_norm(seed, lr, beta1, beta2):
    w, grads = random_case(seed)

    for p in run(NDAdam, w, grads, lr=lr, betas=(beta1, beta2), vector_dim=0):
        norms = torch.linalg.vector_norm(p, dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms), **EXACT)


def test_a_torch_schedule_reaches_both_learning_rates():
    model = torch.nn.Linear(3, 2)
    optimizer = NDAdam(param_groups(model, alpha_v=0.05, alpha_s=0.001))
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)

    assert [group["lr"] for group in optimizer.param_groups] == [0.025, 0.0005]


def test_a_one_cycle_schedule_may_change_the_betas():
    model = torch.nn.Linear(3, 2)
    optimizer = NDAdam(param_groups(model))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.1, 0.01], total_steps=10)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()
        schedule.step() if schedule.last_epoch < 9 else None

    assert optimizer.param_groups[0]["betas"][0] == pytest.approx(0.95)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_a_tensor_learning_rate_is_read_at_each_step():
    w, grads = random_case(4, steps=2)
    p = torch.nn.Parameter(w.clone())
    lr = torch.tensor(0.05, dtype=torch.float64)
    optimizer = NDAdam([p], lr=lr, vector_dim=0)
    p.grad = grads[0].clone()
    optimizer.step()
    lr.zero_()
    after = p.detach().clone()
    p.grad = grads[1].clone()
    optimizer.step()

    torch.testing.assert_close(after, run(NDAdam, w, grads[:1], vector_dim=0)[0], **EXACT)
    torch.testing.assert_close(p.detach(), after, **EXACT)


def test_the_closure_runs_with_gradients_and_its_loss_comes_back():
    model = torch.nn.Linear(3, 2)
    optimizer = NDAdam(param_groups(model))

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).square().sum()
        loss.backward()
        return loss

    before = copy.deepcopy(model.state_dict())

    assert optimizer.step(closure).item() > 0
    assert not torch.equal(model.weight, before["weight"])


def test_gradients_are_never_changed():
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
    optimizer = NDAdam(param_groups(model, weight_decay=0.1), maximize=True)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    before = [p.grad.clone() for p in model.parameters()]

    optimizer.step()

    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before, strict=True))


def test_a_small_network_learns():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
    )
    x = torch.randn(256, 2)
    y = (x[:, 0] * x[:, 1] > 0).long()
    optimizer = NDAdam(param_groups(model, alpha_v=0.05, alpha_s=0.01))
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < losses[0] / 2
