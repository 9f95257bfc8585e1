"""The launches of a replayed step, run one by one: the same training as the plain loop.

Without a CUDA device the kernels run through Triton's interpreter (tests/conftest.py).
"""

import copy
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional

from ndadam import WideResNet, logit_penalty
from tests.worker.conftest import made_up_arrays
from worker import TrainConfig
from worker.cuda.conv_layers import padded
from worker.cuda.fast_wide_resnet import FastWideResNet, is_fast
from worker.cuda.step_inputs import DevicePlan, DeviceRecord
from worker.cuda.step_program import StepProgram
from worker.data.augment import augment
from worker.data.prepared import write_dataset
from worker.steps.device import arithmetic, choose_device
from worker.steps.optimizers import LearningRates
from worker.training.run import Run

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

RECIPES = {
    "paper-tf": {
        "activation": "leaky_relu",
        "shortcut": "pool_pad",
        "init": "fan_in_normal",
        "bn_eps": 1e-3,
        "gamma_c": 2.0,
    },
    "paper-wrn": {"bn_scale": "fixed"},
}


@pytest.fixture
def _few_programs(monkeypatch):
    """The interpreter's time goes by programs."""
    if DEVICE == "cpu":
        for size in ("norm_layers._TILE", "norm_layers._SUM_TILE", "conv_layers._COPIED"):
            monkeypatch.setattr(f"worker.cuda.{size}", 1 << 15)


def relative(a, b):
    return ((a - b).norm() / b.norm().clamp(min=1e-12)).item()


@pytest.fixture(scope="module")
def noise_home(tmp_path_factory):
    """``noise``: 48 + 8 images whose smallest loss is far away, so that steps stay comparable."""
    home = tmp_path_factory.mktemp("noise")
    arrays = made_up_arrays(train=48, test=8)
    write_dataset("noise", home, arrays, classes=tuple("abcd"), source="made up")
    return home


@pytest.mark.parametrize("side", [8, 7])
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_fast_pass_is_the_networks_own(recipe, side):
    model = WideResNet(
        10, 1.5, 5, generator=torch.Generator().manual_seed(0), **RECIPES[recipe]
    ).to(DEVICE, memory_format=torch.channels_last)
    twin = copy.deepcopy(model).double()
    images = torch.randn(6, 3, side, side, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    labels = torch.arange(6, device=DEVICE) % 5
    fast = FastWideResNet(model, torch.float32)
    wide = functional.pad(images, (0, 0, 0, 0, 0, fast.in_channels - 3))

    with arithmetic(TrainConfig(precision="fp32"), torch.device(DEVICE)):
        logits = fast(wide.contiguous(memory_format=torch.channels_last))
        functional.cross_entropy(logits, labels).backward()
    expected = twin(images.double())
    functional.cross_entropy(expected, labels).backward()

    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=5e-5)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert relative(p.grad.double(), q.grad) < 5e-5
    for p, q in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(p.double(), q.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", [8, 7])
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_fast_evaluation_is_the_networks_own(recipe, side):
    model = WideResNet(
        10, 1.5, 5, generator=torch.Generator().manual_seed(0), **RECIPES[recipe]
    ).to(DEVICE, memory_format=torch.channels_last)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():  # running statistics and scales that differ from 0 and 1
        model(torch.randn(6, 3, side, side, generator=random).to(DEVICE))
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=random).to(DEVICE))
    model.eval()
    before = copy.deepcopy(model.state_dict())
    images = torch.randn(6, 3, side, side, generator=random).to(DEVICE)
    fast = FastWideResNet(model, torch.float32)
    wide = functional.pad(images, (0, 0, 0, 0, 0, fast.in_channels - 3))

    with arithmetic(TrainConfig(precision="fp32"), torch.device(DEVICE)), torch.inference_mode():
        logits = fast(wide.contiguous(memory_format=torch.channels_last))
        expected = copy.deepcopy(model).double()(images.double())

    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=5e-5)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_padding_is_only_added_where_it_costs_little():
    assert [padded(c) for c in (3, 16, 20, 120, 160, 240, 480, 640)] == [
        8,
        16,
        32,
        128,
        160,
        256,
        512,
        640,
    ]


def test_a_network_with_parts_of_its_own_is_left_to_itself():
    model = WideResNet(10, 1.0, 4)
    assert is_fast(model)

    class Other(WideResNet):
        pass

    assert not is_fast(Other(10, 1.0, 4))
    model.norm = torch.nn.SyncBatchNorm(64)
    assert is_fast(model)  # no BatchNorm2d: nothing that would be computed differently


class Program(NamedTuple):
    plan: DevicePlan
    record: DeviceRecord
    steps: StepProgram


def program_of(run):
    pixels = run.data.train
    rates = LearningRates(run.config, run.optimizer, run.length)
    plan = DevicePlan(run.config, run.data.train_indices, run.length, rates, run.device, pixels.pad)
    record = DeviceRecord(run.data.info.num_classes, run.device)
    for index, group in enumerate(run.optimizer.param_groups):
        group["lr"] = plan.current_rates[0, index]
    steps = StepProgram(
        run.config, run.model, run.optimizer, plan, record, pixels, run.length.batch_size
    )
    return Program(plan, record, steps)


VARIANTS = {
    "ndadam, paper-tf": {"optimizer": "ndadam", "alpha_s": 0.01, "gamma_c": 2.5},
    "sgd, paper-wrn, kept batch": {
        "optimizer": "sgd",
        "recipe": "paper-wrn",
        "last_batch": "keep",
        "lr": 0.01,
    },
    "adam, penalty": {"optimizer": "adam", "lambda_c": 0.1, "lr_schedule": "cosine_epoch"},
}


@pytest.mark.usefixtures("_few_programs")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_program_takes_the_steps_of_the_loop(name, noise_home):
    config = TrainConfig(
        dataset="noise",
        depth=10,
        widen_factor=1.0,
        batch_size=10,
        steps=7,
        validation_fraction=0.25,
        device=DEVICE,
        deterministic=True,
        **VARIANTS[name],
    ).resolved()
    device = choose_device(config)

    def make():
        return Run(config, noise_home, device, None, lambda: False, replay_steps=True)

    with arithmetic(config, device):
        loop, other = make(), make()
        program = program_of(other)
        for step in range(config.steps):
            loop.take_step()
            program.plan.seek(step)
            program.steps.run(other.length.size_of(step))
        loop.tally.drain()

    record = program.record.table[: config.steps].cpu()
    metrics = loop.tally.metrics()
    assert record[:, 0].mean() == pytest.approx(metrics["train_loss"], rel=1e-4)
    assert record[:, 1].sum() / loop.tally._images == pytest.approx(metrics["train_error"])
    squares = record[:, 2].sum() / loop.tally._logits
    assert squares.sqrt() == pytest.approx(metrics["logit_rms"], rel=1e-3)
    for p, q in zip(other.model.parameters(), loop.model.parameters(), strict=True):
        assert relative(p.detach(), q.detach()) < 1e-3
    assert program.plan.current_rates[0].tolist() == pytest.approx(
        LearningRates(config, loop.optimizer, loop.length).at(config.steps - 1)
    )


@pytest.mark.parametrize("recipe", ["paper-tf", "paper-wrn"])
@pytest.mark.parametrize("limit", [16384, 1])
def test_images_and_labels_are_those_of_the_loop(recipe, limit, noise_home, monkeypatch):
    """By the kernel, and for images too large for it."""
    monkeypatch.setattr("worker.cuda.step_program._LARGEST_IMAGE", limit)
    config = TrainConfig(
        dataset="noise",
        depth=10,
        widen_factor=1.0,
        batch_size=16,
        recipe=recipe,
        device=DEVICE,
        deterministic=True,
    ).resolved()
    device = choose_device(config)
    run = Run(config, noise_home, device, None, lambda: False, replay_steps=True)
    program = program_of(run)

    for step in (0, 1, 5):
        program.plan.seek(step)
        size = run.length.size_of(step)
        images, labels = program.steps.batch(size)
        expected, expected_labels = run._stream.batch(step)
        torch.testing.assert_close(images[:, :3], expected, rtol=1e-5, atol=1e-5)
        assert not images[:, 3:].any()
        assert torch.equal(labels, expected_labels)
        drawn = program.plan.batch_draws(size)
        torch.testing.assert_close(augment(run.data.train, drawn), expected)
        program.plan.end()


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_the_loss_kernel_agrees_with_torch(classes, noise_home):
    config = TrainConfig(
        dataset="noise", depth=10, widen_factor=1.0, batch_size=16, lambda_c=0.3, device=DEVICE
    ).resolved()
    run = Run(config, noise_home, choose_device(config), None, lambda: False, replay_steps=True)
    program = program_of(run)
    generator = torch.Generator().manual_seed(classes)
    logits = (3 * torch.randn(37, classes, generator=generator)).to(DEVICE).requires_grad_()
    labels = torch.randint(classes, (37,), generator=generator).to(DEVICE)

    gradient = program.steps.loss_gradient(logits.detach(), labels)
    loss = functional.cross_entropy(logits, labels) + logit_penalty(logits, 0.3)
    loss.backward()

    torch.testing.assert_close(gradient, logits.grad, rtol=1e-4, atol=1e-6)
    found, wrong, squares = program.record.table[0].tolist()
    assert found == pytest.approx(loss.item(), rel=1e-5)
    assert wrong == (logits.argmax(1) != labels).sum().item()
    assert squares == pytest.approx(logits.square().sum().item(), rel=1e-5)


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
def test_a_loss_that_is_not_finite_is_recorded_as_such(noise_home):
    config = TrainConfig(
        dataset="noise", depth=10, widen_factor=1.0, batch_size=16, device=DEVICE
    ).resolved()
    run = Run(config, noise_home, choose_device(config), None, lambda: False, replay_steps=True)
    program = program_of(run)
    logits = torch.full((3, 4), torch.nan, device=DEVICE)

    program.steps.loss_gradient(logits, torch.zeros(3, dtype=torch.int64, device=DEVICE))

    assert not program.record.table[0, 0].isfinite()
