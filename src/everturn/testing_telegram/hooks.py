"""Delivery by webhook, as https://core.telegram.org/bots/api#setwebhook says: a POST with the secret in a header
(`secret_token`), over `max_connections` at once, and again after anything but a 2xx.

The real one gives up "after a reasonable amount of attempts", which nobody can test against; this one tries until it is taken.
What went wrong is told by https://core.telegram.org/bots/api#getwebhookinfo.
"""

from __future__ import annotations

import asyncio
from functools import partial

import httpx2

from everturn.testing_telegram.queue import either
from everturn.testing_telegram.state import Hook, Waiting
from everturn.testing_telegram.telegram import Telegram
from everturn.testing_waiting import WAIT_S

SECRET = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of the header
RETRY_S = 0.2


async def deliver(telegram: Telegram, closing: asyncio.Event, retry_s: float = RETRY_S) -> None:
    """Bring every update to the webhook while there is one, as many at once as it allows."""
    under_way: dict[int, asyncio.Task[None]] = {}
    async with httpx2.AsyncClient(timeout=WAIT_S, verify=False) as client:
        while not closing.is_set():
            changed, hook = telegram.queue.changed, telegram.state.hook
            for each in _window(telegram, hook) if hook else ():
                if id(each) not in under_way:
                    task = asyncio.create_task(_bring(telegram, client, each, retry_s))
                    under_way[id(each)] = task
                    task.add_done_callback(partial(_ended, telegram, under_way, id(each)))
            await either(changed, closing)
        for task in under_way.values():
            task.cancel()
        await asyncio.gather(*under_way.values(), return_exceptions=True)


def _ended(telegram: Telegram, under_way: dict[int, asyncio.Task[None]], number: int, _: object) -> None:
    under_way.pop(number, None)
    telegram.queue.notify()


def _window(telegram: Telegram, hook: Hook) -> list[Waiting]:
    """Those that are brought now: `max_connections` of setWebhook at once, between which there is no order."""
    telegram.queue.forget_old()
    found = [*telegram.state.again, *telegram.state.waiting][: hook.max_connections]
    return found[::-1] if telegram.queue.reorder else found


async def _bring(telegram: Telegram, client: httpx2.AsyncClient, waiting: Waiting, retry_s: float) -> None:
    hook = telegram.state.hook
    if hook is not None and await _posted(client, telegram, hook, waiting):
        _taken(telegram, waiting)
    else:
        await asyncio.sleep(retry_s)


def _taken(telegram: Telegram, waiting: Waiting) -> None:
    state = telegram.state
    if any(each is waiting for each in state.again):
        state.again = [each for each in state.again if each is not waiting]
    else:
        state.waiting = [each for each in state.waiting if each is not waiting]
        state.confirmed.append(waiting)
    telegram.changed()


async def _posted(client: httpx2.AsyncClient, telegram: Telegram, hook: Hook, waiting: Waiting) -> bool:
    headers = {SECRET: hook.secret} if hook.secret else {}
    try:
        response = await client.post(telegram.door(hook.url), json=waiting.update, headers=headers)
    except httpx2.HTTPError as error:
        hook.last_error, hook.last_error_at = type(error).__name__, int(telegram.now())
        return False
    if not response.is_success:
        hook.last_error = f"Wrong response from the webhook: {response.status_code} {response.reason_phrase}"
        hook.last_error_at = int(telegram.now())
    return response.is_success
