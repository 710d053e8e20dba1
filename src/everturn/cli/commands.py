"""The commands by name. A command's module is loaded when the command is asked for, so the help answers at once."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence

import click

from everturn import __version__
from everturn.errors import ConfigError, EverturnError, HomeHeld, StoreUnusable

FAILED = 1
BAD_CONFIG = 78
INTERRUPTED = 130

# Name -> the module that has it, and its line in the help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run", "Start the gateway."),
    "chat": ("chat", "Talk to the agent from this terminal."),
    "stop": ("stopping", "Stop the running gateway."),
    "restart": ("stopping", "Restart the running gateway."),
    "status": ("status", "Say whether the gateway runs and what is open."),
    "sessions": ("sessions", "List the sessions in force."),
    "explain": ("explain", "Tell the life of one message."),
    "dead": ("dead", "Letters that were given up: list, send, run, drop."),
    "recoveries": ("dead", "List what was taken up from lives that ended."),
    "login": ("login", "Print a link that opens the page in a browser, once."),
    "logout": ("login", "Log every browser out."),
    "keys": ("keys", "Access keys for programs."),
    "pair": ("pair", "Who may speak on chat platforms."),
    "channels": ("channels", "Where people talk, and names for it."),
    "connect": ("connect", "Connect a chat platform."),
    "config": ("settings", "Look at the settings."),
    "version": ("version", "Print the version."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """In the order of a day's work, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"everturn.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list from the table: no module is loaded for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="everturn", message="%(prog)s %(version)s")
def everturn() -> None:
    """Everturn stands between chat platforms and an AI agent, and never loses a turn.

    Every command takes --home DIR, the directory of one gateway: by default $EVERTURN_HOME, or ~/.everturn.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; expected errors are a line on standard error, and an exit code."""
    try:
        code = everturn.main(args=arguments, prog_name="everturn", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Who read our output left; nothing may be written at the end, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except EverturnError as error:
        print(f"everturn: {error}", file=sys.stderr)
        return BAD_CONFIG if isinstance(error, ConfigError | HomeHeld | StoreUnusable) else FAILED
    return code if isinstance(code, int) else 0
