"""What our client makes of the streams of real servers is what pydantic-ai made of them: same parts, same outcome, same usage."""

import pytest

from everturn.agent.llm.replies import as_kept, extra_of
from tests.agent.llm.chat.recorded import STREAMS, asked, ours, streaming, theirs


@pytest.mark.parametrize("name", STREAMS)
async def test_both_clients_read_the_same_from_a_stream(name: str) -> None:
    async with streaming(STREAMS[name]) as server:
        mine, outcome, seen = await asked(ours(server))
        old, old_outcome, _ = await asked(theirs(server))
    assert outcome is old_outcome
    if mine is None or old is None:
        assert mine is old
        return
    assert list(mine.parts) == list(old.parts)
    assert (mine.text, mine.provider) == (old.text, old.provider)
    assert (mine.used.input_tokens, mine.used.output_tokens, mine.used.cached_tokens) == (
        old.used.input_tokens, old.used.output_tokens, old.used.cached_tokens,
    )  # fmt: skip
    assert seen[-1] == mine.text
    kept = [as_kept(each, (), "t-1") for each in (mine, old)]
    assert extra_of(kept[0], mine.text, ()) == extra_of(kept[1], old.text, ())
