"""The kit is tested on the toy backend, which needs no framework: wrong rules and wrong backends.

Test modules share two tables of mistakes that no installed package holds, so this directory is
put on the path. The toy backend must be installed: `pip install -e . -e backends/example`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import relurules_example  # noqa: F401 - without it nothing here says anything

sys.path.insert(0, str(Path(__file__).parent))
