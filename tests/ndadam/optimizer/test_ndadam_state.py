"""State: save, load, copy and go on as if never stopped."""

import copy
import io
import pickle

import pytest
import torch

from ndadam import EffectiveLR, NDAdam, param_groups
from ndadam.fused.choice import prepare_capture
from tests.ndadam.small_model import equal, small_model, train, weights


@pytest.mark.parametrize("weights_first", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_loading_a_checkpoint_equals_never_having_stopped(dtype, weights_first):
    model = small_model(dtype)
    optimizer = NDAdam(param_groups(model, weight_decay=0.01))
    train(model, optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, 3, start=3)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = small_model(dtype)
    if weights_first:
        resumed.load_state_dict(saved["model"])
    other = NDAdam(param_groups(resumed))
    if not weights_first:
        resumed.load_state_dict(saved["model"])
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


def steps_and_what_was_recorded(model, default_device):
    generator = torch.Generator().manual_seed(0)
    with torch.device(default_device):
        optimizer = NDAdam(param_groups(model))
        streams = [[(model[0].weight, 0), (model[2].weight, 1)]]
        dynamics = EffectiveLR(model, optimizer, 1, (0.9, 0.99), streams)
        compiled = torch.compile(lambda: optimizer.step(), backend="eager")
        for step in (optimizer.step, compiled):
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator, device="cpu").to(p.device)
            step()
            optimizer.load_state_dict(optimizer.state_dict())
        return optimizer, dynamics.drain()


@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_another_default_device_changes_nothing():
    """A card is the usual one; what is made on "meta" by mistake has no numbers at all."""
    first, second = small_model(), small_model()
    _, expected = steps_and_what_was_recorded(first, "cpu")

    optimizer, found = steps_and_what_was_recorded(second, "meta")

    assert equal(weights(second), weights(first))
    assert found == expected
    states = [value for state in optimizer.state.values() for value in state.values()]
    assert {value.device.type for value in states} == {"cpu"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_a_card_may_be_the_default_device():
    first, second = small_model().cuda(), small_model().cuda()
    for default_device, model in (("cpu", first), ("cuda", second)):
        steps_and_what_was_recorded(model, default_device)

    assert equal(weights(second), weights(first))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("foreach", [None, True, False])
def test_a_step_on_cuda_waits_for_no_result(foreach):
    model = small_model().cuda()
    optimizer = NDAdam(param_groups(model), foreach=foreach)
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
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_stacked_vectors_on_cuda_take_the_steps_of_single_ones(memory_format):
    models = [small_model().to("cuda", memory_format=memory_format) for _ in range(2)]
    optimizers = [
        NDAdam(param_groups(m), foreach=foreach)
        for m, foreach in zip(models, (True, False), strict=True)
    ]
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        for p, q in zip(*(m.parameters() for m in models), strict=True):
            p.grad = torch.randn(p.shape, generator=generator).cuda()
            q.grad = p.grad.clone()
        if step == 2:
            for model in models:
                model[0].weight.grad[1, 0, 0, 0] = float("nan")
        for optimizer in optimizers:
            optimizer.step()

    for p, q in zip(*map(weights, models), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)
    assert [sum(o.skipped_vectors().values()) for o in optimizers] == [1, 1]


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


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_of_model_and_optimizer_train_alike(clone):
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, 2)
    other_model, other = clone((model, optimizer))

    train(model, optimizer, 2, start=2)
    train(other_model, other, 2, start=2)

    assert equal(weights(other_model), weights(model))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_calls_parameters_by_their_names(clone):
    model, optimizer = clone((m := small_model(), NDAdam(param_groups(m))))
    model[0].weight.grad = torch.full_like(model[0].weight, float("nan"))
    optimizer.step()

    assert optimizer.skipped_vectors() == {"0.weight": 4}


def test_a_group_added_to_a_copy_is_normalised():
    other = pickle.loads(pickle.dumps(NDAdam([torch.nn.Parameter(torch.ones(3))])))
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


@pytest.mark.parametrize("skips", [0, 1])
def test_a_gradient_scaler_takes_the_unscaled_step_or_none(skips):
    """Weights, moments and step counts: a skipped step leaves all, and the norm, as they were."""
    model, other = small_model(), small_model()
    optimizer, plain = NDAdam(param_groups(model)), NDAdam(param_groups(other))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    x = torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        for m in (model, other):
            m.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        other(x).square().mean().backward()
        if step == 1 and skips:
            model[0].weight.grad[0, 0, 0, 0] = float("inf")
            before = weights(model), copy.deepcopy(optimizer.state_dict())
        scaler.step(optimizer)
        scaler.update()
        if step == 1 and skips:
            assert equal(weights(model), before[0])
            now, old = optimizer.state_dict()["state"], before[1]["state"]
            assert all(torch.equal(now[i][key], old[i][key]) for i in old for key in old[i])
        else:
            plain.step()

    for p, q in zip(weights(model), weights(other), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert optimizer.state[model[0].weight]["step"].item() == 3 - skips
    assert optimizer.skipped_vectors() == {}


def test_a_copy_counts_broken_gradients_from_zero_and_shares_nothing():
    model = torch.nn.Linear(4, 3, bias=False)
    optimizer = NDAdam(param_groups(model))
    model.weight.grad = torch.full((3, 4), float("nan"))
    optimizer.step()
    other_model, other = copy.deepcopy((model, optimizer))
    train(other_model, other, 2)

    assert list(optimizer.skipped_vectors().values()) == [3]
    assert other.skipped_vectors() == {}
    assert optimizer.state[model.weight]["step"].item() == 1


def test_the_state_has_torchs_keys():
    model = small_model()
    optimizer = NDAdam(param_groups(model))
    adam = torch.optim.Adam(model.parameters())
    train(model, optimizer, 1)
    adam.step()

    assert set(optimizer.state[model[0].weight]) == set(adam.state[model[0].weight])
    shared = {"params", "lr", "betas", "eps", "weight_decay", "maximize", "capturable"}
    assert shared <= set(optimizer.param_groups[0]) & set(adam.param_groups[0])


def test_a_number_over_a_capturable_learning_rate_goes_into_its_tensor():
    """Captured graphs read that tensor, so a schedule that assigns numbers must not replace it."""
    kept: dict[int, torch.Tensor] = {}
    group = {"capturable": True, "lr": 0.5}
    device = torch.device("cpu")
    prepare_capture(group, device, kept, 0, is_fused=True)
    first = group["lr"]
    group["lr"] = 0.25

    prepare_capture(group, device, kept, 0, is_fused=True)

    assert group["lr"] is first
    assert first.item() == 0.25
