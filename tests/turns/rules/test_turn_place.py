"""The sender and chat of a turn, as programs get them."""

from everturn.model import SessionSource
from everturn.turns.rules.turns import as_variables, place_of_turn, without_person


def test_every_name_is_always_there_and_names_of_strangers_are_one_line() -> None:
    bare = place_of_turn(SessionSource(platform="telegram"), "k", "s", "1")
    source = SessionSource(
        platform="telegram", account="7", chat_id="-1", chat_type="group", thread_id="3", user_id="5", message_id="9",
        chat_name="Garden\n\x00$(rm -rf /)", user_name="A" * 500,
    )  # fmt: skip
    told = as_variables(place_of_turn(source, "k", "s", "1"))
    assert told.keys() == as_variables(bare).keys()
    assert (bare["user"], bare["chat"], bare["thread"], bare["user_name"]) == ("", "", "", "")
    assert told["TURN_CHAT_NAME"] == "Garden $(rm -rf /)"
    assert len(told["TURN_USER_NAME"]) == 240
    assert (told["TURN_USER"], told["TURN_CHAT"], told["TURN_THREAD"], told["TURN_ID"]) == ("5", "-1", "3", "1")


def test_a_turn_of_several_people_names_nobody_but_its_place() -> None:
    source = SessionSource(
        platform="telegram", chat_id="-1", chat_type="group", thread_id="3", user_id="5", user_id_alt="ann",
        user_name="Ann", message_id="9",
    )  # fmt: skip
    told = place_of_turn(without_person(source), "k", "s", "1")
    assert (told["user"], told["user_name"]) == ("", "")
    assert (told["chat"], told["thread"], told["message"], told["platform"]) == ("-1", "3", "9", "telegram")
