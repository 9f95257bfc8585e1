"""Zero vectors, broken gradients, half precision, strides: one bad row stays one bad row."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ndadam import NDAdam, param_groups

PATHS = pytest.mark.parametrize("foreach", [None, True, False])


def unit_rows(shape, dtype=torch.float32, seed=0):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (w / torch.linalg.vector_norm(w.flatten(1), dim=1).view(-1, *[1] * (w.dim() - 1))).to(
        dtype
    )


def moments(optimizer, p):
    return [optimizer.state[p][key] for key in ("exp_avg", "exp_avg_sq")]


def with_zero_row():
    p = torch.nn.Parameter(torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    p.grad = torch.ones(2, 2)
    return p


def test_construction_with_a_zero_vector_names_the_parameter_and_says_what_will_happen():
    with pytest.warns(
        UserWarning, match=r"1 of 2 weight vectors of parameter 0 of group 0 .* zero"
    ):
        NDAdam([with_zero_row()], vector_dim=0)
    with pytest.warns(UserWarning, match=r"weight vectors of first\.weight are zero"):
        NDAdam([("first.weight", with_zero_row())], vector_dim=0)


@PATHS
@pytest.mark.filterwarnings("ignore:1 of 2 weight vectors")
def test_a_zero_vector_stays_zero_at_learning_rate_0_and_becomes_a_unit_vector_above(foreach):
    p = with_zero_row()
    optimizer = NDAdam([p], lr=0.0, vector_dim=0, foreach=foreach)
    optimizer.step()
    assert torch.equal(p.detach(), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))

    optimizer.param_groups[0]["lr"] = 0.05
    optimizer.step()

    expected = torch.tensor([-(0.5**0.5), -(0.5**0.5)])
    torch.testing.assert_close(p.detach()[0], expected, rtol=0, atol=1e-6)
    assert torch.linalg.vector_norm(p.detach()[1]).item() == pytest.approx(1, abs=1e-6)


@PATHS
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", [(4, 3), (4, 2, 3, 3)])
def test_a_vector_with_a_broken_gradient_is_left_alone_and_touches_no_other(shape, bad, foreach):
    clean, broken = (torch.nn.Parameter(unit_rows(shape)) for _ in range(2))
    optimizer = NDAdam([clean], vector_dim=0, foreach=foreach)
    other = NDAdam([broken], vector_dim=0, foreach=foreach)
    for step in range(3):
        clean.grad, broken.grad = unit_rows(shape, seed=step + 1), unit_rows(shape, seed=step + 1)
        if step == 1:
            broken.grad[2].view(-1)[0] = bad
            before = [broken.detach()[2].clone(), *(s[2].clone() for s in moments(other, broken))]
        optimizer.step()
        other.step()
        if step == 1:
            after = [broken.detach()[2], *(s[2] for s in moments(other, broken))]
            assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))

    assert other.skipped_vectors() == {f"parameter 0 of group 0 with shape {shape}": 1}
    assert optimizer.skipped_vectors() == {}
    assert other.state[broken]["step"].item() == 3  # the count is the parameter's
    rest = [0, 1, 3]
    assert torch.equal(broken.detach()[rest], clean.detach()[rest])
    for key in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(other.state[broken][key][rest], optimizer.state[clean][key][rest])


@PATHS
@pytest.mark.parametrize("eps", [0.0, 1e-8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_zero_gradients_leave_every_bit(dtype, eps, foreach):
    p = torch.nn.Parameter(unit_rows((4, 8), dtype))
    optimizer = NDAdam([p], vector_dim=0, eps=eps, foreach=foreach)
    p.grad = torch.zeros_like(p)
    optimizer.step()  # creates the state, which normalises
    before = p.detach().clone()
    for _ in range(3):
        optimizer.step()

    assert torch.equal(p.detach(), before)
    assert all(torch.isfinite(value).all() for value in optimizer.state[p].values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_scalars_with_zero_gradients_and_eps_0_leave_every_bit(dtype):
    p = torch.nn.Parameter(torch.tensor([0.5, -1.0], dtype=dtype))
    optimizer = NDAdam([p], lr=0.1, eps=0.0)
    for grad in ([0.0, 0.0], [0.0, 1.0], [0.0, 0.0]):
        p.grad = torch.tensor(grad, dtype=dtype)
        optimizer.step()

    assert p[0].item() == 0.5
    assert p[1].item() < -1.0


@PATHS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1.0, -1e6])
def test_a_gradient_parallel_to_the_vector_does_not_move_it(dtype, factor, foreach):
    """Projecting it leaves rounding errors; divided by their own size they would be a full step."""
    p = torch.nn.Parameter(unit_rows((5, 300), dtype))
    optimizer = NDAdam([p], vector_dim=0, foreach=foreach)
    before = p.detach().clone()
    for _ in range(5):
        p.grad = factor * p.detach()
        optimizer.step()

    torch.testing.assert_close(p.detach(), before, rtol=0, atol=1e-7)


@PATHS
def test_a_vector_of_one_element_stays_at_plus_or_minus_one(foreach):
    p = torch.nn.Parameter(torch.tensor([[3.0], [-0.2]]))
    optimizer = NDAdam([p], vector_dim=0, foreach=foreach)
    for grad in ([[1.0], [2.0]], [[-1.0], [5.0]]):
        p.grad = torch.tensor(grad)
        optimizer.step()

    assert p.detach().tolist() == [[1.0], [-1.0]]


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_vectors_whose_square_leaves_the_range_are_normalised(size):
    p = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]) * size)

    NDAdam([p], vector_dim=0)

    torch.testing.assert_close(p.detach(), torch.tensor([[0.6, 0.8]]), rtol=0, atol=1e-6)


def test_empty_parameters_are_passed_over():
    p = torch.nn.Parameter(torch.empty(0, 3))
    q = torch.nn.Parameter(torch.empty(0))
    optimizer = NDAdam([{"params": [p], "vector_dim": 0}, {"params": [q]}])
    p.grad, q.grad = torch.empty(0, 3), torch.empty(0)

    optimizer.step()

    assert p.shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_vectors_keep_float32_state_and_unit_norm(dtype):
    p = torch.nn.Parameter(unit_rows((4, 64)).to(dtype))
    q = torch.nn.Parameter(p.detach().float())
    half, single = NDAdam([p], vector_dim=0), NDAdam([q], vector_dim=0)
    for seed in range(5):
        grad = unit_rows((4, 64), seed=seed + 1).to(dtype)
        p.grad, q.grad = grad, grad.float()
        half.step()
        single.step()

    assert half.state[p]["exp_avg"].dtype == half.state[p]["exp_avg_sq"].dtype == torch.float32
    resolution = torch.finfo(dtype).eps
    assert (torch.linalg.vector_norm(p.detach().float(), dim=1) - 1).abs().max() < resolution
    # Each step rounds the weights to half precision once.
    assert (p.detach().float() - q.detach()).abs().max() < 5 * resolution


def conv_weight(memory_format):
    w = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    return torch.nn.Parameter(w.to(memory_format=memory_format))


@PATHS
@pytest.mark.parametrize("vector_dim", [0, 1])
def test_channels_last_weights_take_the_same_steps_and_keep_their_strides(vector_dim, foreach):
    p, q = conv_weight(torch.channels_last), conv_weight(torch.contiguous_format)
    optimizer = NDAdam([p], vector_dim=vector_dim, foreach=foreach)
    contiguous = NDAdam([q], vector_dim=vector_dim, foreach=foreach)
    strides = p.stride()
    for seed in range(3):
        grad = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(seed))
        p.grad, q.grad = grad.to(memory_format=torch.channels_last), grad
        optimizer.step()
        contiguous.step()

    assert p.stride() == strides == optimizer.state[p]["exp_avg"].stride()
    torch.testing.assert_close(p.detach(), q.detach(), rtol=0, atol=1e-6)
    for key in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(
            optimizer.state[p][key], contiguous.state[q][key], rtol=0, atol=1e-6
        )


@PATHS
@pytest.mark.parametrize("shape", [(3, 1, 3, 3), (10, 480, 1, 1), (4, 6, 2, 2)])
def test_gradients_with_other_strides_are_taken(shape, foreach):
    p, q = (torch.nn.Parameter(unit_rows(shape)) for _ in range(2))
    grad = unit_rows(shape, seed=1)
    p.grad = grad.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    q.grad = grad
    assert p.grad.stride() != q.grad.stride()

    NDAdam([p], vector_dim=0, foreach=foreach).step()
    NDAdam([q], vector_dim=0, foreach=foreach).step()

    torch.testing.assert_close(p.detach(), q.detach(), rtol=0, atol=1e-6)


def test_weights_loaded_after_construction_are_normalised_at_the_first_step():
    p = torch.nn.Parameter(unit_rows((2, 3)))
    optimizer = NDAdam([p], lr=0.0, vector_dim=0)
    with torch.no_grad():
        p.mul_(7)
    p.grad = unit_rows((2, 3), seed=1)

    optimizer.step()

    torch.testing.assert_close(p.detach(), unit_rows((2, 3)), rtol=0, atol=1e-6)


def test_a_frozen_layer_keeps_its_function_until_it_is_trained():
    p = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]), requires_grad=False)
    optimizer = NDAdam([p], lr=0.0, vector_dim=0)
    optimizer.step()
    assert p.tolist() == [[3.0, 4.0]]

    p.requires_grad_(True)
    p.grad = torch.tensor([[1.0, 0.0]])
    optimizer.step()

    torch.testing.assert_close(p.detach(), torch.tensor([[0.6, 0.8]]))


def test_parameters_count_their_own_steps():
    used, unused, late = (torch.nn.Parameter(unit_rows((2, 3))) for _ in range(3))
    optimizer = NDAdam([used, unused, late], vector_dim=0)
    for step in range(3):
        used.grad = unit_rows((2, 3), seed=step)
        late.grad = unit_rows((2, 3), seed=9) if step == 2 else None
        optimizer.step()

    assert optimizer.state[used]["step"].item() == 3
    assert optimizer.state[late]["step"].item() == 1
    assert unused not in optimizer.state
    # The late one took a full first step: bias correction is its own.
    cosine = torch.linalg.vecdot(late.detach(), unit_rows((2, 3)), dim=1)
    torch.testing.assert_close(torch.acos(cosine), torch.full((2,), 0.05), rtol=0.01, atol=0)


def test_no_warning_comes_from_ordinary_weights():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NDAdam([torch.nn.Parameter(unit_rows((4, 3)))], vector_dim=0)


def test_vectors_of_unit_norm_keep_their_bits_and_others_do_not():
    rows = torch.nn.functional.normalize(torch.randn(200, 40, dtype=torch.float64), dim=1)
    exact = torch.nn.Parameter(rows.float())
    off = torch.nn.Parameter(rows.float() * 1.00001)
    before = exact.detach().clone()

    NDAdam([exact, off], vector_dim=0)

    assert torch.equal(exact, before)
    assert (off.norm(dim=1) - 1).abs().max() < 1e-6


def test_a_model_without_storage_can_be_given_an_optimizer_as_in_torch():
    with torch.device("meta"):
        layer = torch.nn.Linear(3, 4)
        optimizer = NDAdam(param_groups(layer))
        layer(torch.randn(2, 3)).sum().backward()
        optimizer.step()

    assert optimizer.state[layer.weight]["exp_avg_sq"].shape == (4, 1)
    assert optimizer.state[layer.weight]["exp_avg"].is_meta


@pytest.mark.parametrize("foreach", [None, True, False])
def test_a_whole_step_runs_on_fake_tensors_as_in_torch(foreach):
    """Tools that foresee memory run the loop without any numbers."""
    with FakeTensorMode():
        layer = torch.nn.Linear(3, 4)
        optimizer = NDAdam(param_groups(layer), foreach=foreach)
        for _ in range(2):
            layer(torch.randn(2, 3)).sum().backward()
            optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()

    assert optimizer.state[layer.weight]["exp_avg_sq"].shape == (4, 1)


def test_a_zero_vector_is_warned_of_once_and_by_name():
    embedding = torch.nn.Embedding(3, 2, padding_idx=0)
    with pytest.warns(UserWarning, match="1 of 3 weight vectors of 0.weight are zero"):
        optimizer = NDAdam(param_groups(torch.nn.Sequential(embedding)))
    embedding(torch.tensor([0, 1])).sum().backward()
    optimizer.step()  # without a warning, which would be an error

    assert embedding.weight[0].tolist() == [0.0, 0.0]


@PATHS
def test_gradients_may_be_shorter_than_their_parameters(foreach):
    w, grad = torch.randn(4, 5), torch.randn(4, 5).bfloat16()
    p, q = torch.nn.Parameter(w.clone()), torch.nn.Parameter(w.clone())
    p.grad_dtype = torch.bfloat16
    p.grad, q.grad = grad, grad.float()
    for parameter in (p, q):
        NDAdam([parameter], vector_dim=0, foreach=foreach).step()

    assert torch.equal(p, q)
    assert p.grad is grad
