"""NDAdam on models of transformers, in its Trainer."""

import copy
import warnings

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed (extra integrations)")
pytest.importorskip("accelerate", reason="accelerate is not installed (extra integrations)")

import transformers

from ndadam import ModelNDAdam, NDAdam, describe_groups, param_groups, prepare, weight_vectors

pytestmark = pytest.mark.filterwarnings("ignore")  # of the package's own

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def gpt2():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=1,
            n_embd=32,
            n_head=2,
            vocab_size=50,
            n_positions=16,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def test_every_matrix_of_gpt2_holds_weight_vectors():
    """Shapes (in, out): 96, 32, 128 and 32 columns of 32, 32, 32 and 128 elements."""
    model = gpt2()

    found = {v.name.partition(".h.0.")[2]: (v.count, v.length) for v in weight_vectors(model)}

    assert {name: found[f"{name}.weight"] for name in ("attn.c_attn", "attn.c_proj")} == {
        "attn.c_attn": (96, 32),
        "attn.c_proj": (32, 32),
    }
    assert found["mlp.c_fc.weight"] == (128, 32)
    assert found["mlp.c_proj.weight"] == (32, 128)
    assert all(p.dim() == 1 for g in param_groups(model)[2:] for p in g["params"])


MODELS = {
    "BERT": lambda: transformers.BertModel(
        transformers.BertConfig(vocab_size=50, intermediate_size=64, **SMALL)
    ),
    "ViT": lambda: transformers.ViTModel(
        transformers.ViTConfig(intermediate_size=64, image_size=32, **SMALL)
    ),
    "T5": lambda: transformers.T5Model(
        transformers.T5Config(vocab_size=50, d_model=32, d_kv=16, d_ff=64, num_layers=1)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_no_matrix_is_without_a_rule(name):
    model = MODELS[name]()

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*no rule says")
        groups = param_groups(model)

    scalars = [p for g in groups for p in g["params"] if g["vector_dim"] is None]
    assert sum(p.numel() for p in scalars) < 0.1 * sum(p.numel() for p in model.parameters())


def test_positions_of_bert_and_vit_are_treated_alike():
    lines = [
        line.split()
        for name in ("BERT", "ViT")
        for line in describe_groups(MODELS[name]()).splitlines()
        if "position_embeddings" in line
    ]

    assert [line[2] for line in lines] == ["vectors", "vectors"]


def test_prepare_keeps_what_gpt2_computes():
    model = gpt2()
    for v in weight_vectors(model):
        v.parameter.data.mul_(3)

    prepared = prepare(model, {"input_ids": torch.arange(8)[None]})

    assert prepared.largest_difference < 1e-5
    assert prepared.kept == {}


def trainer(model, folder, **settings):
    torch.manual_seed(0)
    rows = torch.randint(0, 50, (32, 8), generator=torch.Generator().manual_seed(1))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=6,
        save_steps=3,
        max_grad_norm=1.0,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **settings,
    )
    return transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        optimizer_cls_and_kwargs=(ModelNDAdam, {"model": model, "alpha_v": 0.05}),
    )


@pytest.mark.parametrize("settings", [{}, {"bf16": True}], ids=["float32", "bf16"])
def test_a_run_of_the_trainer_that_is_resumed_ends_with_the_same_bits(settings, tmp_path):
    model, other = gpt2(), gpt2()
    whole = trainer(model, tmp_path / "whole", **settings)
    whole.train()
    again = trainer(other, tmp_path / "again", **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))

    assert [g["vector_dim"] for g in whole.optimizer.param_groups[:2]] == [0, 1]
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True)
    )
    decays = {g["vector_dim"]: g["weight_decay"] for g in whole.optimizer.param_groups}
    assert decays == {0: 0.0, 1: 0.0, None: 0.0}  # the Trainer decays matrices only


def test_plain_ndadam_in_the_trainer_is_warned_of(tmp_path):
    model = gpt2()
    made = trainer(model, tmp_path)
    made.optimizer_cls_and_kwargs = (NDAdam, {"lr": 0.05})

    with pytest.warns(UserWarning, match="no parameter group has vector_dim"):
        made.create_optimizer()


def test_accelerate_takes_the_same_steps():
    from accelerate import Accelerator

    model, plain = gpt2(), gpt2()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    wrapped, optimizer = accelerator.prepare(model, NDAdam(param_groups(model)))
    reference = NDAdam(param_groups(plain))
    rows = torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(1))
    for start in (0, 2):
        for row in rows[start : start + 2]:
            with accelerator.accumulate(wrapped):
                loss = wrapped(input_ids=row[None], labels=row[None]).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            (plain(input_ids=row[None], labels=row[None]).loss / 2).backward()
        reference.step()
        reference.zero_grad()

    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert len(copy.deepcopy(optimizer.state_dict())["param_groups"]) == 3
