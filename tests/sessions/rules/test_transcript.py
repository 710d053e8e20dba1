"""How a transcript is arranged for a model: results behind their calls, whatever stood between; and where it is cut."""

from everturn.model import Message, ToolCall
from everturn.sessions.rules.transcript import NO_RESULT, arranged, estimated_tokens, rows_to_keep, to_summarise


def user(text: str, seq: int = 1, author: str | None = None) -> Message:
    return Message(role="user", content=text, seq=seq, author=author)


def response(*calls: str, text: str = "") -> Message:
    return Message(role="assistant", content=text, calls=tuple(ToolCall(call, "tool") for call in calls))


def result(call: str, text: str = "done") -> Message:
    return Message(role="tool", content=f"{call} {text}", call_id=call)


def shape(rows: list[Message]) -> list[str]:
    return [row.content or "+".join(call.id for call in row.calls) for row in arranged(rows)]


def test_results_follow_their_response_in_the_order_of_the_calls() -> None:
    rows = [user("go"), response("a", "b"), user("steer"), result("b"), result("a"), response(text="end")]
    assert shape(rows) == ["go", "a+b", "a done", "b done", "steer", "end"]


def test_a_call_without_a_result_says_so() -> None:
    assert shape([user("go"), response("a"), user("next")]) == ["go", "a", NO_RESULT, "next"]


def test_a_result_without_its_call_and_an_empty_response_are_left_out() -> None:
    assert shape([result("a"), user("go"), response(), response(text="end")]) == ["go", "end"]


def test_calls_of_the_same_id_keep_their_own_results() -> None:
    rows = [response("a"), result("a", "first"), response("a"), result("a", "second")]
    assert shape(rows) == ["a", "a first", "a", "a second"]
    assert shape([response("a"), response("a"), result("a")]) == ["a", NO_RESULT, "a", "a done"]


def test_the_tail_that_is_kept_never_parts_a_result_from_its_call() -> None:
    rows = [user("x" * 400), user("go"), response("a", "b"), user("steer"), result("a"), result("b")]
    assert rows_to_keep(rows, 0) == 4
    assert rows_to_keep(rows, 60) == 5
    assert rows_to_keep(rows, 10_000) == 0
    assert rows_to_keep(rows[2:], 0) == 0


def test_the_estimate_grows_with_the_bytes() -> None:
    assert estimated_tokens([user("a" * 400)]) == 106
    assert estimated_tokens([user("語" * 400)]) == 306
    assert estimated_tokens([], "b" * 40) == 10


def test_what_is_summarised_names_who_spoke_and_is_bounded() -> None:
    rows = [user("hello", author="Ann"), response("a"), result("a"), user("y" * 9000)]
    text = to_summarise(rows, 100_000)
    assert "Person: [Ann] hello" in text
    assert "(used tool with )" in text
    assert "Result: a done" in text
    assert len(text) < 5_000
    assert "left out" in to_summarise(rows, 300)
