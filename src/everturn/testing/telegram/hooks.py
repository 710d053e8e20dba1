"""Delivery by webhook, as https://core.telegram.org/bots/api#setwebhook says: a POST with the secret in a header
(`secret_token`), over `max_connections` at once, and again after anything but a 2xx.

The real one gives up "after a reasonable amount of attempts", which nobody can test against; this one retries until a 2xx.
https://core.telegram.org/bots/api#getwebhookinfo reports the last error.
"""

from __future__ import annotations

import asyncio
from functools import partial

import httpx2

from everturn.testing.telegram.queue import either
from everturn.testing.telegram.state import Hook, PendingUpdate
from everturn.testing.telegram.telegram import Telegram
from everturn.testing.waiting import WAIT_S

SECRET = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of the header
RETRY_S = 0.2


async def deliver(telegram: Telegram, closing: asyncio.Event, retry_s: float = RETRY_S) -> None:
    """POST every update to the webhook while there is one, as many at once as it allows."""
    posting: dict[int, asyncio.Task[None]] = {}
    async with httpx2.AsyncClient(timeout=WAIT_S, verify=False) as client:
        while not closing.is_set():
            changed, hook = telegram.queue.changed, telegram.state.hook
            for each in _window(telegram, hook) if hook else ():
                if id(each) not in posting:
                    task = asyncio.create_task(_deliver_one(telegram, client, each, retry_s))
                    posting[id(each)] = task
                    task.add_done_callback(partial(_ended, telegram, posting, id(each)))
            await either(changed, closing)
        for task in posting.values():
            task.cancel()
        await asyncio.gather(*posting.values(), return_exceptions=True)


def _ended(telegram: Telegram, posting: dict[int, asyncio.Task[None]], number: int, _: object) -> None:
    posting.pop(number, None)
    telegram.queue.notify()


def _window(telegram: Telegram, hook: Hook) -> list[PendingUpdate]:
    """The updates to post now: `max_connections` of setWebhook at once, between which there is no order."""
    telegram.queue.forget_old()
    found = [*telegram.state.again, *telegram.state.waiting][: hook.max_connections]
    return found[::-1] if telegram.queue.reorder else found


async def _deliver_one(telegram: Telegram, client: httpx2.AsyncClient, waiting: PendingUpdate, retry_s: float) -> None:
    hook = telegram.state.hook
    if hook is not None and await _posted(client, telegram, hook, waiting):
        _taken(telegram, waiting)
    else:
        await asyncio.sleep(retry_s)


def _taken(telegram: Telegram, waiting: PendingUpdate) -> None:
    state = telegram.state
    if any(each is waiting for each in state.again):
        state.again = [each for each in state.again if each is not waiting]
    else:
        state.waiting = [each for each in state.waiting if each is not waiting]
        state.confirmed.append(waiting)
    telegram.changed()


async def _posted(client: httpx2.AsyncClient, telegram: Telegram, hook: Hook, waiting: PendingUpdate) -> bool:
    headers = {SECRET: hook.secret} if hook.secret else {}
    try:
        response = await client.post(telegram.webhook_url(hook.url), json=waiting.update, headers=headers)
    except httpx2.HTTPError as error:
        hook.last_error, hook.last_error_at = type(error).__name__, int(telegram.now())
        return False
    if not response.is_success:
        hook.last_error = f"Wrong response from the webhook: {response.status_code} {response.reason_phrase}"
        hook.last_error_at = int(telegram.now())
    return response.is_success
