"""Files as messages name them, and which models see a picture."""

import pytest

from everturn.home.rules import ID_CHARS, Upload, clean_file_name, sees, shown, upload_at, uploads_in

A, B = "a" * 22, "b" * 22


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hello", []),
        (f"look\n\n![cat.png](/files/{A}/cat.png)", [Upload(A, "cat.png")]),
        (
            f"[my notes.txt](/files/{A}/my%20notes.txt) /files/{B}/b.png",
            [Upload(A, "my notes.txt"), Upload(B, "b.png")],
        ),
        (f"/files/{A}/x.png /files/{A}/x.png", [Upload(A, "x.png")]),
        (f"/files/{A}/..%2Fx /files/{A}/x%00y /files/short/x.png", []),
    ],
)
def test_a_text_names_files_by_their_address(text: str, found: list[Upload]) -> None:
    assert uploads_in(text) == found


def test_only_a_bare_address_is_a_path() -> None:
    assert upload_at(f"/files/{A}/x.txt") == Upload(A, "x.txt")
    assert upload_at(f"see /files/{A}/x.txt") is None
    assert upload_at("notes.txt") is None


def test_the_newest_pictures_are_shown() -> None:
    texts = [f"/files/{number:022}/x.png" for number in range(5)]
    assert {each.id[-1] for each in shown(texts, 2)} == {"3", "4"}


@pytest.mark.parametrize(
    ("model", "setting", "yes"),
    [
        ("openai:gpt-5-mini", "auto", True),
        ("openai:gpt-4o", "auto", True),
        ("openai:gpt-3.5-turbo", "auto", False),
        ("anthropic:claude-sonnet-4-5", "auto", True),
        ("anthropic:claude-3-5-haiku-latest", "auto", True),
        ("anthropic:claude-2", "auto", False),
        ("google-gla:gemini-2.5-flash", "auto", True),
        ("openai:scripted", "auto", False),
        ("groq:llama-3", "auto", False),
        ("openai:scripted", "yes", True),
        ("openai:gpt-5", "no", False),
    ],
)
def test_a_model_sees_as_its_owner_says_or_by_its_name(model: str, setting: str, yes: bool) -> None:  # noqa: FBT001
    assert sees(model, setting) is yes


@pytest.mark.parametrize("letter", ["a", "ж", "李", "𐌀"])
@pytest.mark.parametrize("ending", ["", ".pdf", ".договор"])
def test_a_long_name_is_cut_to_what_a_disk_takes_and_is_found_by_its_address(letter: str, ending: str) -> None:
    upload = Upload("a" * ID_CHARS, clean_file_name(letter * 200 + ending))
    assert 100 < len(upload.name.encode()) <= 120
    assert upload.name.endswith(ending)
    assert uploads_in(f"see {upload.address} there") == [upload]
