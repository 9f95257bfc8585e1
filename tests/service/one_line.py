"""A command that fails says why in one line."""


def one_line(result):
    """The line of a failure; anything else it printed fails the test."""
    assert result.exit_code != 0
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.output
    assert "Traceback" not in result.output
    return lines[0]
