"""Writes the files that are made from the code. `python scripts/generate.py [--check]`; a test compares them, too.

To add one: write a function that returns its text, and name it in GENERATORS. The walk in docs/architecture.md is measured:
scripts/walk.py writes it, and tests/test_walk.py, which walks anyway, compares it.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from everturn.agent.toolbox import OutputSettings, Tool, output_tools
from everturn.agent.tools.fetch import FetchSettings, fetch_tools
from everturn.agent.tools.files import FilesSettings, files_tools
from everturn.agent.tools.memory import MemorySettings, SearchSettings, memory_tools, search_tools
from everturn.agent.tools.send import SendSettings, send_tools
from everturn.agent.tools.shell import ShellSettings, shell_tools
from everturn.cli.commands import COMMANDS, everturn
from everturn.commands.rules.registry import REGISTRY, Busy, Declared, Right
from everturn.model import INBOX_MOVES, OUTBOX_MOVES, TURN_MOVES, InboxState, OutboxState, TurnState
from everturn.settings import SETTINGS, TABLES, Setting, Table, shown, variable_of
from everturn.settings.config import ALIASES
from everturn.telemetry.meters import METRICS

ROOT = Path(__file__).resolve().parent.parent

EXAMPLE_HEAD = """\
# Everturn's settings, each with its default. Copy this file as everturn.toml into the home
# ($EVERTURN_HOME or ~/.everturn) and take the # away from what you change.
# The environment beats this file: EVERTURN_SERVER_PORT sets `port` of [server].
"""
# What the example shows of tables whose names the owner chooses; comments all of it.
EXAMPLES = {
    "agent.platform.PLATFORM": """\
[agent.platform.telegram]
max_output_tokens = 1000
""",
    'agent.chat."PLATFORM:CHAT"': """\
[agent.chat."telegram:-100123"]
instructions = "Answer in one sentence."
""",
    "streaming.platform.PLATFORM": """\
[streaming.platform.matrix]
interval_s = 2
""",
    'streaming.chat."PLATFORM:CHAT"': """\
[streaming.chat."telegram:-100123"]
enabled = false
""",
    "display.platform.PLATFORM": """\
[display.platform.telegram]
reaction = "👀"
""",
    'display.chat."PLATFORM:CHAT"': """\
[display.chat."telegram:-100123"]
quote = "never"
""",
    "agents.NAME": """\
[agents.coder]
model = "anthropic:claude-sonnet-4-5"
instructions_file = "coder.md"
""",
    "routes": """\
[[routes]]
platform = "telegram"
chat = "-100123"
agent = "coder"
""",
    "platforms.own.NAME": """\
[platforms.own.folder]
enabled = true
object = "folder_platform:FolderPlatform"
allow = ["ann"]
""",
    "mcp.NAME": """\
[mcp.weather]
command = ["uvx", "weather-server"]
pass_environment = ["WEATHER_KEY"]
effects = { forecast = "pure" }
""",
    "tools.send.target.NAME": """\
[tools.send.target.ops]
platform = "telegram"
chat = "-100123"
chat_type = "group"
""",
    "rights.platform.PLATFORM.dm": """\
[rights.platform.telegram.dm]
admins = ["12345"]
commands = ["new", "status", "usage"]
""",
    "rights.platform.PLATFORM.group": """\
[rights.platform.telegram.group]
admins = ["12345"]
""",
    "sessions.platform.PLATFORM": """\
[sessions.platform.telegram]
reset = "daily"
at_hour = 5
""",
    "sessions.chat_type.TYPE": """\
[sessions.chat_type.group]
reset = "idle"
idle_minutes = 240
notify = false
""",
}
REFERENCE_HEAD = """\
<!-- Made by scripts/generate.py from src/everturn/settings. Change that, then run `make docs`. -->
# Settings

Everturn reads `everturn.toml` in its home (`$EVERTURN_HOME`, or `~/.everturn`; another file with `--config`). Without the
file every setting has its default. A value comes from the strongest place that gives it:

1. the command line (`--host`, `--port`),
2. the environment (`EVERTURN_SECTION_KEY`; an empty variable counts as not set; lists are set in the file only),
3. the file,
4. the default.

`everturn config show` prints what is in force and where it came from. An unknown key, a wrong type or a value out of range
stops the start with exit code 78 and a message that names the key, what is allowed and the nearest known key; an unknown
`EVERTURN_` variable only warns. Passwords are never shown.
[everturn.toml.example](../../everturn.toml.example) holds every setting with its default.
"""
LIFECYCLE_HEAD = """\
<!-- Made by scripts/generate.py from src/everturn/model.py. Change that, then run `make docs`. -->
# The states of a message, a turn and a reply

Every message in, every turn and every reply out is a row in the database. A row is in one state at a time, and moves only
along the arrows below. The pictures are made from the tables of moves in `src/everturn/model.py`; every statement that sets a state names in
its WHERE the states it may leave, and a test compares them with the tables. A state without an arrow out of it is an end.

The process may exit at any time; these rows stay. [The architecture](../architecture.md#the-picture) says what the next process
does with each of them, and [write, act, write](../decisions/0004-write-act-write.md) why nothing is lost in between.
`everturn explain MESSAGE-ID` shows the timeline of one message, with times and reasons. Terms are in [the glossary](glossary.md).
"""
METRICS_HEAD = """\
<!-- Made by scripts/generate.py from src/everturn/telemetry/meters.py. Change that, then run `make docs`. -->
# Metrics

`GET /metrics` answers in the text format of Prometheus (0.0.4), or in OpenMetrics 1.0 if `Accept` asks for it. It
needs a key with the scope `read`; [monitoring](../howto/monitoring.md) shows how to set it up, and alerts.

Counters and histograms are those of this process: they begin at zero with every start, and Prometheus knows how to read that. What must
be the same after a restart is on the operations page and in `everturn status`, which read the store. Metrics marked *from
the store* are read there with each request, through the indexes of what is open; on a database that several gateways share
they are those of all of them, so take `max`, not `sum`. No label holds a key, a chat or a person.
"""


@dataclass(frozen=True)
class Lifecycle:
    """One table of legal moves with the texts that explain it."""

    title: str
    text: str
    begins: tuple[StrEnum, ...]
    moves: Mapping[StrEnum, frozenset[StrEnum]]
    meanings: Mapping[StrEnum, str]


LIFECYCLES = (
    Lifecycle(
        "A message",
        "The gateway acknowledges a message when its row is committed. Usually it begins as `queued`. It begins as `claimed`"
        " when its lane is idle: the turn then begins with the same commit. It begins as `dead` when it cannot be accepted;"
        " its sender gets a notice. A command is a row like a message: it is `queued` until one commit applies and ends it.",
        (InboxState.QUEUED, InboxState.CLAIMED, InboxState.DEAD),
        INBOX_MOVES,
        {
            InboxState.QUEUED: "accepted; its turn has not begun",
            InboxState.CLAIMED: "part of a turn that has not ended",
            InboxState.DONE: "answered, or applied",
            InboxState.WITHDRAWN: "taken back by its sender: `/new`, `/stop`, a message that interrupts",
            InboxState.EXPIRED: "ended by a policy the owner set",
            InboxState.DEAD: "a dead letter: the turn failed or was suspended, or it was too long, could not be stored as it came, or the queue"
            " was full",
        },
    ),
    Lifecycle(
        "A turn",
        "A turn answers one message, or several that joined it. An interrupted turn resumes as the same turn, with its next"
        " attempt, after its last committed step. So does a turn whose approval request was answered.",
        (TurnState.RUNNING,),
        TURN_MOVES,
        {
            TurnState.RUNNING: "an instance holds the key and runs it",
            TurnState.AWAITING_APPROVAL: "unwound until somebody approves; it takes no slot",
            TurnState.INTERRUPTED: "cut off by a crash, a kill or a drain; it will be resumed",
            TurnState.ANSWERED: "the answer and the obligation to deliver it are committed",
            TurnState.FAILED: "it gave no answer; its sender got a notice with the reason",
            TurnState.STOPPED: "ended by `/stop`, `/new`, `/resume` or a message that interrupts",
            TurnState.ROLLED_BACK: "undone by a newer message",
            TurnState.SUSPENDED: "its session was suspended after the third unclean end in a row, or because its rows cannot be read",
        },
    ),
    Lifecycle(
        "A reply",
        "A reply is committed with the answer that it delivers. Usually it begins as `pending`. It begins as `open` when it is"
        " shown while the model writes, as `sending` where the platform recognises a repetition, and as `sent` where the event"
        " row is the delivery (HTTP and the page).",
        (OutboxState.OPEN, OutboxState.PENDING, OutboxState.SENDING, OutboxState.SENT),
        OUTBOX_MOVES,
        {
            OutboxState.OPEN: "a streaming message is visible, the turn has not ended",
            OutboxState.PENDING: "to be sent, at once or at its next retry",
            OutboxState.SENDING: "the platform is being called",
            OutboxState.SENT: "the platform confirmed it; a progress notice or a streaming message is pending again when its text changes",
            OutboxState.UNKNOWN: "the delivery is unknown: it may have arrived; the chat and the owner are asked",
            OutboxState.DEAD: "a dead letter, with the reason; it can be sent again",
        },
    ),
)


def example_toml() -> str:
    """everturn.toml.example."""
    return "\n".join([EXAMPLE_HEAD, *(_example_table(table) for table in TABLES if _shown_in_example(table))])


def _shown_in_example(table: Table) -> bool:
    return not table.open or ".".join(table.keys) in EXAMPLES


def _example_table(table: Table) -> str:
    prose = _comment(table.text)
    if not table.open:
        return "\n".join([f"{prose}\n{table.head}\n", *map(_example, table.settings())])
    lines = EXAMPLES[".".join(table.keys)].splitlines()
    return f"{prose}\n" + "".join(f"#{line}\n" for line in lines)


def _comment(text: str) -> str:
    return textwrap.fill(text, 96, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _example(what: Setting) -> str:
    return f"{_comment(what.rule.text)}\n# Allowed: {what.allowed}.\n#{what.name} = {shown(what.default)}\n"


def config_reference() -> str:
    """docs/reference/config.md."""
    parts = [REFERENCE_HEAD, *(_reference_table(table) for table in TABLES if table.settings())]
    return "\n".join([*parts, _environment_text(), _alias_text()])


def _reference_table(table: Table) -> str:
    level = "##" if len(table.keys) == 1 else "###"
    head = f"{level} `{table.head}`\n\n{table.text}\n"
    names = ", ".join(f"`{each.name}`" for each in table.settings())
    if table.rules_of is not table.kind:
        above = ".".join(table.keys[:-2])
        return f"{head}\nIt takes {names}. What it leaves out is as in `[{above}]`.\n"
    if table.keys == ("agents", "NAME"):
        return f"{head}\nIt takes {names}.\n"
    rows = map(_row, table.settings())
    return f"{head}\n{_table(('setting', 'default', 'allowed', 'meaning'), rows)}"


def _row(what: Setting) -> tuple[str, ...]:
    return f"`{what.name}`", f"`{shown(what.default)}`", what.allowed, what.rule.text


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _environment_text() -> str:
    rows = ((f"`{each.variable}`", f"`{each.key}`") for each in SETTINGS.values() if each.variable)
    platform, agent = (
        variable_of(("sessions", "platform", "telegram", "reset")),
        variable_of(("agents", "coder", "model")),
    )
    named = f"Tables whose name the owner chooses have variables, too: `{platform}`, `{agent}`.\n"
    return f"## Environment\n\n{_table(('variable', 'setting'), rows)}\n{named}"


def _alias_text() -> str:
    rows = ((f"`{old}`", f"`{new}`") for old, new in ALIASES.items())
    return f"## Old names\n\nThese still work and warn.\n\n{_table(('old', 'now'), rows)}"


CLI_HEAD = """\
<!-- Made by scripts/generate.py from the command line's own help. Change src/everturn/cli, then run `make docs`. -->
# Commands

Every command takes `--home DIR`, the directory of one gateway. While the gateway runs, commands ask it; while it is
stopped, they read the home themselves, under its lock. A command that only reads never creates a home.

What programs read is on standard output: the JSON of `--json`, the replies in `everturn chat`. Other text goes to
standard error. Exit codes: 0 done; 1 failed; 2 the command line was wrong; 75 a restart is wanted (a gateway below `--supervise`);
78 the settings, the home or the database cannot be used; 130 interrupted.
"""
CLI_WIDTH = 100


def cli_reference() -> str:
    """docs/reference/cli.md."""
    root = _context(everturn, "everturn", None)
    parts = [CLI_HEAD]
    for name in COMMANDS:
        command = everturn.get_command(root, name)
        if command is not None:
            parts += _command_texts(command, name, root)
    return "\n".join(parts)


def _command_texts(command: click.Command, name: str, above: click.Context) -> list[str]:
    context = _context(command, name, above)
    if isinstance(command, click.Group):
        inner = command.commands.items()
        return [text for name, each in inner for text in _command_texts(each, name, context)]
    return [f"## `{context.command_path}`\n\n```\n{context.get_help()}\n```\n"]


def _context(command: click.Command, name: str, above: click.Context | None) -> click.Context:
    return click.Context(
        command,
        parent=above,
        info_name=name,
        terminal_width=CLI_WIDTH,
        max_content_width=CLI_WIDTH,
        help_option_names=everturn.context_settings["help_option_names"],
    )


CHAT_HEAD = """\
<!-- Made by scripts/generate.py from src/everturn/commands/rules/registry.py. Change that, then run `make docs`. -->
# Commands in a chat

A message that begins with a slash and a word is a command. It is stored like every message: accepted before a crash, it is
applied once after it, before any turn resumes. Each works on every platform; `/help` lists those that you may use.
An unknown command gets a short answer with the nearest one.

Who may: *everybody*; *admins*, where the settings name admins for the platform and scope (direct chats, groups), else
everybody; or the *owner* only. Others than admins may use what `[rights]` lists, `/help`, `/whoami` and `/deny`. A client of
the HTTP platform holds the home's token and is the owner.
"""
WHO = {Right.ANYONE: "everybody", Right.ADMIN: "admins", Right.OWNER: "the owner"}
WHILE = {Busy.NOW: "runs beside it", Busy.REFUSE: "is refused", Busy.END: "ends it, then runs"}


def chat_reference() -> str:
    """docs/reference/commands.md."""
    head = ("command", "does", "who may", "while a task is open")
    rows = (
        (f"`{each.usage.replace('|', chr(92) + '|')}`", each.line, WHO[each.right], WHILE[each.busy])
        for each in REGISTRY
    )
    more = [_more(each) for each in REGISTRY if each.more or each.aliases]
    return "\n".join([CHAT_HEAD, _table(head, rows), "## More about some of them\n", "\n".join(more) + "\n"])


def _more(command: Declared) -> str:
    also = f" The same as {' and '.join(f'`/{each}`' for each in command.aliases)}." if command.aliases else ""
    return textwrap.fill(f"- `/{command.name}`: {command.more}{also}".replace(":  ", ": "), 118, subsequent_indent="  ")


def turn_lifecycle() -> str:
    """docs/concepts/turn-lifecycle.md."""
    return "\n".join([LIFECYCLE_HEAD, *(_lifecycle(each) for each in LIFECYCLES)])


def _lifecycle(what: Lifecycle) -> str:
    rows = ((f"`{state}`", what.meanings[state]) for state in what.moves)
    return f"## {what.title}\n\n{textwrap.fill(what.text, 120)}\n\n{_diagram(what)}\n{_table(('state', 'means'), rows)}"


def _diagram(what: Lifecycle) -> str:
    begins = [f"[*] --> {state}" for state in what.begins]
    moves = [f"{state} --> {after}" for state, afters in what.moves.items() for after in _in_order(what, afters)]
    ends = [f"{state} --> [*]" for state, afters in what.moves.items() if not afters]
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in begins + moves + ends), "```\n"])


def _in_order(what: Lifecycle, states: frozenset[StrEnum]) -> list[StrEnum]:
    return [state for state in what.moves if state in states]


TOOLS_HEAD = """\
<!-- Made by scripts/generate.py from the tools' own schemas. Change src/everturn/agent/tools, then run `make docs`. -->
# Tools

What the agent can do, tool by tool, as described to the model. Each is off until its table is in the settings; how to switch
them on, and what each may reach, is in [the how-to](../howto/tools.md). Tools of MCP servers describe themselves and are
named `SERVER_TOOL`.

The class of a tool says what happens to a call that the process died in: `pure` and `idempotent` calls are run again, `once`
calls never; their result says that the outcome is unknown. A tool that needs an approval runs after a person approved.
"""


def tools_reference() -> str:
    """docs/reference/tools.md."""
    unused: Any = object()  # tools are described here, not used
    here = Path()
    groups = {
        "tools.files": files_tools(FilesSettings(folder=here)),
        "tools.shell": shell_tools(ShellSettings(folder=here), {}, unused),
        "tools.fetch": fetch_tools(FetchSettings(), unused),
        "tools.memory": memory_tools(MemorySettings(), unused, unused),
        "tools.search": search_tools(SearchSettings(), unused, unused),
        "tools.send": send_tools(SendSettings(folder=Path("files")), unused),
    }
    parts = [f"## `[{table}]`\n\n{_tool_texts(tools)}" for table, tools in groups.items()]
    always = f"## With any of them\n\n{_tool_texts(output_tools(OutputSettings(), unused))}"
    return "\n".join([TOOLS_HEAD, *parts, always])


def metrics_reference() -> str:
    """docs/reference/metrics.md."""
    rows = [
        (f"`{each.name}`", each.kind, ", ".join(f"`{name}`" for name in each.labels), each.text) for each in METRICS
    ]
    return METRICS_HEAD + "\n" + _table(("name", "kind", "labels", "meaning"), rows)


def _tool_texts(tools: Iterable[Tool]) -> str:
    return "\n".join(map(_tool_text, tools))


def _tool_text(tool: Tool) -> str:
    properties: dict[str, dict[str, Any]] = dict(tool.parameters["properties"])  # type: ignore[call-overload]
    required = tool.parameters.get("required") or ()
    rows = [
        (f"`{name}`", _type_of(each), "" if name in required else f"`{shown(each['default'])}`", each["description"])  # type: ignore[operator]
        for name, each in properties.items()
    ]
    asks = "; needs an approval by default" if tool.ask(_sample(properties)) else ""
    table = _table(("parameter", "type", "default", "meaning"), rows)
    return f"### `{tool.name}`\n\n{tool.description} Class: `{tool.effect}`{asks}.\n\n{table}"


def _sample(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Sample arguments, to see whether the tool needs an approval."""
    return {name: each.get("default", (each.get("enum") or ["x"])[0]) for name, each in properties.items()}


def _type_of(each: Mapping[str, Any]) -> str:
    return " or ".join(f"`{value}`" for value in each["enum"]) if "enum" in each else str(each["type"])


GENERATORS: Mapping[str, Callable[[], str]] = {
    "everturn.toml.example": example_toml,
    "docs/reference/cli.md": cli_reference,
    "docs/reference/commands.md": chat_reference,
    "docs/reference/config.md": config_reference,
    "docs/reference/metrics.md": metrics_reference,
    "docs/reference/tools.md": tools_reference,
    "docs/concepts/turn-lifecycle.md": turn_lifecycle,
}


def generated() -> dict[Path, str]:
    """All generated files with the text that each must have."""
    return {ROOT / path: make() for path, make in GENERATORS.items()}


def main(arguments: list[str]) -> int:
    """Write the files that differ; with --check only list them."""
    differs = {path: text for path, text in generated().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in differs.items():
        print(path.relative_to(ROOT))
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if "--check" not in arguments:
        subprocess.run([sys.executable, ROOT / "scripts" / "walk.py", "--page"], check=True)
    return 1 if differs and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
