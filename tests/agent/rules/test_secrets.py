"""No key leaves in a text."""

import pytest

from everturn.agent.rules import HIDDEN, scrub


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: {}.",
        "Authorization: Bearer {}",
        "https://x.test/v1?api_key={}&x=1",
        "https://user:{}@host.test/v1",
        "{0} and {0}",
    ],
)
@pytest.mark.parametrize("secret", ["sk-proj-abcdef0123456789", "AIzaSyA0123456789abcdefghijk", "hunter2hunter2"])
def test_a_known_secret_is_gone(text: str, secret: str) -> None:
    scrubbed = scrub(text.format(secret), (None, "", secret))
    assert secret not in scrubbed
    assert HIDDEN in scrubbed


@pytest.mark.parametrize("secret", ["sk-ant-0123456789", "gsk_0123456789", "sk-ab12****cd34"])
def test_what_looks_like_a_key_is_gone_too(secret: str) -> None:
    assert secret not in scrub(f"the key {secret} is wrong")


def test_ordinary_words_stay() -> None:
    text = "The model's maximum context length is 8192 tokens; task-force risk."
    assert scrub(text, ("key",)) == text
