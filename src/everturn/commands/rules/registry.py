"""The registry of commands: what each is called, takes and does, who may use it and what it does on a busy lane.

/help, the reference page and the menus of platforms are made from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class Busy(StrEnum):
    """What a command does while a turn is open in its conversation."""

    NOW = "now"  # it runs beside the turn
    REFUSE = "refuse"  # it is refused, with a text that says what to do first
    END = "end"  # it ends the turn, then runs


class Right(StrEnum):
    """Who may use a command."""

    ANYONE = "anyone"
    ADMIN = "admin"  # where admins are named for the platform and scope; everybody where none are
    OWNER = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declaration of one command."""

    name: str
    line: str
    more: str = ""
    arguments: str = ""
    aliases: tuple[str, ...] = ()
    right: Right = Right.ADMIN
    busy: Busy = Busy.NOW

    @property
    def usage(self) -> str:
        """The command with its arguments, as people write it."""
        return f"/{self.name} {self.arguments}".rstrip()


REGISTRY: tuple[Declared, ...] = (
    Declared(
        name="new",
        arguments="[title]",
        aliases=("reset",),
        line="start a fresh conversation; the earlier one is kept",
        more="The running task is stopped, and queued messages are withdrawn. /resume returns to the earlier conversation.",
        busy=Busy.END,
    ),
    Declared(
        name="resume",
        arguments="[number|title|id]",
        line="list earlier conversations, or resume one",
        more="A suspended conversation is resumed by /resume alone. Untitled ones are listed by their first text.",
    ),
    Declared(
        name="sessions",
        line="list the conversations of this chat",
        more="The one in use is marked. /resume with a number, a title or an id resumes another one.",
    ),
    Declared(
        name="title",
        arguments="[text]",
        line="show or change the title of this conversation",
    ),
    Declared(
        name="retry",
        line="run your last message again",
        more="Its earlier answer is hidden from the agent first; a running task is stopped. What its tools did stays"
        " done. After /resume of a suspended conversation it runs the message that was suspended.",
        busy=Busy.END,
    ),
    Declared(
        name="undo",
        arguments="[number]",
        line="hide the last message and its answer from the agent, or the last N",
        more="Nothing is deleted, and what tools did stays done: the agent just no longer sees it.",
        busy=Busy.REFUSE,
    ),
    Declared(
        name="branch",
        arguments="[title]",
        aliases=("fork",),
        line="continue in a copy of this conversation; this one is kept",
        more="/resume returns to this one as it is now.",
        busy=Busy.REFUSE,
    ),
    Declared(
        name="compress",
        aliases=("compact",),
        line="let the agent summarise this conversation and continue with the summary",
        more="It happens before the next model call. The whole conversation is kept; the agent sees the summary and the"
        " newest messages.",
    ),
    Declared(
        name="stop",
        aliases=("cancel",),
        line="stop the running task and keep the conversation",
        more="What was streamed of the answer stays, as an answer that was cut off. What its tools left open is not taken up"
        " again. Queued messages are answered next.",
        busy=Busy.END,
    ),
    Declared(
        name="steer",
        arguments="text",
        line="send a message that the running task takes up at once",
        more="It joins the task before its next model call, whatever /busy says; without a task it is a message like"
        " any other.",
    ),
    Declared(
        name="queue",
        arguments="text",
        aliases=("q",),
        line="send a message that is queued until the running task is done",
        more="It becomes a task of its own, whatever /busy says.",
    ),
    Declared(
        name="busy",
        arguments="[steer|queue|interrupt|collect|rollback|default]",
        line="show or choose what your messages do while a task runs",
        more="steer: they join the task. queue: each becomes a task of its own afterwards. interrupt: the task ends and"
        " they are next. collect: what comes until it is quiet becomes one task. rollback: the task is rolled back and"
        " they are next. default: as the settings say.",
    ),
    Declared(
        name="approve",
        arguments="[id] [session|always]",
        line="approve the tool call that awaits approval",
        more="Once, or for this conversation (session), or always. The id is only needed from another chat. The"
        " person whose task it is may approve, or the approvers whom the owner named.",
    ),
    Declared(
        name="deny",
        arguments="[id] [reason]",
        line="deny the tool call that awaits approval",
        more="The reason is passed to the agent. The task goes on without the call.",
        right=Right.ANYONE,  # any other message of theirs would close the approval request, too
    ),
    Declared(
        name="answer",
        arguments="[newest]",
        line="answer the messages that came here while the gateway was disconnected",
        more="With newest only the last message, not the others. Only where the owner chose that you are asked first.",
    ),
    Declared(
        name="skip",
        line="do not answer the messages that came here while the gateway was disconnected",
        more="Only where the owner chose that you are asked first.",
    ),
    Declared(
        name="resend",
        arguments="[number] [no]",
        line="send an answer again that may not have arrived",
        more="Only where the owner chose that you are asked (on_unknown_delivery). With `no` it is left as it is.",
    ),
    Declared(
        name="model",
        arguments="[name|default]",
        line="show or change the model of this conversation",
        more="It holds from the next message on, until a fresh conversation begins. /model default goes back to the"
        " configured model.",
    ),
    Declared(
        name="reload",
        line="let this conversation take up changed instructions and tools",
        more="The instructions and the tools of a conversation stay as they were at its first message until then.",
    ),
    Declared(name="usage", line="show the tokens and the cost of the last task and of this conversation"),
    Declared(name="status", line="show the state of this conversation"),
    Declared(name="context", line="show how full the model's context window is, and with what"),
    Declared(
        name="whoami",
        aliases=("id",),
        line="show how this gateway knows you, and what you may do",
        right=Right.ANYONE,
    ),
    Declared(
        name="help",
        arguments="[command]",
        aliases=("start", "commands"),
        line="show this list, or more about one command",
        right=Right.ANYONE,
    ),
    Declared(name="version", line="show the version of this gateway"),
    Declared(
        name="restart",
        line="restart the gateway",
        more="Running tasks get time to finish; what does not finish goes on afterwards. This chat gets a notice"
        " when the gateway is back.",
        right=Right.OWNER,
    ),
)
BY_NAME: dict[str, Declared] = {each.name: each for each in REGISTRY}
COMMANDS: dict[str, str] = {each.name: each.line for each in REGISTRY}
ALIASES: dict[str, str] = {alias: each.name for each in REGISTRY for alias in each.aliases}
LONGEST_NUMBER = 18  # digits; a longer one is no id of ours, and no database takes it
# A second slash, as in /usr/bin, or anything else glued to the word makes it ordinary text.
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)(?:@\w+)?(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command a person wrote; `name` is lower case and need not exist."""

    name: str
    argument: str


def parse_command(text: str) -> Command | None:
    """The command in `text`, or None when it is an ordinary message."""
    match = _COMMAND.fullmatch(text.strip())
    return Command(canonical(match[1]), match[2] or "") if match else None


def canonical(name: str) -> str:
    """The one name of a command: lower case, an alias resolved, underscores and hyphens alike."""
    plain = name.lower().removeprefix("/").replace("_", "-")
    return ALIASES.get(plain, plain)


def number_in(text: str) -> int | None:
    """The number in a text, if it is short enough to be an id: Python refuses to read very long ones."""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def nearest(name: str) -> str | None:
    """The known command that was probably meant."""
    return next(iter(get_close_matches(name.lower(), COMMANDS, n=1)), None)
