"""A process that imports a package of trainings: ``python -m …training_process SECONDS NAME…``.

A part of the built-in training is called ``networks/NAME`` and the like.

Prints what each training declares as a line of JSON, then answers a line for each spec on its input
with the rules of the package that it breaks. Ends when its input does, or after minutes of silence.
"""

import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from worker.config.described_config import describe, describe_part
from worker.config.parts import find_part, load_part, part_key
from worker.config.training import find_training, load_training
from worker.config.trial_config import FieldError

#: Seconds without a request after which the memory of the package is given back.
IDLE_SECONDS = 600.0
#: Of a package's files, so many are looked at for changes.
_MAX_FILES = 500


def main(names: Sequence[str], seconds: float) -> None:
    """Read trainings by name; be gone where one takes much longer than ``seconds``."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a package prints is no answer
    for name in names:
        signal.alarm(int(seconds) + 10)
        _send(answers, _described(name))
    signal.alarm(0)
    while select.select([0], [], [], IDLE_SECONDS)[0] and (line := sys.stdin.readline()):
        _send(answers, {"reasons": _broken_rules(**json.loads(line))})


def _send(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _described(name: str) -> dict[str, Any]:
    try:
        if part := part_key(name):
            found, entry = describe_part(load_part(*part)), find_part(*part).entry
        else:
            found, entry = describe(load_training(name)), find_training(name).entry
        return {"training": found, "files": _files(entry.module.partition(".")[0])}
    except FieldError as error:
        return {"reason": str(error), "log": traceback.format_exc()}
    except Exception as error:  # the package is not ours
        reason = f"{name!r} has a config that cannot be described: {error}"
        return {"reason": reason[:500], "log": traceback.format_exc()}


def _files(top: str) -> list[str]:
    """The files of a package that were imported."""
    mine = [m for n, m in list(sys.modules.items()) if n == top or n.startswith(f"{top}.")]
    return [file for m in mine if (file := getattr(m, "__file__", None))][:_MAX_FILES]


def _broken_rules(kind: str, spec: dict[str, Any]) -> list[Any]:
    from pydantic import ValidationError

    from sweeps.match.match_spec import MatchSpec
    from sweeps.spec.sweep_spec import SweepSpec
    from sweeps.spec.validation_messages import explain

    model: type[MatchSpec] | type[SweepSpec] = MatchSpec if kind == "match" else SweepSpec
    try:
        model.model_validate(spec)
    except ValidationError as error:
        return explain(error)
    return []


if __name__ == "__main__":
    main(sys.argv[2:], float(sys.argv[1]))
