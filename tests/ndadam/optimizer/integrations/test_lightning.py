"""NDAdam in the Trainer of Lightning: schedules, clipping, accumulation, averages, resumption."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("pytorch_lightning", reason="Lightning is not installed (extra integrations)")

import pytorch_lightning as lightning
from pytorch_lightning.callbacks import ModelCheckpoint, StochasticWeightAveraging

from ndadam import EffectiveLR, NDAdam, param_groups, per_group, weight_vectors

pytestmark = pytest.mark.filterwarnings("ignore")  # of the package's own

EPOCHS, BATCHES = 4, 6
ALPHA_V, ALPHA_S = 0.05, 0.002


class Module(lightning.LightningModule):
    """A small network, its optimizer and a schedule of one cycle over all steps."""

    def __init__(self, norm: nn.Module | None = None, *, one_cycle: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False),
            norm or nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 36, 3),
        )
        self.one_cycle = one_cycle
        self.rates: list[tuple[float, float]] = []
        self.recorded: list[float] = []

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def on_train_batch_end(self, *_: Any) -> None:
        first, *_, last = self.optimizers().optimizer.param_groups
        self.rates.append((first["lr"], last["lr"]))

    def configure_optimizers(self) -> Any:
        optimizer = NDAdam(param_groups(self.net, alpha_v=ALPHA_V, alpha_s=ALPHA_S))
        if not self.one_cycle:
            return optimizer
        rates = per_group(optimizer, alpha_v=ALPHA_V, alpha_s=ALPHA_S)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rates, total_steps=total)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def batches() -> Any:
    random = torch.Generator().manual_seed(1)
    images = torch.randn(8 * BATCHES, 1, 8, 8, generator=random)
    labels = torch.randint(3, (8 * BATCHES,), generator=random)
    data = torch.utils.data.TensorDataset(images, labels)
    return torch.utils.data.DataLoader(data, batch_size=8)


def trainer(folder: Path, epochs: int = EPOCHS, **settings: Any) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    settings.setdefault("enable_checkpointing", False)
    return lightning.Trainer(
        accelerator="cpu", max_epochs=epochs, default_root_dir=folder, **quiet, **settings
    )


def norms(model: nn.Module) -> Tensor:
    """Lengths of all weight vectors, which lie along dimension 0 here."""
    parameters = dict(model.named_parameters())
    found = [parameters[vectors.name].detach() for vectors in weight_vectors(model)]
    return torch.cat([p.flatten(1).norm(dim=1) for p in found])


def test_a_cycle_keeps_the_ratio_of_both_rates(tmp_path: Path) -> None:
    module = Module(one_cycle=True)

    trainer(tmp_path).fit(module, batches())

    assert len(module.rates) == EPOCHS * BATCHES
    assert all(s / v == pytest.approx(ALPHA_S / ALPHA_V) for v, s in module.rates)
    assert max(v for v, _ in module.rates) == pytest.approx(ALPHA_V, rel=0.01)
    torch.testing.assert_close(norms(module.net), torch.ones(4 + 3))


@pytest.mark.parametrize("one_cycle", [False, True])
def test_a_run_that_was_interrupted_goes_on_in_the_same_bits(
    tmp_path: Path, one_cycle: bool
) -> None:
    whole = Module(one_cycle=one_cycle)
    saves = ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, filename="{epoch}")
    trainer(tmp_path, enable_checkpointing=True, callbacks=[saves]).fit(whole, batches())

    resumed = Module(one_cycle=one_cycle)
    trainer(tmp_path).fit(resumed, batches(), ckpt_path=str(tmp_path / "epoch=1.ckpt"))

    assert resumed.rates == whole.rates[2 * BATCHES :]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_clipping_and_accumulation_come_before_the_step(tmp_path: Path) -> None:
    """Six batches of eight, two of which make a step: as three batches of sixteen."""
    module, other = Module(), Module()
    settings = {"gradient_clip_val": 0.1}

    trainer(tmp_path, accumulate_grad_batches=2, **settings).fit(module, batches())

    optimizer = other.configure_optimizers()
    for _ in range(EPOCHS):
        loader = iter(batches())
        for one, two in zip(loader, loader, strict=True):
            for batch in (one, two):
                (other.training_step(batch, 0) / 2).backward()
            nn.utils.clip_grad_norm_(other.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    for mine, plain in zip(module.net.parameters(), other.net.parameters(), strict=True):
        assert torch.equal(mine, plain)


def test_averaged_weights_are_shorter_and_their_rates_are_asked_per_group(tmp_path: Path) -> None:
    """The mean of unit vectors is no unit vector; a normalisation behind them does not mind.

    With batch normalisation, Lightning 2.6 reads the data once more and ends with a step of any
    optimizer, on the gradients of the step before: its averages are moved once.
    """
    module = Module(nn.GroupNorm(2, 4))
    rates = per_group(module.configure_optimizers(), alpha_v=0.02, alpha_s=0.001)
    swa = StochasticWeightAveraging(swa_lrs=rates, swa_epoch_start=1, annealing_epochs=1)

    trainer(tmp_path, callbacks=[swa]).fit(module, batches())

    assert len(module.rates) == EPOCHS * BATCHES
    assert module.rates[-1] == pytest.approx((0.02, 0.001))
    lengths = norms(module.net)
    assert ((lengths > 0.9) & (lengths < 1 - 1e-4)).all(), lengths


def test_its_effective_rate_is_recorded(tmp_path: Path) -> None:
    module = Module()
    found: list[float] = []

    class Recorded(lightning.Callback):
        def on_train_start(self, _: Any, pl_module: Any) -> None:
            self.dynamics = EffectiveLR(pl_module.net, pl_module.optimizers().optimizer)

        def on_train_end(self, *_: Any) -> None:
            found.extend(self.dynamics.drain().effective_lr)

    trainer(tmp_path, callbacks=[Recorded()]).fit(module, batches())

    assert len(found) == EPOCHS * BATCHES
    assert found[0] == pytest.approx(ALPHA_V, rel=0.01)
