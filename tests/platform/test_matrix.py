"""Matrix, on a real Synapse: its events become messages for the gateway, and our messages appear there."""

import asyncio
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.inbox.rules import in_reply
from everturn.model import Attachment, Heard, Inbound, ReadTo, SessionSource
from everturn.people.rules.access import AccessVerdict
from everturn.platform import interface
from everturn.platform.interface import Choice, Outgoing
from everturn.platform.matrix import MatrixPlatform
from everturn.platform.matrix.rules import NOT_READ
from everturn.platform.matrix.wire import CHOICES
from everturn.turns.rules import turn_texts
from tests.contracts.matrix import MatrixDriver
from tests.contracts.platform import MARKED_CALLS
from tests.synapse import SynapseServer
from tests.waiting import WAIT_S, within


@pytest.fixture
async def driver(synapse: SynapseServer) -> AsyncIterator[MatrixDriver]:
    async with MatrixDriver(None, synapse) as driver:
        yield driver


async def heard(driver: MatrixDriver, count: int, platform: MatrixPlatform | None = None) -> list[Inbound]:
    """So many, each acknowledged but the last."""
    found: list[Inbound] = []
    reading = (platform or driver.connected()).inbound(driver.after)
    async with within(WAIT_S, lambda: found):
        while len(found) < count:
            each = await anext(reading)
            found += [each] if isinstance(each, Inbound) else []
    await reading.aclose()
    return found


async def read_all(driver: MatrixDriver) -> None:
    """Until the place of all messages so far is given to be committed."""
    reading = driver.connected().inbound(driver.after)
    found: list[Inbound | ReadTo] = []
    async with within(WAIT_S, lambda: found):
        while not found or not found[-1].cursor:
            found.append(await anext(reading))
    await reading.aclose()


ABILITIES = (
    "CanPull", "CanSend", "CanEdit", "CanDelete", "CanAsk", "CanReadBack", "CanType", "CanReact", "CanSendFiles", "CanFetch", "CanListChannels",
    "CanNoticeChannels", "CanClose", "CanTellContact", "HasCredential",
)  # fmt: skip


async def test_it_can_what_matrix_can(driver: MatrixDriver) -> None:
    platform = driver.connected()
    assert [each for each in ABILITIES if not isinstance(platform, getattr(interface, each))] == []


async def test_a_direct_message_has_its_place_and_its_time(driver: MatrixDriver) -> None:
    ann = driver.person("ann")
    number = ann.says(driver.room("ann"), "hello")
    (found,) = await heard(driver, 1)
    source = found.source
    assert (found.id, found.text, found.what) == (number, "hello", Heard.SAID)
    assert (source.platform, source.account, source.chat_id) == ("matrix", driver.bot.user_id, driver.room("ann"))
    assert (source.chat_type, source.thread_id, source.message_id) == ("dm", None, number)
    assert (source.user_id, source.user_name) == (ann.user_id, ann.user_id[1:].partition(":")[0])
    assert found.said_at is not None
    assert found.cursor


async def test_in_a_room_only_what_is_said_to_us_is_heard(driver: MatrixDriver) -> None:
    ann, team, us = driver.person("ann"), driver.group("Team", "ann", "bob"), driver.bot.user_id
    ours = driver.bot.says(team, "I am here")
    theirs = ann.says(team, "not for you")
    ann.says(team, "nor this", reply_to=theirs)
    means_us: dict[str, Any] = {"m.mentions": {"user_ids": [us]}}
    ann.says(team, "Everturn: by a client that tells it", **means_us)
    ann.says(team, f"{us} by name")
    ann.says(team, "!status")
    ann.says(team, us)
    ann.says(team, f"> <{us}> I am here\n\nand this", reply_to=ours)
    found = await heard(driver, 5, driver.connected(listening=False))
    said = [each.text for each in found]
    assert said == [
        "Everturn: by a client that tells it",
        "by name",
        "/status",
        us,
        in_reply("and this", "I am here", None),
    ]
    assert {each.source.chat_name for each in found} == {"Team"}


async def test_a_reply_tells_what_it_answers_as_that_reads_now(driver: MatrixDriver) -> None:
    ann, room, team = driver.person("ann"), driver.room("ann"), driver.group("Team", "ann", "bob")
    ours = driver.bot.says(room, "one |")
    driver.bot.edits(room, ours, "one two three")
    theirs = driver.person("bob").says(team, "guten Tag")
    driver.person("bob").says(team, "not for you", reply_to=theirs)
    ann.says(room, "why?", reply_to=ours)
    ann.says(room, "!status", reply_to=ours)
    ann.says(team, f"{driver.bot.user_id} translate", reply_to=theirs)
    picture = driver.person("bob").sends_file(team, b"a photo", "a.png", "image/png", "m.image")
    ann.says(team, f"{driver.bot.user_id} what is this?", reply_to=picture)
    found = {each.text: len(each.attachments) for each in await heard(driver, 4, driver.connected(listening=False))}
    bob = driver.person("bob").user_id[1:].partition(":")[0]
    assert found == {
        in_reply("why?", "one two three", None): 0,
        "/status": 0,
        in_reply("translate", "guten Tag", bob): 0,
        in_reply("what is this?", "[image: a.png]", bob): 1,
    }


async def test_a_reply_to_what_can_be_no_message_keeps_nobody_waiting(driver: MatrixDriver) -> None:
    """Promise 9: with such ids no address can be made, or none that a server takes."""
    ann, team, odd = driver.person("ann"), driver.group("Team", "ann", "bob"), ("/" * 22_000, "$" + "a" * 9000)
    for number, named in enumerate(odd):
        relation: dict[str, Any] = {"m.relates_to": {"m.in_reply_to": {"event_id": named}}}
        ann.says(team, str(number), **relation)
    ann.says(team, "last")
    claim = {"predecessor": {"room_id": "!" + "/" * 22_000, "event_id": "$x"}}
    wanted = {"invite": [driver.bot.user_id], "creation_content": claim}
    new = ann.asks("POST", "/createRoom", json=wanted)["room_id"]
    ann.says(new, "in the new room")
    found = await heard(driver, 4)
    assert sorted(each.text for each in found) == ["0", "1", "in the new room", "last"]


async def test_a_thread_is_a_conversation_and_is_answered_in_it(driver: MatrixDriver) -> None:
    ann, team = driver.person("ann"), driver.group("Team", "ann", "bob")
    root = driver.bot.says(team, "Plans")
    number = ann.says(team, "in the thread", thread=root)
    platform = driver.connected()
    (found,) = await heard(driver, 1, platform)
    assert (found.source.thread_id, found.source.chat_type) == (root, "group")
    await platform.send(found.source, "here", "1-0")
    (shown,) = ann.screen(team).by(driver.bot.user_id, root)
    assert (shown.text, shown.reply_to) == ("here", number)
    assert shown.content["m.mentions"] == {"user_ids": [ann.user_id]}


async def test_edits_and_deletions_name_what_they_change(driver: MatrixDriver) -> None:
    ann, room = driver.person("ann"), driver.room("ann")
    number = ann.says(room, "hello")
    edits = [ann.edits(room, number, words) for words in ("hello there", "hello all")]
    other = ann.says(room, "a mistake")
    gone = ann.redacts(room, other)
    found = await heard(driver, 4)  # what is deleted is not said any more
    assert [(each.what, each.of, each.text) for each in found] == [
        (Heard.SAID, None, "hello"),
        (Heard.EDITED, number, "hello there"),
        (Heard.EDITED, number, "hello all"),
        (Heard.DELETED, other, ""),
    ]
    assert [each.id for each in found[1:]] == [*edits, gone]


async def test_an_edit_in_a_room_need_not_say_again_that_it_is_for_us(driver: MatrixDriver) -> None:
    """An edit names what it changes and nothing else; clients leave the mention out as people do."""
    ann, team = driver.person("ann"), driver.group("Team", "ann", "bob")
    ours = driver.bot.says(team, "I am here")
    means_us: dict[str, Any] = {"m.mentions": {"user_ids": [driver.bot.user_id]}}
    numbers = [ann.says(team, "tow", reply_to=ours), ann.says(team, "thre", **means_us)]
    for number, words in zip(numbers, ("two", "three"), strict=True):
        ann.edits(team, number, words)
    found = await heard(driver, 4, driver.connected(listening=False))
    assert [(each.what, each.of, each.text) for each in found] == [
        (Heard.SAID, None, in_reply("tow", "I am here", None)),
        (Heard.SAID, None, "thre"),
        (Heard.EDITED, numbers[0], "two"),
        (Heard.EDITED, numbers[1], "three"),
    ]


async def test_programs_and_we_ourselves_are_not_heard_but_gestures_are(driver: MatrixDriver) -> None:
    ann, room = driver.person("ann"), driver.room("ann")
    ann.says(room, "from a program", msgtype="m.notice")
    driver.bot.says(room, "from us")
    ann.says(room, "odd", info=[7], filename=8)
    ann.says(room, "waves", msgtype="m.emote")
    odd, found = await heard(driver, 2)
    assert (odd.text, found.text) == ("odd", f"* {found.source.user_name} waves")


async def test_files_come_as_attachments_and_can_be_fetched(driver: MatrixDriver) -> None:
    ann, room, platform = driver.person("ann"), driver.room("ann"), driver.connected()
    ann.sends_file(room, b"a photo", "a.png", "image/png", "m.image")
    ann.sends_file(room, b"a,b", "look at it", "text/csv", filename="t.csv")
    ann.sends_file(room, b"ogg", "a.ogg", "audio/ogg", "m.audio", **{"org.matrix.msc3245.voice": {}})
    info = {"mimetype": "image/webp"}
    ann.sends(room, "m.sticker", {"body": "😀", "url": ann.uploads(b"webp", "image/webp"), "info": info})
    found = await heard(driver, 4, platform)
    files = [each.attachments[0] for each in found]
    assert [each.kind for each in files] == ["image", "document", "voice", "sticker"]
    assert [each.text for each in found] == ["[image: a.png]", "look at it", "[voice: a.ogg]", "[sticker: 😀]"]
    assert (files[1].name, files[1].mime, files[1].size) == ("t.csv", "text/csv", 3)
    assert (files[3].unique, files[3].moving) == (files[3].ref, False)
    assert b"".join([piece async for piece in platform.fetch(files[0])]) == b"a photo"
    for ref in (
        f"mxc://{driver.bot.user_id.partition(':')[2]}/gone",
        "mxc://../../../_matrix/client/v3/account/whoami",
    ):
        with pytest.raises(Refused):
            await anext(platform.fetch(Attachment(kind="document", ref=ref)))


async def test_files_are_sent_as_what_they_are(driver: MatrixDriver, tmp_path: Path) -> None:
    platform, place, ann = driver.connected(), driver.place("ann"), driver.person("ann")
    for name, mime in (("a.png", "image/png"), ("a.csv", "text/csv")):
        (tmp_path / name).write_bytes(name.encode())
        for _ in range(2):  # a repetition appears once
            await platform.send_file(place, Outgoing(tmp_path / name, name, mime, f"*{name}*"), name)
    shown = ann.screen(driver.room("ann")).by(driver.bot.user_id)
    assert [(each.kind, each.content["filename"], each.text) for each in shown] == [
        ("m.image", "a.png", "*a.png*"),
        ("m.file", "a.csv", "*a.csv*"),
    ]
    assert ann.downloads(shown[1].content["url"]) == b"a.csv"


async def test_a_repetition_appears_once_and_what_was_forgotten_is_found(driver: MatrixDriver) -> None:
    """Promise 6: by the transaction for a day; after that, or with a new device, by the key in the message."""
    platform, place = driver.connected(), driver.place("ann")
    numbers = {await platform.send(place, "**hello**", "7-0") for _ in range(2)}
    assert driver.texts("ann") == ["**hello**"]
    (shown,) = driver.person("ann").screen(driver.room("ann")).by(driver.bot.user_id)
    assert shown.content["formatted_body"] == "<strong>hello</strong>"
    for number in range(5):
        driver.bot.says(driver.room("ann"), f"noise {number}")
    assert {await driver.connected(page=2).find(place, "7-0", "hello")} == numbers
    assert await platform.find(place, "8-0", "hello") is None


async def test_an_edit_is_what_is_seen_and_may_go_back(driver: MatrixDriver) -> None:
    platform, place = driver.connected(), driver.place("ann")
    number = await platform.send(place, "one", "7-0")
    for text in ("two", "one", "two", "**one**"):
        await platform.edit(place, number, text)
    (shown,) = driver.person("ann").screen(driver.room("ann")).by(driver.bot.user_id)
    assert (shown.text, shown.content["formatted_body"], shown.edits) == ("**one**", "<strong>one</strong>", 4)


@pytest.mark.parametrize("code", [301, 403, 404])
async def test_a_page_of_something_before_the_homeserver_is_not_its_word(driver: MatrixDriver, code: int) -> None:
    """Promise 6: a bubble that is only unreachable is waited for, and not sent again."""
    place, number = driver.place("ann"), await driver.connected().send(driver.place("ann"), "one", "7-0")
    for path in ("event", "send"):
        driver.proxy.fail("error", path, code=code, errcode="", error="")
        with pytest.raises(TryLater, match=f"HTTP {code}"):
            await driver.connected().edit(place, number, "two")
    await driver.connected().edit(place, number, "two")
    assert driver.texts("ann") == ["two"]


HEAVY = ['"' * 8000, "😀" * 4000, "a\n" * 5333, "`a` " * 4000, "**b**" * 3200, "<&>" * 5333]


async def test_the_heaviest_text_fits_into_an_event(driver: MatrixDriver) -> None:
    platform, place = driver.connected(), driver.place("ann")
    for place_, text in enumerate(HEAVY):
        assert platform.limits.text * 0.99 <= platform.limits.unit(text) <= platform.limits.text
        number = await platform.send(place, text, f"7-{place_}")
        await platform.edit(place, number, text)
    assert driver.texts("ann") == HEAVY


async def test_a_reaction_replaces_ours_and_can_be_taken_away(driver: MatrixDriver) -> None:
    platform, ann, room = driver.connected(), driver.person("ann"), driver.room("ann")
    number = ann.says(room, "hello")
    for mark, seen in (("👀", ["👀"]), ("👀", ["👀"]), ("👍", ["👍"]), ("", [])):
        await platform.react(driver.place("ann"), number, mark)
        assert list(ann.screen(room).message(number).reactions) == seen


async def test_a_choice_is_an_emoji_and_pressing_it_is_the_command(driver: MatrixDriver) -> None:
    ann, bob, team = driver.person("ann"), driver.person("bob"), driver.group("T", "ann", "bob")
    platform, place = driver.connected(), SessionSource(platform="matrix", chat_id=team, chat_type="group")
    choices = [Choice("Yes", "/approve 7"), Choice("No", "/deny 7")]
    numbers = {await platform.ask(place, "May I?", choices, "7-0") for _ in range(2)}
    (shown,) = ann.screen(team).by(driver.bot.user_id)  # a repetition appears once, with its emoji
    assert (numbers, shown.text.splitlines()[-2:]) == ({shown.id}, ["1️⃣ Yes", "2️⃣ No"])
    assert shown.reactions == {"1️⃣": {driver.bot.user_id}, "2️⃣": {driver.bot.user_id}}
    forged = bob.sends(team, "m.room.message", {"msgtype": "m.text", "body": "x", CHOICES: {"1️⃣": "/stop"}})
    ann.reacts(team, forged, "1️⃣")
    for mark in ("👍", "3️⃣"):
        ann.reacts(team, shown.id, mark)
    bob.reacts(team, shown.id, "2️⃣")
    found = await heard(driver, 2, platform)
    assert [(each.text, each.source.user_id) for each in found] == [("x", bob.user_id), ("/deny 7", bob.user_id)]


@pytest.mark.parametrize("call", MARKED_CALLS)
async def test_a_question_shows_the_call_exactly(driver: MatrixDriver, call: str) -> None:
    """Markup is not read in it: `[the docs](https://...)` would hide what else the command does."""
    platform, ann = driver.connected(), driver.person("ann")
    ask = turn_texts.request("run_command", call, 7, 60, approvers=False)
    number = await platform.ask(driver.place("ann"), ask, [Choice("Yes", "/approve 7")], "7-0")
    shown = ann.screen(driver.room("ann")).message(number)
    (code,) = re.findall("<code>(.*?)</code>", shown.content["formatted_body"])
    assert unescape(code).replace("\xa0", " ") == call
    assert f"\n    {call}\n" in shown.text
    assert shown.content["formatted_body"].count("<") == 2 + shown.text.count("\n")  # code, its end, and line breaks


async def test_a_question_that_is_found_gets_the_emoji_that_it_lacks(driver: MatrixDriver) -> None:
    """As after a crash between an approval request and its emoji."""
    platform, ann, place = driver.connected(), driver.person("ann"), driver.place("ann")
    driver.proxy.fail("error", "m.reaction", code=403, errcode="M_FORBIDDEN")
    number = await platform.ask(place, "May I?", [Choice("Yes", "/approve 7"), Choice("No", "/deny 7")], "7-0")
    assert {await platform.find(place, "7-0", "May I?") for _ in range(2)} == {number}
    (shown,) = ann.screen(driver.room("ann")).by(driver.bot.user_id)
    assert shown.reactions == {"1️⃣": {driver.bot.user_id}, "2️⃣": {driver.bot.user_id}}


async def test_a_room_that_was_replaced_goes_on_in_the_new_one(driver: MatrixDriver) -> None:
    """Only if both rooms say so: anybody can claim that a room of theirs continues another one."""
    ann, eve, team = driver.person("ann"), driver.person("eve"), driver.group("Team", "ann", "bob", "eve")
    claim = {"predecessor": {"room_id": team, "event_id": "$x"}}
    wanted = {"invite": [driver.bot.user_id], "creation_content": claim}
    claimed = eve.asks("POST", "/createRoom", json=wanted)["room_id"]
    eve.says(claimed, "we are here now")
    new = ann.asks("POST", f"/rooms/{team}/upgrade", json={"new_version": "10"})["replacement_room"]
    ann.invites(new, driver.bot.user_id)
    ann.says(new, "we are here")
    found = await heard(driver, 3)
    assert {(each.what, each.text, each.source.chat_id, each.of) for each in found} == {
        (Heard.SAID, "we are here now", claimed, None),
        (Heard.MOVED, "", new, team),
        (Heard.SAID, "we are here", new, None),
    }


async def test_what_somebody_took_away_is_not_changed_any_more(driver: MatrixDriver) -> None:
    """The gateway then sends it again; an edit that nobody sees would be a lost answer."""
    platform, place = driver.connected(), driver.place("ann")
    number = await platform.send(place, "one", "7-0")
    driver.person("ann").redacts(driver.room("ann"), number)
    reading = platform.inbound(driver.after)
    assert isinstance(await anext(reading), Inbound)
    waiting = asyncio.ensure_future(anext(reading))
    await driver.proxy.until(lambda: len([each for each in driver.proxy.calls if each.query.get("since")]) == 2)
    for process in (platform, driver.connected()):
        with pytest.raises(Refused, match="deleted"):
            await process.edit(place, number, "two")
    waiting.cancel()


async def test_what_was_sent_can_be_taken_away(driver: MatrixDriver) -> None:
    platform, place = driver.connected(), driver.place("ann")
    number = await platform.send(place, "one", "7-0")
    for _ in range(2):
        await platform.delete(place, number)
    await platform.delete(place, "$gone")
    assert driver.texts("ann") == []


async def test_a_friends_invitation_is_taken_with_what_was_said_before_a_strangers_is_declined(
    driver: MatrixDriver,
) -> None:
    """Promise 11."""
    ann, eve = driver.person("ann"), driver.person("eve")

    async def welcome(source: SessionSource) -> AccessVerdict:
        return AccessVerdict.ALLOWED if source.user_id == ann.user_id else AccessVerdict.PAIR

    bad = eve.direct(driver.bot.user_id)
    good = ann.direct(driver.bot.user_id)
    ann.says(good, "hello, are you there?")
    (found,) = await heard(driver, 1, driver.connected(welcome=welcome))
    assert (found.text, found.source.chat_id) == ("hello, are you there?", good)
    await eve.until(lambda: eve.seen.membership(bad, driver.bot.user_id) == "leave")
    (left,) = [each for each in eve.asks("GET", f"/rooms/{bad}/state") if each.get("state_key") == driver.bot.user_id]
    assert left["content"]["membership"] == "leave"
    assert eve.user_id in left["content"]["reason"]


async def test_nobody_waits_for_a_strangers_slow_server_and_a_join_that_is_limited_is_waited_for(
    driver: MatrixDriver,
) -> None:
    """Promise 9: Synapse lets an account join few rooms at a time, and every wait that it orders is kept to."""
    ann, eve = driver.person("ann"), driver.person("eve")

    async def welcome(source: SessionSource) -> AccessVerdict:
        return AccessVerdict.ALLOWED if source.user_id == ann.user_id else AccessVerdict.SILENT

    driver.says("one", "bob")
    bad, good = eve.direct(driver.bot.user_id), ann.direct(driver.bot.user_id)
    driver.proxy.fail("slow", "leave", seconds=60)
    driver.proxy.fail("flood", "join", retry_after_ms=100, times=8)
    ann.says(good, "hello")
    found = await heard(driver, 2, driver.connected(welcome=welcome))
    assert [each.text for each in found] == ["one", "hello"]
    eve.screen(bad)
    assert eve.seen.membership(bad, driver.bot.user_id) == "invite"


async def test_where_nothing_was_ever_read_history_is_not_answered(driver: MatrixDriver) -> None:
    driver.says("old")
    reading = driver.connected().inbound(None)
    first = await anext(reading)
    assert isinstance(first, ReadTo)
    driver.says("new")
    assert [each.text for each in (await anext(reading),) if isinstance(each, Inbound)] == ["new"]
    await reading.aclose()


async def test_a_reader_that_failed_goes_on_where_it_was_and_one_that_was_left_where_the_store_says(
    driver: MatrixDriver,
) -> None:
    """Promise 1: a room that cannot be read keeps the committed place back; what is behind that place is not all read again."""
    bob, platform = quote(driver.room("bob"), safe=""), driver.connected(poll_s=0.1)
    driver.proxy.fail("server", bob, times=10_000)
    driver.says("one", "bob")
    driver.says("two", "ann")
    reading = platform.inbound(driver.after)
    found = [await anext(reading)]
    driver.proxy.fail("server", "sync")
    with pytest.raises(OutcomeUnknown):
        async with within(WAIT_S, lambda: found):
            await anext(reading)
    driver.proxy.faults.clear()
    again, looks = platform.inbound(driver.after), len(driver.proxy.calls)
    found.append(await anext(again))
    assert [each.text for each in found if isinstance(each, Inbound)] == ["two", "one"]
    assert all(each.query.get("since") for each in driver.proxy.calls[looks:] if each.path.endswith("/sync"))
    left = await heard(driver, 2, platform)  # the last that was given is not committed
    assert {each.text for each in left} == {"one", "two"}
    await again.aclose()


async def test_what_the_server_left_out_is_read_in_its_order(driver: MatrixDriver) -> None:
    ann, room = driver.person("ann"), driver.room("ann")
    driver.after = driver.bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]
    said = [f"m{number}" for number in range(17)]
    for text in said:
        ann.says(room, text)
    found = await heard(driver, len(said), driver.connected(page=5))
    assert [each.text for each in found] == said
    assert [bool(each.cursor) for each in found] == [False] * 16 + [True]


async def test_a_page_of_history_that_shows_us_nothing_is_not_its_end(driver: MatrixDriver) -> None:
    """Messages of people whom the account ignores are left out of a page; a friend's message is behind it."""
    ann, eve, team = driver.person("ann"), driver.person("eve"), driver.group("Team", "ann", "eve")
    ignored: dict[str, Any] = {"ignored_users": {eve.user_id: {}}}
    driver.bot.asks("PUT", f"/user/{driver.bot.user_id}/account_data/m.ignored_user_list", json=ignored)
    driver.after = driver.bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]
    ann.says(team, "first")
    for number in range(12):
        eve.says(team, str(number))
    ann.says(team, "last")
    driver.proxy.fail("limited", limit=1, times=2)
    found = await heard(driver, 2, driver.connected(page=2))
    assert [each.text for each in found] == ["first", "last"]


async def test_in_an_encrypted_room_it_says_once_that_it_cannot_read(driver: MatrixDriver) -> None:
    ann, us = driver.person("ann"), driver.bot.user_id
    room = ann.makes_room("Secret", [us], encrypted=True)
    driver.bot.joins(room)
    for _ in range(2):
        ann.sends(room, "m.room.encrypted", {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x"})
        driver.says("and this")
        await read_all(driver)
    assert ann.screen(room).texts(us) == [NOT_READ]


async def test_in_a_room_that_became_encrypted_nothing_is_said_in_plain_words(driver: MatrixDriver) -> None:
    """Known by its news where it is read, and asked for where it is not."""
    ann, room, place = driver.person("ann"), driver.room("ann"), driver.place("ann")
    reading, old = driver.connected(), driver.connected()
    number = await old.send(place, "one", "1-0")
    ann.says(room, "hello")
    await heard(driver, 1, reading)
    ann.asks("PUT", f"/rooms/{room}/state/m.room.encryption/", json={"algorithm": "m.megolm.v1.aes-sha2"})
    ann.says(room, "in plain words")
    await heard(driver, 2, reading)
    for platform in (reading, old):
        for call in (platform.send(place, "two", "2-0"), platform.edit(place, number, "two")):
            with pytest.raises(Refused, match="encrypted"):
                await call
    assert driver.texts("ann") == ["one"]


async def test_a_file_without_an_address_is_a_file_that_cannot_be_fetched(driver: MatrixDriver) -> None:
    """Its sender gets that notice, as for any other file; and what is no number is no size."""
    ann, room, platform = driver.person("ann"), driver.room("ann"), driver.connected()
    for url in ("", "https://example.org/a.png"):
        ann.says(room, "a.png", msgtype="m.image", url=url, info={"size": True})
    for each in await heard(driver, 2, platform):
        (file,) = each.attachments
        assert (each.text, file.size) == ("[image: a.png]", 0)
        assert type(file.size) is int
        with pytest.raises(Refused, match="address"):
            await anext(platform.fetch(file))


async def test_rooms_have_names_and_one_that_turned_us_out_is_refused(driver: MatrixDriver) -> None:
    platform, ann = driver.connected(), driver.person("ann")
    direct, team = driver.room("ann"), driver.group("Team", "ann", "bob")
    driver.room("bob")
    driver.proxy.fail("error", quote(driver.room("bob"), safe=""), code=403, errcode="M_FORBIDDEN")
    found = {each.chat_id: (each.name, each.chat_type) for each in await platform.channels()}
    assert found == {direct: (ann.user_id[1:].partition(":")[0], "dm"), team: ("Team", "group")}
    ann.kicks(team, driver.bot.user_id)
    with pytest.raises(Refused, match="still in the room"):
        await platform.send(SessionSource(platform="matrix", chat_id=team, chat_type="group"), "hello", "1-0")


async def test_it_notices_that_we_came_into_a_room_or_are_out_of_one(driver: MatrixDriver) -> None:
    platform, ann = driver.connected(), driver.person("ann")
    team, counts = driver.group("Team", "ann"), [platform.channel_changes]
    reading = platform.inbound(driver.after)
    for text in ("one", "two", "three"):
        driver.says(text, "bob")
        async with within(WAIT_S, lambda: counts):
            while not isinstance(each := await anext(reading), Inbound) or each.text != text:
                pass
        counts.append(platform.channel_changes)
        if text == "one":
            ann.kicks(team, driver.bot.user_id)
    assert counts == [0, 2, 3, 3]


async def test_a_token_of_somebody_else_and_a_revoked_one_are_told_with_the_remedy(
    driver: MatrixDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    ann = driver.person("ann")
    platform = driver.connected(token=ann.token)
    with pytest.raises(Refused, match=ann.user_id) as refused:
        await anext(platform.inbound(None))
    gone = driver.connected(token="syt_secret")
    with pytest.raises(TryLater, match="everturn connect matrix"):
        await gone.send(driver.place("ann"), "hello", "1-0")
    away = driver.connected(homeserver="http://127.0.0.1:9")
    with pytest.raises(TryLater) as error:
        await away.send(driver.place("ann"), "hello", "1-0")
    told = "".join([*capsys.readouterr(), str(error.value), str(refused.value)])
    assert driver.bot.token not in told
    assert ann.token not in told
