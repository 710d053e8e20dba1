"""Delivery by webhook, as https://core.telegram.org/bots/api#setwebhook says: a POST with the secret in a header, and again
after anything but a 2xx until it is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx

from everturn.testing_telegram.state import Hook, Waiting
from everturn.testing_telegram.telegram import Telegram

SECRET = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of the header
RETRY_S = 0.2
LONGEST_S = 5.0


async def deliver(telegram: Telegram, closing: asyncio.Event, retry_s: float = RETRY_S) -> None:
    """Bring every update to the webhook while there is one, one after the other."""
    async with httpx.AsyncClient(timeout=LONGEST_S) as client:
        while not closing.is_set():
            changed, hook = telegram.queue.changed, telegram.state.hook
            waiting = _next(telegram)
            if hook is None or waiting is None:
                await _either(changed, closing)
            elif await _posted(client, hook, waiting, telegram.now):
                _taken(telegram, waiting)
            else:
                await asyncio.sleep(retry_s)


def _next(telegram: Telegram) -> Waiting | None:
    telegram.queue.forget_old()
    queue = [*telegram.state.again, *telegram.state.waiting]
    return queue[-1 if telegram.queue.reorder else 0] if queue else None


def _taken(telegram: Telegram, waiting: Waiting) -> None:
    state = telegram.state
    if any(each is waiting for each in state.again):
        state.again = [each for each in state.again if each is not waiting]
    else:
        state.waiting = [each for each in state.waiting if each is not waiting]
        state.confirmed.append(waiting)
    telegram.changed()


async def _posted(client: httpx.AsyncClient, hook: Hook, waiting: Waiting, now: Callable[[], float]) -> bool:
    headers = {SECRET: hook.secret} if hook.secret else {}
    try:
        response = await client.post(hook.url, json=waiting.update, headers=headers)
    except httpx.HTTPError as error:
        hook.last_error, hook.last_error_at = type(error).__name__, int(now())
        return False
    if not response.is_success:
        hook.last_error = f"Wrong response from the webhook: {response.status_code} {response.reason_phrase}"
        hook.last_error_at = int(now())
    return response.is_success


async def _either(changed: asyncio.Event, closing: asyncio.Event) -> None:
    waits = {asyncio.ensure_future(each.wait()) for each in (changed, closing)}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
