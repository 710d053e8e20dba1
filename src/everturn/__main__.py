"""`python -m everturn`, and what the installed `everturn` command calls."""

from __future__ import annotations

import sys

from everturn.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
