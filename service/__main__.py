"""The command ``ndsweep``, also as ``python -m service``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still loading ends it quietly."""
    try:
        from service.cli.app import app
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="ndsweep")


if __name__ == "__main__":
    main()
