"""Ends the process when a thread or task that the store needs has died."""

from __future__ import annotations

import os
from collections.abc import Callable

import structlog

OnDeath = Callable[[BaseException], None]


def end_process(error: BaseException) -> None:
    """Log the error and end the process at once: the next one recovers, a gateway without its store only looks alive."""
    structlog.get_logger().critical("store.died", error=repr(error), exc_info=error)
    os._exit(1)
