"""An agent's program for the tests: runs two tools in steps of their own, notes in a file what it really did, and misbehaves
when the words ask for it. `python agent_program.py FOLDER`
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEDGER = Path(sys.argv[1]) / "ledger"
EFFECT = {"pure": "pure", "same": "idempotent"}


def note(line: str) -> None:
    """Append one line to the file and sync it; it names the process."""
    with LEDGER.open("a") as file:
        file.write(f"{line} {os.getpid()}\n")


def say(**line: object) -> None:
    """One line of a reply."""
    write(json.dumps(line))


def first_time(what: str) -> bool:
    """Whether this was not noted before."""
    known = LEDGER.read_text() if LEDGER.exists() else ""
    note(what)
    return what not in known


def write(text: str) -> None:
    """Something that may be no line of a reply."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def endless() -> None:
    """A reply without an end."""
    while True:
        say(type="stream", text="x" * 1000)


TWICE = [{"id": "1", "name": "a"}, {"id": "1", "name": "b"}]
ALWAYS: dict[str, Callable[[], object]] = {
    "stubborn": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: sys.exit(7),
    "nonsense": lambda: write("this is no JSON: s3cret"),
    "strange": lambda: say(type="unheard"),
    "huge": lambda: write("x" * 200_000),
    "endless": endless,
    "sorry": lambda: say(type="error", text="I have no opinion."),
    "misplaced": lambda: say(type="result", content="x"),
    "twice": lambda: say(type="step", calls=TWICE),
}
ONCE: dict[str, Callable[[], object]] = {
    "dies": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "silent": signal.pause,
    "busy": lambda: say(type="error", text="come back later", retry=True),
}


def misbehave(text: list[str]) -> bool:
    """Misbehave before anything is done; returns whether that was all."""
    for word in text:
        if word in ALWAYS or (word in ONCE and first_time(word)):
            (ALWAYS | ONCE)[word]()
            return True
    return False


def answer_turn(request: dict[str, Any]) -> None:
    """Two tools, then the answer."""
    words = request["text"].split()
    if misbehave(words):
        return
    own = request["own"]
    done = [row["content"] for row in own if row["role"] == "tool"]
    if "waits" in words and len(done) == 1 and first_time("waits"):
        signal.pause()  # until somebody kills us
    if "reports" in words and not done:
        say(type="notify", text="I look around")
    say(type="stream", text=f"{len(done)} done")
    if len(done) < 2 or "forever" in words:
        effect = next((EFFECT[word] for word in words if word in EFFECT), "once")
        call = {"id": str(len(done) + 1), "name": "act", "arguments": "{}", "effect": effect}
        say(type="step", content="thinking", calls=[call], usage={"requests": 1, "input_tokens": 5})
    else:
        seen = len(request["history"])
        say(type="answer", text=f"{' '.join(done)}; seen {seen}; note {request['note'] is not None}")


def run_call(request: dict[str, Any]) -> None:
    """Note it, perhaps die, give the result."""
    call = request["call"]
    first = first_time(f"ran {call['id']} {request['key'].partition(':')[2]}")
    if call["id"] == "2" and first and (LEDGER.parent / "die-in-2").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    say(type="result", content=f"result {call['id']}")
    if first and (LEDGER.parent / f"leave-after-{call['id']}").exists():
        os._exit(0)


note("process")
for line in sys.stdin:
    what = json.loads(line)
    answer_turn(what) if what["type"] == "turn" else run_call(what)
