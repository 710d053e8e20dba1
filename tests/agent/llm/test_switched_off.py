"""What an agent may not use costs its turns nothing."""

import pytest

from everturn.settings import SETTINGS
from tests.empty import EmptyFile
from tests.turn_scenes import Bench

# Written as off, with whatever else their tables may hold.
OFF_IN_THE_AGENT = {
    "tools": """
        tools.files.enabled = false
        tools.files.write = false
        tools.fetch.enabled = false
        tools.memory.enabled = false
        tools.search.enabled = false
        tools.send.enabled = false
        tools.send.own_chat = false
        tools.send.directory = false
        tools.send.files = false
    """,
    "approvals": 'tools.shell.enabled = false\ntools.shell.approval = "never"\napprovals.approvers = []',
    "spending limits": "\n".join(f"{key} = 0" for key in SETTINGS if key.startswith("spending.")),
    "other models": 'agent.fallback = []\nagent.models = []\nagent.images = "no"',
}


def test_what_an_agent_may_not_use_costs_what_it_costs_unmentioned(
    empty_file: EmptyFile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All at once, as a model takes long to set up: none of them is on by default, so none can hide what another one costs."""
    bench = Bench(empty_file, tmp_path_factory)
    absent = bench.measured("", model=True)
    found = bench.measured("\n".join(OFF_IN_THE_AGENT.values()), model=True)
    assert found.whatever_the_network_does() == absent.whatever_the_network_does(), found.beyond(absent)
