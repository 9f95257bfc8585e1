"""A tiny transformer in Hugging Face's Trainer; it learns the text of Python's own `help()`."""

import shutil
import tempfile
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Annotated

from pydantic import Field
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import ndsweep  # ndsweep


@dataclass(frozen=True)
class Config:
    learning_rate: Annotated[float, Field(gt=0, description="At the first step.")] = 3e-3
    layers: Annotated[int, Field(ge=1, le=48)] = 2
    width: Annotated[int, Field(ge=4, multiple_of=4, description="Of 4 heads together.")] = 64
    steps: Annotated[int, Field(ge=20, description="Steps of 16 pieces of 64 bytes.")] = 100
    seed: int = 0  # a field of this name gets the trial's seed


@ndsweep.training(metrics={"eval_loss": ndsweep.Metric("minimize", unit="nats")})  # ndsweep
def train(config: Config, run: ndsweep.Run) -> None:  # ndsweep
    """Predict the next byte; report the loss on every 50th piece, which is held out."""

    class Report(TrainerCallback):  # ndsweep
        def on_save(self, args, state, control, **_):  # ndsweep
            run.report(state.global_step, state.log_history[-1], config.steps)  # ndsweep
            run.checkpoint(lambda to: shutil.copytree(folder, to, dirs_exist_ok=True))  # ndsweep

    text = list("\n".join(topics.values()).encode())
    pieces = [text[i : i + 64] for i in range(0, len(text) - 63, 64)]
    data = [{"input_ids": piece, "labels": piece} for piece in pieces]
    shape = {"n_layer": config.layers, "n_embd": config.width, "n_head": 4, "n_positions": 64}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            **{"learning_rate": config.learning_rate, "seed": config.seed},
            **{"max_steps": config.steps, "per_device_train_batch_size": 16},
            **{"eval_strategy": "steps", "save_strategy": "steps", "save_total_limit": 1},
            **{"eval_steps": config.steps // 5, "save_steps": config.steps // 5},
            **{"report_to": "none", "disable_tqdm": True},
            use_cpu=run.device == "cpu",  # ndsweep
        )
        trainer = Trainer(
            model_init=lambda: GPT2LMHeadModel(GPT2Config(vocab_size=256, **shape)),
            args=arguments,
            train_dataset=[piece for i, piece in enumerate(data) if i % 50],
            eval_dataset=data[::50],
            callbacks=[Report()],  # ndsweep
        )
        trainer.train((at := run.restore()) and str(next(at.glob("checkpoint-*"))))  # ndsweep
