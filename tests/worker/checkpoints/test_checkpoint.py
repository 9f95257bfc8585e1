import errno
import logging
import os
import pkgutil
from pathlib import Path

import pytest
import torch

from worker.checkpoints import checkpoint
from worker.errors import CheckpointError

STATE = {"config_key": "k", "step": 3, "weights": torch.arange(1000.0), "rate": 0.1}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back(tmp_path):
    checkpoint.save(tmp_path, 3, STATE)

    found = checkpoint.load_newest(tmp_path, "k")

    assert found["step"] == 3
    assert found["rate"] == 0.1
    assert torch.equal(found["weights"], STATE["weights"])


class Command:
    """Runs something when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_checkpoint_that_would_run_something_is_refused_and_not_unpickled(tmp_path, caplog):
    checkpoint.save(tmp_path / "a", 3, STATE | {"rate": Command(tmp_path / "it ran")})

    with pytest.raises(CheckpointError, match="none of the 1 checkpoints"):
        checkpoint.load_newest(tmp_path / "a", "k")

    assert "more than tensors and numbers" in caplog.text
    assert not (tmp_path / "it ran").exists()


def test_an_empty_folder_has_none(tmp_path):
    assert checkpoint.load_newest(tmp_path, "k") is None
    assert checkpoint.load_newest(tmp_path / "nowhere", "k") is None


def damage(path, kind):
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    path.write_bytes(
        {
            "truncated": data[:-1],
            "empty": b"",
            "flipped": bytes(flipped),
            "header": b"x" + data[1:],
        }[kind]
    )


@pytest.mark.parametrize("kind", ["truncated", "empty", "flipped", "header"])
def test_a_damaged_checkpoint_is_never_picked(kind, tmp_path, caplog):
    checkpoint.save(tmp_path, 3, STATE)
    damage(checkpoint.save(tmp_path, 4, STATE | {"step": 4}), kind)

    with caplog.at_level(logging.WARNING, "worker"):
        found = checkpoint.load_newest(tmp_path, "k")

    assert found["step"] == 3
    assert "checksum is wrong" in caplog.text


def test_a_damaged_file_is_none_of_the_two_that_are_kept(tmp_path):
    for step in (3, 4):
        checkpoint.save(tmp_path, step, STATE | {"step": step})
    damage(tmp_path / "step-0000000004.ckpt", "truncated")

    assert checkpoint.load_newest(tmp_path, "k")["step"] == 3
    # The run goes on from 3 and comes by the number of the damaged file again.
    for step in (4, 5):
        checkpoint.save(tmp_path, step, STATE | {"step": step})
        assert len(list(tmp_path.glob("step-*.ckpt"))) == 2
        assert checkpoint.load_newest(tmp_path, "k")["step"] == step

    checkpoint.remove_all(tmp_path)
    assert not tmp_path.exists()


def test_a_file_that_cannot_be_read_now_stays(tmp_path, monkeypatch):
    for step in (3, 4):
        checkpoint.save(tmp_path, step, STATE | {"step": step})
    read = Path.read_bytes

    def unreadable(path):
        if path.stem.endswith("4"):
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", unreadable)
        assert checkpoint.load_newest(tmp_path, "k")["step"] == 3

    assert checkpoint.load_newest(tmp_path, "k")["step"] == 4


class Killed(BaseException):
    """Stands for a process that ends here."""


@pytest.mark.parametrize(
    "call", ["tempfile.mkstemp", "os.fsync", "os.replace", "worker.checkpoints.checkpoint._remove"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_moment_leaves_two_good_ones(call, when, tmp_path, monkeypatch):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, STATE | {"step": step})
    module, _, name = call.rpartition(".")
    real = getattr(pkgutil.resolve_name(module), name)

    def killed(*args, **options):
        if when == "after":
            real(*args, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(call, killed)
        with pytest.raises(Killed):
            checkpoint.save(tmp_path, 3, STATE | {"step": 3})

    whole = [path for path in tmp_path.glob("step-*.ckpt") if checkpoint._read(path)]
    assert len(whole) in (2, 3)
    assert checkpoint.load_newest(tmp_path, "k")["step"] in (2, 3)


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    checkpoint.save(tmp_path, 3, STATE)
    (tmp_path / ".checkpoint-abc").write_bytes(b"half")

    checkpoint.load_newest(tmp_path, "k")

    assert names(tmp_path) == ["step-0000000003.ckpt"]


def test_work_is_not_thrown_away_in_silence_when_all_are_damaged(tmp_path):
    damage(checkpoint.save(tmp_path, 3, STATE), "truncated")

    with pytest.raises(CheckpointError, match=r"none of the 1 checkpoints .* is whole"):
        checkpoint.load_newest(tmp_path, "k")


def test_a_checkpoint_of_another_config_is_refused(tmp_path):
    checkpoint.save(tmp_path, 3, STATE)

    with pytest.raises(CheckpointError, match="belongs to another config"):
        checkpoint.load_newest(tmp_path, "other")


def test_two_are_kept(tmp_path):
    for step in (1, 2, 10):
        checkpoint.save(tmp_path, step, STATE)

    assert names(tmp_path) == ["step-0000000002.ckpt", "step-0000000010.ckpt"]


def test_the_old_ones_stay_until_the_new_one_stands(tmp_path, monkeypatch):
    seen = []
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(names(tmp_path)), rename(a, b)))
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, STATE)

    before_last = [name for name in seen[2] if name.startswith("step")]
    assert before_last == ["step-0000000001.ckpt", "step-0000000002.ckpt"]


@pytest.mark.parametrize("call", ["fsync", "replace", "fdopen"])
def test_a_full_disk_is_a_warning_and_the_last_good_one_stays(call, tmp_path, monkeypatch, caplog):
    checkpoint.save(tmp_path, 3, STATE)

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with caplog.at_level(logging.WARNING, "worker"):
        assert checkpoint.save(tmp_path, 4, STATE) is None

    assert "checkpoint at step 4 was not written" in caplog.text
    assert "No space left" in caplog.text
    assert names(tmp_path) == ["step-0000000003.ckpt"]


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Exploit:
        def __reduce__(self):
            return os.system, ("touch /tmp/never",)

    checkpoint.save(tmp_path, 3, STATE | {"weights": Exploit()})

    with pytest.raises(CheckpointError, match=r"none of the 1 checkpoints"):
        checkpoint.load_newest(tmp_path, "k")


def test_removing_all_leaves_other_files_alone(tmp_path):
    folder = tmp_path / "run"
    checkpoint.save(folder, 3, STATE)
    (folder / "notes").touch()

    checkpoint.remove_all(folder)
    assert names(folder) == ["notes"]
    (folder / "notes").unlink()
    checkpoint.remove_all(folder)
    assert not folder.exists()
    checkpoint.remove_all(folder)


def test_old_files_that_cannot_be_deleted_are_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(path, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system")

    (tmp_path / ".checkpoint-old").write_bytes(b"half")
    for step in (1, 2):
        checkpoint.save(tmp_path, step, STATE | {"step": step})
    monkeypatch.setattr(Path, "unlink", refuse)
    with caplog.at_level(logging.WARNING, "worker"):
        saved = checkpoint.save(tmp_path, 3, STATE)
        found = checkpoint.load_newest(tmp_path, "k")

    assert saved == tmp_path / "step-0000000003.ckpt"
    assert found["step"] == 3
    for name in ("step-0000000001.ckpt", ".checkpoint-old"):
        assert f"{name} was not deleted (Read-only file system)" in caplog.text
