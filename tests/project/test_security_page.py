"""Every promise of the security page names a test that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_promise_is_held_by_tests_that_are_there():
    rows = [line for line in PAGE.partition("## Promises")[2].splitlines() if line.startswith("| ")]
    named = [re.findall(r"`(tests/[^`]+)`", row) for row in rows[1:]]

    assert len(named) > 10
    assert all(named), rows
    assert not [path for paths in named for path in paths if not (ROOT / path).exists()]
