"""A gateway that many tests of this folder use."""

from collections.abc import Iterator

import pytest

from tests.cli.program import GatewayProgram


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProgram]:
    """A running gateway with the scripted demo, for tests that neither stop it nor write into its home. Each has a chat of its
    own.
    """
    with GatewayProgram(tmp_path_factory.mktemp("shared")) as gateway:
        gateway.ready()
        yield gateway
