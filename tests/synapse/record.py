"""Record what the homeserver of the tests sends: `python -m tests.synapse.record`, into tests/platform/payloads/matrix.

Each file is one event as /sync gives it to our account, word for word; `room` and `invitation` are the state around them. They
change when Synapse does, and tests/platform/test_matrix_payloads.py says what of that matters.
"""

import json
from pathlib import Path
from typing import Any

from tests.synapse import Person, SynapseServer

FOLDER = Path(__file__).parents[1] / "platform" / "payloads" / "matrix"
NEWS = '{"presence":{"types":[]},"account_data":{"types":[]},"room":{"timeline":{"limit":100}}}'


def record(server: SynapseServer) -> dict[str, Any]:
    """What was said in one room, by the name of the file."""
    us, ann, bob = (server.person(name) for name in ("everturn", "ann", "bob"))
    room = ann.makes_room("Team", [us.user_id, bob.user_id])
    invitation = _news(us)["rooms"]["invite"][room]["invite_state"]["events"]
    us.joins(room)
    bob.joins(room)
    sent = _said(us, ann, bob, room)
    about = _news(us)["rooms"]["join"][room]
    events = {each["event_id"]: each for each in about["timeline"]["events"]}
    state = [each for each in [*about["state"]["events"], *events.values()] if "state_key" in each]
    return {"invitation": invitation, "room": state} | {name: events[number] for name, number in sent.items()}


def _said(us: Person, ann: Person, bob: Person, room: str) -> dict[str, str]:
    mention: dict[str, Any] = {"m.mentions": {"user_ids": [us.user_id]}}
    choices: dict[str, Any] = {"org.everturn.choices": {"1\ufe0f\u20e3": "/approve 7"}}
    ours = us.says(room, "What shall I do?", **choices)
    message = ann.says(room, "@everturn: what is new?", **mention)
    taken_back = ann.says(room, "never mind", **mention)
    file: dict[str, Any] = {"filename": "list.txt", **mention}
    picture = ann.uploads(b"not really", "image/png", "cat.png")
    sealed = {
        "algorithm": "m.megolm.v1.aes-sha2",
        "ciphertext": "AwgA",
        "session_id": "s",
        "sender_key": "k",
        "device_id": "d",
    }
    return {
        "ours": ours,
        "message": message,
        "plain_in_a_group": ann.says(room, "lunch?"),
        "formatted": ann.says(
            room, "Everturn: **now**", format="org.matrix.custom.html", formatted_body="<b>now</b>", **mention
        ),
        "emote": ann.says(room, "waves", msgtype="m.emote", **mention),
        "notice": bob.says(room, "everturn: I am a program", msgtype="m.notice", **mention),
        "reply_to_us": bob.says(room, "this", reply_to=ours),
        "thread_reply": ann.says(room, "in the thread", thread=message, **mention),
        "reply_in_a_thread": ann.says(room, "to that", thread=message, reply_to=ours),
        "edit": ann.edits(room, message, "@everturn: what is old?"),
        "edited_by_another": bob.edits(room, message, "nonsense"),
        "reaction": bob.reacts(room, message, "👍"),
        "press": bob.reacts(room, ours, "1\ufe0f\u20e3"),
        "file": ann.sends_file(room, b"buy milk", "please read", "text/plain", **file),
        "file_without_words": ann.sends_file(room, b"buy milk", "list.txt", "text/plain"),
        "sticker": ann.sends(
            room, "m.sticker", {"body": "a cat", "url": picture, "info": {"mimetype": "image/png"}} | mention
        ),
        "encrypted": ann.sends(room, "m.room.encrypted", sealed),
        "redaction": ann.redacts(room, taken_back),
        "redacted": taken_back,
    }


def _news(us: Person) -> Any:
    return us.asks("GET", "/sync", params={"timeout": 0, "filter": NEWS})


def write(found: dict[str, Any], folder: Path) -> None:
    """One file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, what in found.items():
        (folder / f"{name}.json").write_text(json.dumps(what, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with SynapseServer() as running:
        write(record(running), FOLDER)
