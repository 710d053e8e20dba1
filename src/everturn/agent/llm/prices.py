"""What the calls of a model cost, where that is known. The prices are a large library: it is loaded late, and in a thread."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import structlog

from everturn.model import Usage

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The tokens of one call, under the names that the library of prices reads."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class Prices:
    """The prices of one model at one address."""

    def __init__(self, provider: str, url: str, *, known: bool) -> None:
        self._provider = provider
        self._url = url
        self._known = known  # whether anybody publishes prices of this address

    def start(self) -> None:
        """Load the prices in the background, so that the first call need not wait for them."""
        if self._known:
            asyncio.get_running_loop().run_in_executor(None, _loaded)

    async def usage(self, model: str, counts: TokenCounts) -> Usage:
        """The usage of a call, with its cost where the price is known."""
        cost = await self._cost(model, counts) if self._known else None
        return Usage(1, counts.input_tokens, counts.output_tokens, counts.cache_read_tokens, cost)

    async def _cost(self, model: str, counts: TokenCounts) -> float | None:
        library = _loaded() if _loaded.cache_info().currsize else await asyncio.to_thread(_loaded)
        if library is None:
            return None
        for reference in ({"provider_api_url": self._url}, {"provider_id": self._provider}):
            try:
                return float(library.calc_price(counts, model, **reference).total_price)
            except LookupError:
                continue  # this address, or this model, is not known
            except (ValueError, AssertionError, ArithmeticError):
                return None
        return None


@cache
def _loaded() -> Any:
    """The library with its data, loaded once; None where it is not installed or cannot be loaded."""
    try:
        library = importlib.import_module("genai_prices")
        importlib.import_module("genai_prices.data_snapshot").get_snapshot()
    except Exception as error:  # noqa: BLE001  an answer never fails because of its price
        log.warning("prices of models not loaded", error=repr(error), remedy="install everturn[prices]")
        return None
    return library
