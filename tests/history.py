"""What two rings of tests saw, and which promises it breaks. Nothing here reads our tables.

The outside is: what people said, what stands on the platform's screen, the ledger of effects, the log of model requests,
and the transcript as anybody may ask for it.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.promises import notes, overtaken, paid_twice, repeated


@dataclass(frozen=True)
class Said:
    """A message somebody sent, and the answer it must get: None when it must get none (it was withdrawn)."""

    chat: str
    text: str
    answer: str | None


@dataclass
class History:
    """Everything the outside saw of one run, whatever died in between."""

    said: list[Said] = field(default_factory=list)
    screen: dict[str, list[str]] = field(default_factory=dict)  # chat -> our messages, in order
    effects: list[str] = field(default_factory=list)  # one line for each time an effect really happened
    requests: list[str] = field(default_factory=list)  # "turn step" for each model request
    transcripts: dict[str, list[str]] = field(default_factory=dict)  # chat -> contents


def problems(history: History) -> list[str]:
    """Every broken promise, as a sentence."""
    return [
        *lost(history),
        *doubled(history),
        *reordered(history),
        *repeated(history.effects, "effect happened twice"),
        *paid_twice(steps_of(history)),
        *notes(history.transcripts),
    ]


def steps_of(history: History) -> list[tuple[str, str]]:
    """What happened and what was asked for, as `paid_twice` wants it."""
    return [(kind, step) for kind, _, step in (line.partition(" ") for line in history.requests)]


def lost(history: History) -> list[str]:
    """Promises 1 and 6: every accepted message is answered."""
    wanted = Counter((each.chat, each.answer) for each in history.said if each.answer is not None)
    seen = Counter((chat, text) for chat, texts in history.screen.items() for text in texts)
    return [f"lost: {answer!r} in {chat}" for (chat, answer), count in wanted.items() if seen[chat, answer] < count]


def doubled(history: History) -> list[str]:
    """Promises 2 and 6: no message is answered twice."""
    wanted = Counter((each.chat, each.answer) for each in history.said)
    seen = Counter((chat, text) for chat, texts in history.screen.items() for text in texts)
    answers = {answer for _, answer in wanted if answer is not None}
    return [
        f"doubled: {text!r} in {chat}, {count} times"
        for (chat, text), count in seen.items()
        if text in answers and count > wanted[chat, text]
    ]


def reordered(history: History) -> list[str]:
    """Promise 3: answers come in the order of the messages."""
    found = []
    for chat, texts in history.screen.items():
        wanted = [each.answer for each in history.said if each.chat == chat and each.answer is not None]
        got = [text for text in texts if text in set(wanted)]
        expected = [answer for answer in wanted if answer in set(got)]
        if got != expected:
            found.append(f"reordered in {chat}: {got}, wanted {expected}")
    return found


# -- ring two: what people saw of real processes over HTTP -------------------------------------------------------------


@dataclass
class Post:
    """A message somebody posted, however often. Moments are numbers of one counter, so they can be compared."""

    chat: str
    id: str
    text: str
    sent: int
    acknowledged: int | None = None
    answers: list[int] = field(default_factory=list)  # the status of each answer that came, in order


@dataclass(frozen=True, slots=True)
class Seen:
    """An event of a chat's stream; `id` is 0 where it has none."""

    id: int
    kind: str
    data: Mapping[str, Any]


@dataclass
class Watched:
    """Everything that people saw of a gateway, whatever happened to its processes."""

    posts: dict[tuple[str, str], Post] = field(default_factory=dict)
    events: dict[str, list[Seen]] = field(
        default_factory=dict
    )  # chat -> what its watcher received, over all connections
    kept: dict[str, list[Seen]] = field(default_factory=dict)  # chat -> what a newcomer gets in the end
    ledger: list[str] = field(default_factory=list)
    transcripts: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def of(self, chat: str, kind: str) -> list[Mapping[str, Any]]:
        """The data of a chat's events of one kind."""
        return [event.data for event in self.events.get(chat, ()) if event.kind == kind]

    def replies(self, chat: str) -> dict[str, str]:
        """The answers of a chat, by the message they answer."""
        return {str(data["to"]): str(data["text"]) for data in self.of(chat, "reply")}


@dataclass(frozen=True, slots=True)
class Totals:
    """The metrics of one run."""

    messages: int
    duplicates: int
    replies: int
    interrupted: int
    resumed: int
    effects: int
    unknown: int

    def __str__(self) -> str:
        """The metrics as text, for a person."""
        return (
            f"{self.messages} messages, {self.duplicates} duplicates posted, {self.replies} replies,"
            f" {self.interrupted} interruptions, {self.resumed} attempts after the first,"
            f" {self.effects} effects, {self.unknown} with unknown outcome"
        )


def totals(watched: Watched) -> Totals:
    """Count what happened."""
    turns = [data for chat in watched.events for data in watched.of(chat, "turn")]
    replies = [text for chat in watched.events for text in watched.replies(chat).values()]
    return Totals(
        messages=len(watched.posts),
        duplicates=sum(post.answers.count(200) for post in watched.posts.values()),
        replies=len(replies),
        interrupted=sum(data["state"] == "interrupted" for data in turns),
        resumed=sum(data["state"] == "running" and data["attempt"] > 1 for data in turns),
        effects=len(watched.ledger),
        unknown=sum(unknown_outcomes(text) for text in replies),
    )


def watched_problems(watched: Watched) -> list[str]:
    """Every broken promise that people could see, as a sentence."""
    chats = sorted({chat for chat, _ in watched.posts})
    return [
        *wrong_answers(watched),
        *repeated(watched.ledger, "effect happened twice"),
        *strange_effects(watched),
        *notes({chat: [row["content"] for row in rows] for chat, rows in watched.transcripts.items()}),
        *(f"{chat}: {what}" for chat in chats for check in CHECKS for what in check(watched, chat)),
    ]


def wrong_answers(watched: Watched) -> list[str]:
    """Promise 2: an id is accepted once; each later post of it gets "duplicate"."""
    found = []
    for post in watched.posts.values():
        told = [status for status in post.answers if status in {200, 202}]
        if 202 in told[1:]:
            found.append(f"accepted twice: {post.chat} {post.id} {post.answers}")
        if not told:
            found.append(f"never accepted: {post.chat} {post.id} {post.answers}")
    return found


def broken_stream(watched: Watched, chat: str) -> list[str]:
    """Event ids go up by one, over every reconnect; a newcomer is given the same."""
    durable = [event for event in watched.events[chat] if event.id]
    numbers = [event.id for event in durable]
    found = [] if numbers == list(range(1, len(numbers) + 1)) else [f"event ids missed or repeated: {numbers}"]
    found += ["events are missing"] * any(event.kind == "gap" for event in watched.events[chat])
    return found + ["a newcomer gets other events than the watcher"] * (watched.kept[chat] != durable)


def unanswered(watched: Watched, chat: str) -> list[str]:
    """Promises 1, 2 and 6: every posted message has one event and one reply, with the right text."""
    wanted = {post.id: post.text for post in watched.posts.values() if post.chat == chat}
    heard = [(data["id"], data["text"]) for data in watched.of(chat, "message")]
    replied = Counter(str(data["to"]) for data in watched.of(chat, "reply"))
    found = [f"lost: {each}" for each in wanted if not replied[each]]
    found += [f"answered {count} times: {each}" for each, count in replied.items() if count > 1 or each not in wanted]
    found += ["messages heard differ from those posted"] * (sorted(heard) != sorted(wanted.items()))
    replies = watched.replies(chat)
    return found + [
        f"wrong answer to {each} ({text}): {replies[each]}"
        for each, text in wanted.items()
        if each in replies and not fits(text, replies[each])
    ]


def fits(text: str, reply: str) -> bool:
    """Whether the demo agent answers this text like this."""
    if text.startswith("work "):
        return re.fullmatch(rf"done: {text.split()[1]} steps(?: \(\d+ with unknown outcome\))?", reply) is not None
    saw = r"I see \d+ earlier messages of this conversation\. You said: "
    return re.fullmatch(saw + re.escape(text), reply) is not None


def out_of_order(watched: Watched, chat: str) -> list[str]:
    """Promise 3: a message that was acknowledged before another was sent is heard and answered before it.

    Of two that were on their way at the same time either may be the first, to the ear and to the agent.
    """
    heard = [str(data["id"]) for data in watched.of(chat, "message")]
    return [
        f"{late} is {what} after a message that was sent when it was already acknowledged"
        for what, order in (("heard", heard), ("answered", list(watched.replies(chat))))
        for late in overtaken([watched.posts[chat, each] for each in order if (chat, each) in watched.posts])
    ]


def overlapping(watched: Watched, chat: str) -> list[str]:
    """Promise 3: one turn at a time; an interrupted one goes on before any other begins."""
    found = []
    turn, state, attempt = "", "answered", 0
    for event in watched.events[chat]:
        data = event.data
        if event.kind == "reply" and (data["turn"], state) != (turn, "running"):
            found.append(f"a reply of {data['turn']} while {turn} is {state}")
        if event.kind != "turn":
            continue
        same = data["turn"] == turn
        goes_on = same and state == "interrupted" and data.get("attempt") == attempt + 1
        begins = not same and state == "answered" and data.get("attempt") == 1
        if not (goes_on or begins if data["state"] == "running" else same and state == "running"):
            found.append(f"{data} while {turn} is {state}, attempt {attempt}")
        turn, state, attempt = str(data["turn"]), str(data["state"]), int(data.get("attempt", attempt))
    return found + [f"turn {turn} is still {state}"] * (state != "answered")


def strange_effects(watched: Watched) -> list[str]:
    """Promise 5: of N effects at most those whose outcome the reply calls unknown did not happen."""
    lines = Counter(line.split()[0] for line in watched.ledger)
    found = []
    for chat in watched.events:
        texts = {str(data["id"]): str(data["text"]) for data in watched.of(chat, "message")}
        for data in watched.of(chat, "reply"):
            text = texts.get(str(data["to"]), "").split()
            steps = int(text[1]) if text[:1] == ["work"] else 0
            happened = lines.pop(str(data["turn"]), 0)
            if not steps - unknown_outcomes(str(data["text"])) <= happened <= steps:
                found.append(f"{happened} effects of {steps} happened in turn {data['turn']}: {data['text']}")
    return found + [f"effects of a turn that never answered: {turn}" for turn in lines]


def unknown_outcomes(reply: str) -> int:
    """How many effects the reply says it knows nothing about."""
    found = re.search(r"\((\d+) with unknown outcome\)$", reply)
    return int(found[1]) if found else 0


def untidy_transcript(watched: Watched, chat: str) -> list[str]:
    """Promise 7: the texts of people as they were received, each followed by calls with their results, and the answer."""
    texts = {str(data["id"]): str(data["text"]) for data in watched.of(chat, "message")}
    turns = [(texts.get(each, ""), reply) for each, reply in watched.replies(chat).items()]
    wanted = [line for text, reply in turns for line in (("user", text), ("assistant", reply))]
    rows = watched.transcripts[chat]
    said = [(str(row["role"]), str(row["content"])) for row in rows if row["role"] != "tool" and not row["tool_calls"]]
    found = ["the transcript is not what was said"] * (said != wanted)
    return found + unpaired_calls(rows) + miscounted(rows)


def unpaired_calls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each call is followed by its result, and each result follows its call."""
    found = []
    for row, after in pairwise([*rows, {"role": "user", "tool_calls": [], "tool_call_id": None}]):
        calls = [call["id"] for call in row["tool_calls"]]
        if calls != ([after["tool_call_id"]] if after["role"] == "tool" else []):
            found.append(f"calls {calls} are followed by {after}")
    return found


def miscounted(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The demo agent says how many earlier messages it saw: the whole history, before and after any crash."""
    found = []
    asked = 0
    for place, row in enumerate(rows):
        asked = place if row["role"] == "user" else asked
        seen = re.match(r"I see (\d+) earlier messages", str(row["content"])) if row["role"] == "assistant" else None
        if seen and int(seen[1]) != asked:
            found.append(f"an answer saw {seen[1]} of {asked} earlier messages")
    return found


CHECKS: tuple[Callable[[Watched, str], list[str]], ...] = (
    broken_stream, unanswered, out_of_order, overlapping, untidy_transcript,
)  # fmt: skip
