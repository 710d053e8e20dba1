"""Answers of commands. Each text says what is true and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from everturn.commands.rules.registry import Busy, Declared, Right
from everturn.model import SessionSource, Usage
from everturn.people.rules.rights import Rights, rank_of, scope_name

SHOWN_CHARS = 60
_BUSY = {
    Busy.NOW: "It works while a task runs.",
    Busy.REFUSE: "While a task is open it is refused; /stop ends the task.",
    Busy.END: "It stops a running task.",
}
_RIGHT = {
    Right.ANYONE: "Everybody may use it.",
    Right.ADMIN: "Admins may use it, and others where the settings allow it.",
    Right.OWNER: "Only the owner may use it.",
}


# -- help and rights ---------------------------------------------------------------------------------------------------


def help_text(commands: Iterable[Declared]) -> str:
    """The answer to /help: what its reader may use."""
    lines = [f"{each.usage}: {each.line}" for each in commands]
    return "\n".join([*lines, "Send /help and a command's name for more about it."])


def help_about(command: Declared) -> str:
    """The answer to /help with a command."""
    also = f" Also: {', '.join(f'/{each}' for each in command.aliases)}." if command.aliases else ""
    parts = (f"{command.usage}: {command.line}.{also}", command.more, _BUSY[command.busy], _RIGHT[command.right])
    return "\n".join(part for part in parts if part)


def denied(command: Declared, rights: Rights, offered: Iterable[Declared]) -> str:
    """For somebody who may not use a command: who may, and what they may use themselves."""
    if command.right is Right.OWNER:
        remedy = "" if rights.owners else " The settings name no owner here: add one to owners in [rights]."
        return f"Only the owner of this gateway may use /{command.name}.{remedy}"
    own = ", ".join(f"/{each.name}" for each in offered)
    return f"Only the admins of this chat may use /{command.name}. You may use {own}."


def failed(name: str) -> str:
    """For a command that could not be applied, because of an error in the gateway or damaged rows."""
    return f"/{name[:40]} failed here, and nothing was changed. The operator finds the reason in the gateway's log."


def whoami(rights: Rights, source: SessionSource) -> str:
    """The answer to /whoami."""
    rank = rank_of(rights, source)
    scope = rights.scope(source)
    gated = rank == "user" and bool(scope.admins)
    allowed = "the commands that /help lists" if gated else "every command that is not the owner's"
    allowed = "every command" if rank == "owner" else allowed
    person = source.user_id or source.user_id_alt or "not known"
    alone = "a direct chat" if source.chat_type == "dm" else f"a {source.chat_type}"
    return (
        f"Platform: {source.platform}. Your id: {person}. This is {alone}"
        f"{f' with the id {source.chat_id}' if source.chat_id else ''}.\n"
        f"Here you are {'the owner' if rank == 'owner' else f'an {rank}' if rank == 'admin' else 'a user'}"
        f" and may use {allowed}. The settings call this place {scope_name(source)}."
    )


def unfinished(name: str, running: bool) -> str:  # noqa: FBT001
    """For a command that cannot be used while a turn is open."""
    what = "A task is still running here" if running else "A task here is not finished yet"
    return f"{what}. Send /stop first, then /{name}."


# -- sessions ----------------------------------------------------------------------------------------------------------


def titled(title: str | None) -> str:
    """The title of a conversation, added to another answer; empty without a title."""
    return f' It is called "{title}".' if title else ""


def title_is(title: str | None) -> str:
    """The answer to /title without a title."""
    if title is None:
        return "This conversation has no title. Send /title and a text to give it one."
    return f'This conversation is called "{title}".'


def no_session() -> str:
    """For a command that needs a conversation."""
    return "No conversation has been started here yet."


def gone(suspended: bool) -> str:  # noqa: FBT001
    """For a command about a conversation that must be resumed first."""
    state = "suspended" if suspended else "over"
    return f"This conversation is {state}. Send /resume first."


def listed(here: str | None, sessions: Mapping[str, str]) -> str:
    """The answer to /sessions: the conversation in use, then those that /resume takes by their number."""
    current = f"In use: {here}" if here else "No conversation is in use here."
    if not sessions:
        return f"{current}\nThere is no earlier conversation here."
    lines = [f"{number}  {about}" for number, about in sessions.items()]
    return "\n".join([current, "Earlier:", *lines, "Send /resume and a number to resume one of them."])


def branched(title: str | None, rows: int) -> str:
    """The answer to /branch."""
    what = f"{rows} message{'s' * (rows != 1)}"
    return f"This is a copy of the conversation, with its {what}.{titled(title)} The earlier one is kept; /resume returns to it."


# -- history -----------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return f'"{line[: SHOWN_CHARS - 1]}…"' if len(line) > SHOWN_CHARS else f'"{line}"'


def undone(first_text: Sequence[str], effects: int) -> str:
    """The answer to /undo: what is hidden, newest first, and what stays done."""
    what = "\n".join(quoted(each) for each in first_text)
    one = len(first_text) == 1
    text = f"Hidden from the agent, with {'its answer' if one else 'their answers'}:\n{what}"
    if effects:
        text += f"\n{effects} tool call{'s' * (effects != 1)} did happen and stay{'s' * (effects == 1)} done."
    return text


def nothing_to_undo() -> str:
    """The answer to /undo in an empty conversation."""
    return "There is nothing here to undo."


def undo_how_many() -> str:
    """For /undo with something that is no number."""
    return "Send /undo, or /undo and a number from 1 to 100."


def retrying(text: str, effects: int) -> str:
    """The answer to /retry."""
    did = f" {effects} tool call{'s' * (effects != 1)} of the first try did happen." if effects else ""
    return f"Running your last message again: {quoted(text)}.{did}"


def nothing_to_retry() -> str:
    """The answer to /retry in an empty conversation."""
    return "There is no message here to run again."


def retry_waits() -> str:
    """The answer to /retry while the message of an earlier one is queued."""
    return "Your last message is already queued to run again."


def compressing(running: bool) -> str:  # noqa: FBT001
    """The answer to /compress."""
    when = "the running task's next model call" if running else "the next answer"
    return f"Before {when}, the agent summarises this conversation and continues with the summary. Everything is kept."


# -- choices -----------------------------------------------------------------------------------------------------------


def model_is(model: str | None, models: Sequence[str]) -> str:
    """The answer to /model without a name."""
    known = f" There are: {', '.join(models)}." if models else ""
    if model is None:
        return f"This conversation uses the configured model.{known} Send /model and a name to choose another."
    return f"This conversation uses {model}.{known} Send /model default to go back to the configured one."


def model_chosen(model: str | None, *, known: bool) -> str:
    """The answer to /model with a name; one that the settings do not name is marked as such."""
    text = f"From the next message on, this conversation uses {model or 'the configured model'}."
    if known:
        return text
    return f"{text} Whether this model exists shows only then; /model default goes back to the configured one."


def no_such_provider(name: str, providers: Sequence[str]) -> str:
    """For a model of a provider that the settings do not name."""
    forms = " or ".join(f"{each}:NAME" for each in providers)
    return (
        f"{quoted(name)} names no provider that is configured here. Names have the form {forms}; the owner can allow"
        " others in agent.models."
    )


def no_such_model(name: str, models: Sequence[str], near: str | None) -> str:
    """For a model that is not among those one may choose, or whose name cannot be one."""
    if not models:
        return f"{quoted(name)} is not a model name. Names have the form provider:name."
    hint = f" Did you mean {near}?" if near else ""
    return f"There is no model named {quoted(name)}.{hint} There are: {', '.join(models)}."


_MODES = {
    "steer": "they join the task before its next model call",
    "queue": "each is queued and becomes a task of its own",
    "interrupt": "the task ends and they are next",
    "collect": "what comes until it is quiet becomes one task afterwards",
    "rollback": "the task is rolled back and they are next",
}


def busy_is(chosen: str | None, configured: str) -> str:
    """The answer to /busy without a mode."""
    mode = chosen or configured
    by_whom = "chosen here" if chosen else "as configured"
    return (
        f"While a task runs, the mode of your messages is {mode}, {by_whom}: {_MODES[mode]}. Others: {_others(mode)}."
    )


def busy_chosen(mode: str) -> str:
    """The answer to /busy with a mode."""
    return f"From now on, while a task runs: {mode}. That means {_MODES[mode]}."


def no_such_mode(name: str) -> str:
    """For /busy with an unknown mode."""
    return f"There is no mode named {quoted(name)}. There are: {', '.join(_MODES)}; default goes back to the settings."


def _others(mode: str) -> str:
    return ", ".join(each for each in _MODES if each != mode)


def text_wanted(name: str) -> str:
    """For /steer or /queue without a text."""
    return f"Write your message after the command: /{name} and the text."


def approve_how() -> str:
    """For /approve with an unknown argument."""
    return "Send /approve to allow it once, /approve session or /approve always. The id of the request may come first."


def reloaded() -> str:
    """The answer to /reload."""
    return "From the next message on, this conversation uses the instructions and tools as they are configured now."


# -- looking -----------------------------------------------------------------------------------------------------------


def version(number: str) -> str:
    """The answer to /version."""
    return f"Everturn {number}."


def open_request(tool: str) -> str:
    """What is added to /status while an approval request is open."""
    return f" An approval request is open: may I use {tool}? Send /approve or /deny."


def usage(last: Usage, session: Usage) -> str:
    """The answer to /usage."""
    if session == last == Usage():
        return "No model call has been counted in this conversation yet."
    return f"Last task: {_used(last)}.\nThis conversation: {_used(session)}."


def _used(what: Usage) -> str:
    calls = f"{what.requests} model call{'s' * (what.requests != 1)}"
    cached = f" ({_number(what.cached_tokens)} of it from the cache)" if what.cached_tokens else ""
    cost = f", {money(what.cost)}" if what.cost is not None else ""
    return f"{calls}, {_number(what.input_tokens)} tokens in{cached}, {_number(what.output_tokens)} out{cost}"


def money(amount: float) -> str:
    """An amount in dollars, with as many digits as a small one needs."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def _number(count: int) -> str:
    return f"{count:,}"


def context(rows: Mapping[str, int], tokens: int, prompt_tokens: int, tools: int | None, window: int) -> str:
    """The answer to /context. `rows` are counted by role; all tokens are estimates."""
    whole = tokens + prompt_tokens
    share = f", {100 * whole / window:.0f} % of the window of {_number(window)}" if window else ""
    said = ", ".join(f"{count} {_SAID[role]}" for role, count in rows.items() if role in _SAID and count)
    with_tools = f" with {tools} tool{'s' * (tools != 1)}" if tools is not None else ""
    prompt = f"Instructions{with_tools}: about {_number(prompt_tokens)} tokens." if prompt_tokens else ""
    lines = (
        f"The agent sees about {_number(whole)} tokens{share}.",
        f"Conversation: {said or 'nothing yet'}: about {_number(tokens)} tokens.",
        prompt,
    )
    return "\n".join(line for line in lines if line)


_SAID = {
    "summary": "summary of what came before",
    "user": "from you",
    "assistant": "from the agent",
    "tool": "from tools",
}


# -- restart -----------------------------------------------------------------------------------------------------------


def restarting() -> str:
    """The answer to /restart."""
    return "The gateway restarts now. I'll tell you here when I'm back."
