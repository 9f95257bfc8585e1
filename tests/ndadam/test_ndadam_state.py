"""State: save, load, copy and go on as if never stopped."""

import copy
import io
import pickle

import pytest
import torch

from ndadam import NDAdam, param_groups


def small_model(dtype=torch.float32):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ConvTranspose2d(4, 3, 2)
    )
    return model.to(dtype)


def train(model, optimizer, steps, start=0):
    for step in range(start, start + steps):
        generator = torch.Generator().manual_seed(step)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
        optimizer.step()


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_loading_a_checkpoint_equals_never_having_stopped(dtype):
    model = small_model(dtype)
    optimizer = NDAdam(param_groups(model, weight_decay=0.01))
    train(model, optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, 3, start=3)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = small_model(dtype)
    resumed.load_state_dict(saved["model"])
    other = NDAdam(param_groups(resumed))
    resumed.load_state_dict(saved["model"])  # the constructor has normalised: load after it
    other.load_state_dict(saved["optimizer"])
    train(resumed, other, 3, start=3)

    assert equal(weights(resumed), weights(model))
    assert other.param_groups[-1]["weight_decay"] == 0.01


def test_loaded_state_keeps_shapes_and_float32_for_half_parameters():
    model = small_model(torch.float16)
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    saved = copy.deepcopy(optimizer.state_dict())

    other_model = small_model(torch.float16)
    other = NDAdam(param_groups(other_model))
    other.load_state_dict(saved)

    conv = other_model[0].weight
    transposed = other_model[2].weight
    assert other.state[conv]["exp_avg_sq"].shape == (4, 1, 1, 1)
    assert other.state[transposed]["exp_avg_sq"].shape == (1, 3, 1, 1)
    for p in other_model.parameters():
        original = optimizer.state[dict(model.named_parameters())[name_of(other_model, p)]]
        for key in ("exp_avg", "exp_avg_sq"):
            assert other.state[p][key].dtype == torch.float32
            assert torch.equal(other.state[p][key], original[key])


def name_of(model, parameter):
    return next(name for name, p in model.named_parameters() if p is parameter)


def test_loaded_moments_follow_the_strides_of_their_parameter():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)

    other_model = small_model().to(memory_format=torch.channels_last)
    other = NDAdam(param_groups(other_model))
    other.load_state_dict(optimizer.state_dict())

    conv = other_model[0].weight
    assert other.state[conv]["exp_avg"].stride() == conv.stride()
    assert torch.equal(other.state[conv]["exp_avg"], optimizer.state[model[0].weight]["exp_avg"])


def test_state_goes_to_the_device_of_its_parameter():
    """The meta device stands for a second device: state must be made and loaded there."""
    p = torch.nn.Parameter(torch.randn(3, 4))
    optimizer = NDAdam([p], vector_dim=0)
    p.grad = torch.randn(3, 4)
    optimizer.step()

    q = torch.nn.Parameter(torch.empty(3, 4, device="meta"), requires_grad=False)
    other = NDAdam([q], vector_dim=0)
    other.load_state_dict(optimizer.state_dict())

    assert {other.state[q][key].device.type for key in ("exp_avg", "exp_avg_sq")} == {"meta"}
    assert other.state[q]["step"].device.type == "cpu"


def test_another_default_device_changes_nothing():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)

    with torch.device("meta"):
        optimizer.step()

    state = optimizer.state[model[0].weight]
    assert {value.device.type for value in state.values()} == {"cpu"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_on_cuda_waits_for_no_result():
    model = small_model().cuda()
    optimizer = NDAdam(param_groups(model))
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()  # creates the state, and looks for zero vectors

    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_checkpoint_moves_between_cpu_and_cuda():
    reference, model = small_model(), small_model().cuda()
    expected, optimizer = NDAdam(param_groups(reference)), NDAdam(param_groups(model))
    train(reference, expected, 3)
    optimizer.load_state_dict(expected.state_dict())
    model.load_state_dict(reference.state_dict())
    train(reference, expected, 2, start=3)
    for step in (3, 4):
        generator = torch.Generator().manual_seed(step)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator).cuda()
        optimizer.step()

    for a, b in zip(weights(model), weights(reference), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=1e-6)


def test_state_of_other_shapes_is_refused_by_name():
    p, q = torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(3, 4))
    scalars = NDAdam([p])
    p.grad = torch.randn(3, 4)
    scalars.step()
    saved = scalars.state_dict()
    saved["param_groups"][0]["vector_dim"] = 0

    with pytest.raises(ValueError, match=r"exp_avg_sq of parameter 0 .* must have shape \(3, 1\)"):
        NDAdam([q], vector_dim=0).load_state_dict(saved)


def test_a_step_that_was_never_taken_loads_as_no_state():
    model = small_model()
    optimizer = NDAdam(param_groups(model))

    optimizer.load_state_dict(NDAdam(param_groups(small_model())).state_dict())
    train(model, optimizer, 1)

    assert optimizer.state[model[0].weight]["step"].item() == 1


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_of_model_and_optimizer_train_alike(clone):
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    other_model, other = clone((model, optimizer))

    train(model, optimizer, 2, start=2)
    train(other_model, other, 2, start=2)

    assert equal(weights(other_model), weights(model))


def test_a_group_added_to_a_copy_is_normalised():
    other = pickle.loads(pickle.dumps(NDAdam([torch.nn.Parameter(torch.ones(2, 3))])))
    p = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))

    other.add_param_group({"params": [p], "vector_dim": 0})

    torch.testing.assert_close(p.detach(), torch.tensor([[0.6, 0.8]]))


def test_second_moments_of_vectors_take_one_number_each():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 1)

    sizes = [optimizer.state[p]["exp_avg_sq"].numel() for p in (model[0].weight, model[2].weight)]
    assert sizes == [4, 3]
    assert optimizer.state[model[1].weight]["exp_avg_sq"].shape == model[1].weight.shape


def test_steps_that_a_gradient_scaler_skips_advance_nothing():
    p = torch.nn.Parameter(torch.tensor([[0.6, 0.8]]))
    optimizer = NDAdam([p], vector_dim=0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((p * torch.tensor([[float("inf"), 1.0]])).sum()).backward()
    scaler.step(optimizer)
    scaler.update()

    assert p.detach().tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    assert len(optimizer.state) == 0
