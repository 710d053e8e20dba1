"""The OpenAI API of a real gateway process that is killed in the middle: the same key gets the one answer from the next process."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from everturn.home.folder import Home
from tests.cli.program import GatewayProgram
from tests.waiting import WAIT_S

KEYED: dict[str, Any] = {"model": "main", "extra_headers": {"Idempotency-Key": "k1", "X-Everturn-Session": "notes"}}


def client(gateway: GatewayProgram, home: Path) -> OpenAI:
    return OpenAI(base_url=f"{gateway.ready().url}/v1", api_key=Home(home).api_token(), max_retries=0, timeout=WAIT_S)


def say(api: OpenAI, text: str, **more: Any) -> str:
    stream: Any = api.chat.completions.create(
        messages=[{"role": "user", "content": text}], stream=True, **{**KEYED, **more}
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


@pytest.mark.prove
def test_the_answer_survives_the_process_that_was_asked(tmp_path: Path) -> None:
    """The demo kills its process with SIGKILL, in the middle of the stream."""
    with GatewayProgram(tmp_path) as first, client(first, tmp_path) as api:
        with pytest.raises((openai.APIConnectionError, openai.APIError)):
            say(api, "crash")
        assert first.wait() == -9
    with GatewayProgram(tmp_path) as second, client(second, tmp_path) as api:
        answers = [say(api, "crash") for _ in range(2)]
        assert answers == ["I was killed in the middle of this turn and resumed it. Nothing was lost."] * 2
        assert "I see 2 earlier messages" in say(api, "hello", extra_headers={"X-Everturn-Session": "notes"})
