"""The command line's entry point; the core must install and import without what it needs.

typer and rich belong to the extra `explain`, as torch, timm and matplotlib do. So the commands
are imported when the command line runs, and a missing module ends in the line that installs it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from relurules.errors import RelurulesError


def main() -> None:
    """Run the command line, and end what a user can mend in a message, not a traceback."""
    # Threads that spin while they wait make a machine with one busy neighbour ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import_module("relurules.explain._app").app()
    except ModuleNotFoundError as error:
        sys.exit(
            f"relurules: there is no module {error.name!r}, which this command needs; "
            'install it with:  pip install "relurules[explain]"'
        )
    except RelurulesError as error:
        sys.exit(f"relurules: {error}")
