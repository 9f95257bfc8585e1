import pytest
import torch

from worker import TrainConfig, train
from worker.config.train_config import FieldError
from worker.steps.device import arithmetic, choose_device


def test_a_card_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(FieldError, match="needs a CUDA device and this machine has none") as caught:
        choose_device(TrainConfig(device="cuda"))

    assert caught.value.field == "device"


def test_auto_takes_the_cpu_where_there_is_no_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert choose_device(TrainConfig()).type == "cpu"


def test_tf32_where_auto_finds_a_cpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(FieldError, match="a CPU, which has no TF32; got 'tf32'"):
        choose_device(TrainConfig(precision="tf32"))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_an_old_card_gets_fp32_only(precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))

    with pytest.raises(FieldError, match=r"below 8.0; got .* capability 7.5") as caught:
        choose_device(TrainConfig(device="cuda", precision=precision))

    assert caught.value.field == "precision"


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("precision", "expected"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_global_switches_are_put_back(deterministic, precision, expected):
    config = TrainConfig(deterministic=deterministic, precision=precision)
    conv, matmul = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    before = (conv.fp32_precision, matmul.fp32_precision, torch.backends.cudnn.benchmark)

    with arithmetic(config, torch.device("cpu")):
        assert (conv.fp32_precision, matmul.fp32_precision) == (expected, expected)
        assert torch.are_deterministic_algorithms_enabled() == deterministic

    assert (conv.fp32_precision, matmul.fp32_precision, torch.backends.cudnn.benchmark) == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_between_reports_the_switches_are_everybody_elses(data_home, tiny_config):
    config = tiny_config.model_copy(update={"deterministic": True, "report_every": 2})
    within = []
    reports = train(
        config,
        data_home=data_home,
        stop=lambda: within.append(torch.are_deterministic_algorithms_enabled()),
    )
    next(reports)

    assert within
    assert all(within)
    assert not torch.are_deterministic_algorithms_enabled()
    reports.close()
    assert not torch.are_deterministic_algorithms_enabled()


def test_refusals_come_before_the_first_step(data_home, tiny_config):
    with pytest.raises(FieldError, match="at most the 84 training images"):
        train(tiny_config.model_copy(update={"batch_size": 85}), data_home=data_home)
