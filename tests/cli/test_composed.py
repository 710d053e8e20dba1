"""The whole, from a file: a real gateway process with a scripted model, tools, routes, rights and a person's approval."""

from pathlib import Path

import pytest

from tests.cli.outside import answered, ended, post, state_of
from tests.cli.program import GatewayProgram, everturn
from tests.cli.scripted import KEY, scripted
from tests.house import ROOT
from tests.waiting import poll

SETTINGS = """
[agents.echo]
command = ["PYTHON", "EXAMPLE"]
[[routes]]
chat = "letters"
agent = "echo"
[tools.files]
enabled = true
[tools.shell]
enabled = true
"""


async def test_a_file_composes_models_tools_agents_and_approvals(tmp_path: Path) -> None:
    async with scripted(tmp_path, SETTINGS, "process_agent.py") as gateway:
        assert await answered(tmp_path, "ann", "1", "say hello") == "hello"
        write = 'use write_file {"path": "a.txt", "content": "kept"}'
        await answered(tmp_path, "ann", "2", write)
        assert (tmp_path / "workspace" / "a.txt").read_text() == "kept"
        assert await answered(tmp_path, "letters", "3", "hello") == "You wrote 5 letters."
        post(tmp_path, "ann", "4", 'use run_command {"command": "echo done > b.txt"}')
        await poll(lambda: state_of(tmp_path, "4") == "awaiting_approval", seen=lambda: gateway.output)
        assert not (tmp_path / "workspace" / "b.txt").exists()
        post(tmp_path, "ann", "5", "/approve")
        await poll(lambda: ended(tmp_path, "4") == "answered", seen=lambda: gateway.output)
        assert (tmp_path / "workspace" / "b.txt").read_text() == "done\n"
    assert KEY not in gateway.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[agent]\nkind = "llm"\nmodel = "openai:x"\napi_key_env = "NOT_THERE"\n', "NOT_THERE is not set"),
        ('[agent]\nkind = "python"\nobject = "nowhere:x"\n', "agent.object: nowhere:x cannot be loaded"),
        ('[rights.platform.x.dm]\ncommands = ["dance"]\n', "names /dance, an unknown command"),
        ('[mcp.a]\ncommand = ["x"]\npass_environment = ["NOT_THERE"]\n', "NOT_THERE, which is not set"),
    ],
)
def test_what_is_found_only_at_the_start_ends_it_with_78(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "everturn.toml").write_text(text)
    refused = everturn("run", "--port", "0", home=tmp_path, EVERTURN_AGENT_KIND="")
    assert refused.code == 78
    assert said in refused.err


def texts(out: Path) -> list[str]:
    return [path.read_text() for path in out.glob("ann/*.txt")]


OF_THEIR_OWN = """
[platforms.own.folder]
enabled = true
object = "folder_platform:FolderPlatform"
allow = ["ann"]
"""


@pytest.mark.prove
async def test_a_platform_of_ones_own_answers_whom_it_may_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "folder_platform.py").write_text((ROOT / "examples" / "folder_platform.py").read_text())
    (tmp_path / "everturn.toml").write_text(OF_THEIR_OWN)
    for person, text in (("ann", "work 4 0.2"), ("eve", "hello")):
        chat = tmp_path / "folder" / "in" / person
        chat.mkdir(parents=True)
        (chat / "1.txt").write_text(text)
    out = tmp_path / "folder" / "out"
    for last in (False, True):
        with GatewayProgram(tmp_path) as gateway:
            gateway.ready()
            await poll(lambda: bool(list(tmp_path.glob("folder/in/ann/*.taken"))), seen=lambda: gateway.output)
            if last:
                await poll(lambda: any("done: 4 steps" in text for text in texts(out)), seen=lambda: texts(out))
            gateway.kill()
    assert len(list(out.glob("ann/*.txt"))) == 1
