"""The commands by name. The program loads a command's module only to run it, so the help answers at once."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence

import click

from everturn import __version__
from everturn.errors import ConfigError, EverturnError, HomeLocked, StoreUnusable

FAILED = 1
BAD_CONFIG = 78
INTERRUPTED = 130

# Name -> the module that has it, and its line in the help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run", "Start the gateway."),
    "chat": ("chat", "Talk to the agent from this terminal."),
    "stop": ("run", "Stop the running gateway."),
    "restart": ("run", "Restart the running gateway."),
    "status": ("reading", "Show whether the gateway runs, and its open work."),
    "sessions": ("reading", "List the current sessions."),
    "explain": ("reading", "Show the timeline of one message."),
    "dead": ("reading", "Dead letters: list, send, run, drop."),
    "recoveries": ("reading", "List recoveries from processes that ended."),
    "login": ("people", "Print a one-time login link for the page."),
    "logout": ("people", "Log every browser out of the page."),
    "keys": ("people", "Create, list and revoke access keys for programs."),
    "pair": ("people", "Approve people on chat platforms, or revoke them."),
    "channels": ("reading", "List known chats, and give them aliases."),
    "connect": ("connect", "Connect a chat platform."),
    "config": ("reading", "Show the settings."),
    "version": ("reading", "Print the version."),
}


class LazyGroup(click.Group):
    """A command group that knows its commands by name and loads only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """The commands' names, in the order of a day's work, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"everturn.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without loading their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="everturn", message="%(prog)s %(version)s")
def everturn() -> None:
    """Everturn is a gateway between chat platforms and an AI agent that never loses a turn.

    Every command takes --home DIR, the directory of one gateway: by default $EVERTURN_HOME, or ~/.everturn.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an expected error is printed as one line to standard error. Returns the exit code."""
    try:
        code = everturn.main(args=arguments, prog_name="everturn", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; Python must not write anything at exit, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except EverturnError as error:
        print(f"everturn: {error}", file=sys.stderr)
        return BAD_CONFIG if isinstance(error, ConfigError | HomeLocked | StoreUnusable) else FAILED
    return code if isinstance(code, int) else 0
