"""From the settings file to the gateway's `Settings`."""

from dataclasses import fields
from pathlib import Path

import pytest

from everturn.app.gateway_settings import machine_zone, settings_of
from everturn.errors import ConfigError
from everturn.inbox.rules import BacklogRule
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource
from everturn.outbox.rules.streaming import Pace
from everturn.people.rules.access import AccessPolicy
from everturn.people.rules.rights import ChatRights, Rights
from everturn.sessions.rules.keys import Route
from everturn.settings.config import Config, read_config

FULL = """
[agent]
model = "openai:a"
models = ["openai:a", "openai:b"]
context_tokens = 5000
[streaming]
min_chars = 40
[streaming.platform.telegram]
interval_s = 2
[streaming.chat."telegram:-7"]
enabled = false
[agents.coder]
[[routes]]
platform = "telegram"
agent = "coder"
[sessions]
busy = "queue"
collect_s = 5
[sessions.platform.api]
busy = "interrupt"
[patience]
warn_s = 0
[tools]
output_chars = 9000
[approvals]
expires_s = 60
approvers = ["telegram:7"]
[spending]
turn_tokens = 5
total_cost_day = 1.5
[rights]
owners = ["telegram:1"]
[rights.platform.telegram.group]
admins = ["2"]
commands = ["new", "/status"]
"""


def settings(home: Path, text: str) -> Settings:
    (home / "everturn.toml").write_text(text)
    return settings_of(read_config(home, None, {}, {}).config)


def test_the_defaults_of_the_file_are_those_of_the_gateway() -> None:
    ours, theirs = settings_of(Config()), Settings()
    changed = {name for name in Settings.__slots__ if getattr(ours, name) != getattr(theirs, name)}
    by_platform = {"admission", "backlog", "on_unknown_by_platform", "valid_by_platform"}
    assert changed <= {
        "policies",
        "directory_every_s",
        *by_platform,
    }  # the zone is the machine's; tests look on their own
    assert ours.policies.default.timezone == machine_zone()


def test_every_chat_platform_has_a_policy_that_admits_nobody_by_itself() -> None:
    """Promise 11."""
    admission = settings_of(Config()).admission
    assert set(admission.policies) == {each.name for each in fields(Config().platforms)} - {"own"}
    assert {(each.allow, each.chats, each.unknown, each.for_strangers) for each in admission.policies.values()} == {
        ((), (), "auto", "pair")
    }


def test_what_the_file_says_of_a_platform_reaches_the_gateway(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        '[platforms.telegram]\nallow = ["7"]\nallow_chats = ["-1"]\nunknown = "ignore"\non_unknown_delivery = "drop"\n'
        'reply_valid_s = 60\nbacklog = "ask"\nbacklog_age_s = 0\n[rights]\nowners = ["telegram:1"]\n',
    )
    assert found.admission.policies["telegram"] == AccessPolicy(allow=("7",), chats=("-1",), unknown="ignore")
    assert (found.admission.owners, found.admission_of("api")) == (("telegram:1",), None)
    assert (found.on_unknown_delivery_for("telegram"), found.on_unknown_delivery_for("matrix")) == ("drop", "mark")
    assert found.valid_by_platform["telegram"] == 60
    assert found.backlog_of("telegram") == BacklogRule(policy="ask", age_s=0)


def test_what_the_file_says_reaches_the_gateway(tmp_path: Path) -> None:
    found = settings(tmp_path, FULL)
    assert (found.models, found.context_tokens) == (("openai:a", "openai:b"), 5000)
    assert found.routes == (Route(agent="coder", platform="telegram"),)
    assert (found.output_chars, found.approval_expires_s, found.approvers) == (9000, 60, ("telegram:7",))
    assert (found.busy_for("telegram"), found.busy_for("api"), found.collect_s) == ("queue", "interrupt", 5)
    assert (found.patience.warn_s, found.patience.inactive_s) == (0, 1800)
    assert (found.limits.turn_tokens, found.limits.total_cost_day) == (5, 1.5)
    scope = ChatRights(admins=("2",), commands=("new", "/status"))
    assert found.rights == Rights(owners=("telegram:1",), scopes={"telegram:dm": ChatRights(), "telegram:group": scope})


def test_terminal_display_settings_do_not_change_the_gateways_streaming(tmp_path: Path) -> None:
    """The chat's setting goes before the platform's, that before the one for all; a terminal's never comes in."""
    display = settings(tmp_path, FULL).display
    chat, other = (SessionSource(platform="telegram", chat_id=each) for each in ("-7", "8"))
    assert display.pace(chat) == Pace(enabled=False, interval_s=2, min_chars=40)
    assert display.pace(other) == Pace(interval_s=2, min_chars=40)
    assert display.pace(SessionSource(platform="matrix", chat_id="-7")) == Pace(min_chars=40)
    with pytest.raises(ConfigError, match=r"unknown setting display\.streaming"):
        settings(tmp_path, "[display]\nstreaming = false\n")
    (tmp_path / "everturn.toml").unlink()
    read = read_config(tmp_path, None, {"EVERTURN_DISPLAY_STREAMING": "false"}, {})
    assert settings_of(read.config).display.everywhere.enabled


def test_an_unknown_command_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rights\.platform\.x\.dm\.commands names /statsu, .* is status"):
        settings(tmp_path, '[rights.platform.x.dm]\ncommands = ["statsu"]\n')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[rights]\nowners = ["7"]\n', "the platform, a colon and the person's id"),
        ('[rights]\nowners = ["telegram:@ann"]\n', "write a number, not a name"),
        ('[platforms.telegram]\nallow = ["*", "-7", "@ann"]\n', "write a number, not a name"),
        ('[platforms.telegram]\nallow_chats = ["Team"]\n', "write a number, not a name"),
        ('[platforms.matrix]\nallow = ["@ann:x.example", "ann"]\n', "an account looks like @name:example.org"),
        ("[rights.platform.x.dms]\nadmins = []\n", "unknown setting rights.platform.x.dms.admins"),
        ('[agent]\ntools = ["shel"]\n', 'agent.tools names "shel", an unknown tool; the nearest known one is "shell"'),
        ("[tools.send.target.ops]\n", "tools.send.target.ops needs a platform and a chat"),
        (
            "[tools.shell]\nenabeld = true\n",
            "unknown setting tools.shell.enabeld; the nearest known one is tools.shell",
        ),
        ("[tools.shel]\nenabled = true\n", "unknown"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, text)
    assert said in str(caught.value)
