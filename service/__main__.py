"""The command ``ndsweep``, also as ``python -m service``."""

import sys

from service.supervision.surroundings import complete_surroundings


def main() -> None:
    """Run the command line; Ctrl-C while it is still loading ends it quietly."""
    complete_surroundings()
    try:
        from service.cli.app import app
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="ndsweep")


if __name__ == "__main__":
    main()
