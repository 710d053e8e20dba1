"""A feature that is switched off costs a turn nothing: as many statements, commits, tasks and calls as if nobody had named it.

Each row of the tables below is written into the settings of a gateway that is made as the real process makes its own.
"""

import re
from dataclasses import astuple, dataclass, replace

import pytest

from everturn.settings import SETTINGS, Setting
from tests.agent.llm.test_switched_off import OFF_IN_THE_AGENT
from tests.collector import Collector
from tests.empty import EmptyFile
from tests.turn_scenes import Bench, Measured

# Nobody has these unless they ask for them. Written as off, with whatever else their tables may hold, they cost what they cost when
# they are not mentioned. Most are measured together: none of them can hide what another one costs.
OFF_BY_DEFAULT = {
    "tracing of no message": 'telemetry.endpoint = "http://127.0.0.1:9"\ntelemetry.sample_ratio = 0',
    "all else": """
        telemetry.endpoint = ""
        telemetry.service_name = "mine"
        platforms.telegram.webhook = false
        server.public_url = "https://gateway.example"
        platforms.matrix.enabled = false
        platforms.matrix.homeserver = "https://matrix.example"
        platforms.matrix.user = "@us:matrix.example"
        platforms.own.folder.enabled = false
        platforms.own.folder.object = "folder_platform:FolderPlatform"
        platforms.own.folder.allow = ["ann"]
        display.reaction = ""
        display.reasoning = false
        display.platform.matrix.typing = false
        display.chat."telegram:77".typing = false
        streaming.platform.matrix.enabled = false
        sessions.reset = "none"
        sessions.idle_minutes = 5
        sessions.thread_sessions_per_user = false
        sessions.platform.telegram.reset = "none"
        sessions.chat_type.dm.reset = "none"
    """,
}


@dataclass(frozen=True)
class OnByDefault:
    """A feature that is there unless somebody switches it off, and the tasks that a turn then needs no more."""

    off: str
    tasks: int = 0


CHAT = "telegram:1001"  # the first person of the local Telegram
ON_BY_DEFAULT = {
    "streaming": OnByDefault("streaming.enabled = false"),
    "streaming on this platform": OnByDefault("streaming.platform.telegram.enabled = false"),
    "typing": OnByDefault("display.typing = false", tasks=1),
    "typing in this chat": OnByDefault(f'display.chat."{CHAT}".typing = false', tasks=1),
    "progress": OnByDefault("display.progress = false"),
    "silence and quotes": OnByDefault('display.silence = "send"\ndisplay.quote = "never"'),
    "patience": OnByDefault("\n".join(f"{key} = 0" for key in SETTINGS if key.startswith("patience."))),
    "files": OnByDefault("limits.file_megabytes = 0\nlimits.files_megabytes = 0\nmedia.text_chars = 0"),
    "joined messages": OnByDefault("sessions.burst_s = 0\nsessions.collect_s = 0"),
    "pairing": OnByDefault('platforms.telegram.unknown = "ignore"'),
    "ages": OnByDefault("platforms.telegram.backlog_age_s = 0\nplatforms.telegram.reply_valid_s = 0"),
    "conversations apart": OnByDefault("sessions.group_sessions_per_user = false\nsessions.notify = false"),
    "crash loops": OnByDefault("recovery.stuck_after = 0\nrecovery.unclean_boots = 0"),
}
ON_BY_DEFAULT_IN_HTTP = "server.requests_per_minute = 0\nserver.connections_per_address = 0"

# Who writes one of these switches something off.
SAYS_OFF = re.compile(r"\b(0|Empty): (no|none|nothing|never|it never)\b")
WORDS_FOR_OFF = {"none", "never", "no", "ignore"}
MEASURED = "platforms.telegram.enabled"


@pytest.fixture(scope="module")
def bench(empty_file: EmptyFile, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(empty_file, tmp_path_factory)


@pytest.fixture(scope="module")
def absent(bench: Bench) -> Measured:
    """What a turn costs in a gateway whose settings name no feature."""
    return bench.measured("")


@pytest.mark.parametrize("feature", OFF_BY_DEFAULT)
def test_what_is_written_as_off_costs_what_it_costs_unmentioned(feature: str, bench: Bench, absent: Measured) -> None:
    found = bench.measured(OFF_BY_DEFAULT[feature])
    assert found.costs == absent.costs, found.beyond(absent)


@pytest.mark.parametrize("feature", ON_BY_DEFAULT)
def test_what_is_switched_off_costs_no_more_than_before(feature: str, bench: Bench, absent: Measured) -> None:
    row = ON_BY_DEFAULT[feature]
    found = bench.measured(row.off)
    assert found.costs.tasks == absent.costs.tasks - row.tasks, found.beyond(absent)
    assert max(astuple(found.costs - absent.costs)) <= 0, found.beyond(absent)


def test_limits_of_http_that_are_switched_off_cost_no_more_than_before(bench: Bench) -> None:
    absent, found = bench.measured_by_http(""), bench.measured_by_http(ON_BY_DEFAULT_IN_HTTP)
    assert max(astuple(found.costs - absent.costs)) <= 0, found.beyond(absent)


def test_a_feature_that_is_on_is_counted(bench: Bench, absent: Measured) -> None:
    """The meter works; and traces cost neither a statement nor a task."""
    with Collector() as collector:
        found = bench.measured(f'telemetry.endpoint = "{collector.url}"')
    assert found.costs.calls > absent.costs.calls
    assert replace(found.costs, calls=0) == replace(absent.costs, calls=0)


def test_every_switch_is_in_a_table() -> None:
    rows = [*OFF_BY_DEFAULT.values(), *OFF_IN_THE_AGENT.values(), ON_BY_DEFAULT_IN_HTTP]
    rows += [row.off for row in ON_BY_DEFAULT.values()]
    written = {line.partition(" = ")[0].strip() for row in rows for line in row.splitlines()}
    switches = {key for key, each in SETTINGS.items() if can_be_off(each) and not key.startswith("platforms.matrix.")}
    assert switches - written == {MEASURED}


def can_be_off(setting: Setting) -> bool:
    return (
        isinstance(setting.default, bool)
        or SAYS_OFF.search(setting.rule.text) is not None
        or not WORDS_FOR_OFF.isdisjoint(setting.rule.choices)
    )
