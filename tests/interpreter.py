"""Triton's interpreter without what it works out for checks that it then does not make."""

import contextlib
from dataclasses import replace


def leave_out_idle_checks() -> None:
    """Have sums of integers worked out once: a third of the interpreter's time.

    It works each one out a second time, for an assertion that it makes in debug mode only.
    """
    with contextlib.suppress(ImportError):
        from triton.runtime.interpreter import interpreter_builder

        options = interpreter_builder.options
        interpreter_builder.options = replace(options, sanitize_overflow=options.debug)
