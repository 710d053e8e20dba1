"""Load objects of other people's modules, named in the settings as `MODULE:OBJECT`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from everturn.errors import ConfigError


def look_in(home: Path) -> None:
    """Add the home to the import path, so that its modules are found."""
    if str(home) not in sys.path:
        sys.path.append(str(home))  # at the end: nothing in the home takes the place of a library


def load_object(name: str) -> Any:
    """Import the object with this name. Raises ConfigError with the reason. Imports code: not for the event loop."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever somebody else's module raises
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    return found
