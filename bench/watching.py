"""A client of the HTTP platform in a process of its own: posts a message, waits for the answer on its event stream, posts on."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import uvloop

from bench.load import post

ANSWERED = b'"state":"answered"'
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]  # both are kept: a forgotten writer closes its connection


@dataclass(frozen=True, slots=True)
class Talk:
    """The address, how many chats at once, how long."""

    host: str
    port: int
    token: str
    chats: int
    seconds: float
    name: str  # part of every chat's name
    turns: int | None = None  # so many a chat at most


async def talk(task: Talk) -> tuple[int, float]:
    """Talk from another process; how many turns were answered, and in which time."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, _drive, task)


def _drive(task: Talk) -> tuple[int, float]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_talk(task))


async def _talk(task: Talk) -> tuple[int, float]:
    streams = [await _stream(task, number) for number in range(task.chats)]
    posts = [await asyncio.open_connection(task.host, task.port) for _ in streams]
    began = time.perf_counter()
    jobs = [_chat(task, number, *posts[number], streams[number]) for number in range(task.chats)]
    counts = await asyncio.gather(*jobs)
    seconds = time.perf_counter() - began
    for _, writer in posts + streams:
        writer.close()
    return sum(counts), seconds


async def _stream(task: Talk, number: int) -> Stream:
    """An open event stream; its first line has come, so nothing said from now on is missed."""
    reader, writer = await asyncio.open_connection(task.host, task.port)
    path = f"/api/chats/{task.name}-{number}/events"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {task.host}\r\nAuthorization: Bearer {task.token}\r\n\r\n".encode())
    await reader.readuntil(b"retry: ")
    return reader, writer


async def _chat(
    task: Talk, number: int, answers: asyncio.StreamReader, out: asyncio.StreamWriter, events: Stream
) -> int:
    count, path = 0, f"/api/chats/{task.name}-{number}/messages"
    until = time.perf_counter() + task.seconds
    while time.perf_counter() < until and count != task.turns:
        body = f'{{"id": "{task.name}-{count}", "text": "please look at this for me"}}'.encode()
        out.write(post(task.host, path, task.token, body))
        await answers.readuntil(b"}")
        await events[0].readuntil(ANSWERED)
        count += 1
    return count
