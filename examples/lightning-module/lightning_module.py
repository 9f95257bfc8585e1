"""A Lightning module: which of three growers a wine comes from, by thirteen measurements."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytorch_lightning as lightning
import torch
from pydantic import Field
from sklearn.datasets import load_wine
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split

import ndsweep  # ndsweep


@dataclass(frozen=True)
class Config:
    lr: Annotated[float, Field(gt=0, description="Step length.")] = 0.01
    optimizer: Literal["SGD", "Adam"] = "Adam"
    width: Annotated[int, Field(ge=1, le=4096, description="Hidden units.")] = 16
    epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    seed: int = 0  # a field of this name gets the trial's seed


class Classifier(lightning.LightningModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(nn.Linear(13, config.width), nn.ReLU(), nn.LazyLinear(3))
        self.layers(torch.zeros(1, 13))

    def training_step(self, batch, _):
        return cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("loss", cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        return getattr(torch.optim, self.config.optimizer)(self.parameters(), lr=self.config.lr)


@ndsweep.training(metrics={"loss": ndsweep.Metric("minimize", unit="nats")})  # ndsweep
def train(config: Config, run: ndsweep.Run) -> None:  # ndsweep
    class Report(lightning.Callback):  # ndsweep
        def on_train_epoch_end(self, loop, module):  # ndsweep
            run.report(loop.current_epoch + 1, loop.callback_metrics, config.epochs)  # ndsweep
            run.checkpoint(lambda folder: loop.save_checkpoint(folder / "last"))  # ndsweep

    inputs, labels = (torch.tensor(a) for a in load_wine(return_X_y=True))
    scaled = ((inputs - inputs.mean(0)) / inputs.std(0)).float()
    part, held = random_split(TensorDataset(scaled, labels), (118, 60), torch.Generator())
    lightning.seed_everything(config.seed, verbose=False)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    ours = {"accelerator": run.device.partition(":")[0], "callbacks": [Report()]}  # ndsweep
    trainer = lightning.Trainer(max_epochs=config.epochs, **quiet, **ours)  # ndsweep
    loaders = DataLoader(part, 16, shuffle=True), DataLoader(held, 60)
    model = Classifier(config)
    trainer.fit(model, *loaders, ckpt_path=(at := run.restore()) and at / "last")  # ndsweep
