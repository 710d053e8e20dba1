"""`everturn connect matrix` with a real homeserver: from an account to an answer, without a secret being kept or shown."""

import stat
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from everturn.app.platforms import token_of
from everturn.cli.commands import everturn
from everturn.cli.texts import Account, about_account, matrix_steps, refused_by_homeserver
from everturn.settings.config import read_config
from tests.cli.answering import answering
from tests.cli.typist import at_a_terminal
from tests.crash.gateways import Gateway, command
from tests.synapse import Person, SynapseServer


def run(home: Path, *arguments: str, given: str) -> tuple[int, str]:
    result = CliRunner().invoke(everturn, ["connect", "matrix", "--home", str(home), *arguments], input=given)
    return result.exit_code, f"{result.output}{result.exception or ''}"


def by_password(home: Path, bot: Person, password: str) -> tuple[int, str]:
    """As a person does it, at a prompt; `http` is only for a server on this machine."""
    return run(home, "--user", bot.user_id, "--homeserver", bot.url, given=f"{password}\n")


def secret_of(home: Path) -> str:
    own = read_config(home, None, {}, {}).config.platforms.matrix
    return token_of("matrix", own.token, own.token_file, home)


def test_a_password_is_used_once_and_its_device_is_kept(synapse: SynapseServer, tmp_path: Path) -> None:
    bot, home = synapse.stranger("bot"), tmp_path / "home"
    name = bot.user_id[1:].partition(":")[0]
    bot.makes_room(encrypted=True)
    code, told = by_password(home, bot, name)
    own, first = read_config(home, None, {}, {}).config.platforms.matrix, secret_of(home)
    device = (home / "matrix_device").read_text().strip()
    code_again, told_again = by_password(home, bot, name)
    second = secret_of(home)
    with closing(Person(bot.url, bot.user_id, second)) as now:
        known = now.asks("GET", "/account/whoami")
    assert (code, code_again) == (0, 0), told + told_again
    assert (own.enabled, own.homeserver, own.user, own.allow) == (True, synapse.url, bot.user_id, ())
    assert stat.S_IMODE((home / own.token_file).stat().st_mode) == 0o600
    assert (known["user_id"], known["device_id"]) == (bot.user_id, device)
    assert "1 of its 1 rooms are encrypted" in told
    assert "already" in told_again
    assert first != second
    assert not any(secret in told + told_again for secret in (first, second))
    assert not any(f"{name}\n" in file.read_text() for file in home.iterdir() if file.is_file())


def test_an_access_token_is_taken_too(synapse: SynapseServer, tmp_path: Path) -> None:
    bot, home, file = synapse.stranger("bot"), tmp_path / "home", tmp_path / "token"
    file.write_text(bot.token)
    code, told = run(home, "--user", bot.user_id, "--homeserver", bot.url, "--token-file", str(file), given="")
    assert (code, secret_of(home)) == (0, bot.token), told
    assert "in no room yet" in told
    other = synapse.stranger("other")
    code, told = run(
        tmp_path / "b", "--user", other.user_id, "--homeserver", bot.url, "--token-file", "-", given=bot.token
    )
    assert (code, f"not to {other.user_id}" in told) == (1, True)


def test_a_homeserver_that_is_named_is_not_looked_for(tmp_path: Path) -> None:
    answers = {
        "/.well-known/matrix/client": b'{"m.homeserver": {"base_url": "http://127.0.0.1:1"}}',
        "/_matrix/client/versions": b'{"versions": ["v1.11"]}',
        "/_matrix/client/v3/account/whoami": b'{"user_id": "@bot:x", "device_id": "D"}',
        "/_matrix/client/v3/joined_rooms": b'{"joined_rooms": []}',
    }
    with answering(answers) as url:
        code, told = run(tmp_path, "--user", "@bot:x", "--homeserver", url, "--token-file", "-", given="secret")
    assert (code, read_config(tmp_path, None, {}, {}).config.platforms.matrix.homeserver) == (0, url), told


@pytest.mark.parametrize(
    ("user", "where", "more", "text"),
    [
        ("nobody", "", [], "looks like @name:example.org"),
        ("@bot:x", "http://127.0.0.1:1", [], "cannot be reached"),
        ("@bot:x", "{url}/_synapse", [], "no Matrix homeserver"),
        ("@bot:x", "{url}", [], "does not accept"),
        ("@bot:x", "{url}", ["--token-file", "-"], "does not know this access token"),
    ],
)
def test_what_does_not_work_is_explained_and_switches_nothing_on(
    synapse: SynapseServer, tmp_path: Path, user: str, where: str, more: list[str], text: str
) -> None:
    server = ["--homeserver", where.format(url=synapse.url)] if where else []
    code, told = run(tmp_path, "--user", user, *server, *more, given="secret\n")
    assert (code, text in told) == (1, True), told
    assert "secret" not in told
    assert not (tmp_path / "everturn.toml").exists()
    assert not (tmp_path / "matrix_token").exists()


@pytest.mark.prove
async def test_from_one_password_to_an_answer(synapse: SynapseServer, tmp_path: Path) -> None:
    """Connect, start, be declined, be approved, invite again, write: nobody speaks to the agent before."""
    home, file, bot, ann = tmp_path / "home", tmp_path / "password", synapse.stranger("bot"), synapse.stranger("ann")
    file.write_text(bot.user_id[1:].partition(":")[0])
    asked = ("connect", "matrix", "--user", bot.user_id, "--homeserver", synapse.url, "--password-file", str(file))
    async with Gateway(home, settings={}) as gateway:
        assert (await command(*asked, home=home)).code == 0
        await gateway.up()
        room = ann.direct(bot.user_id)
        await ann.until(lambda: ann.seen.membership(room, bot.user_id) == "leave")
        assert (await command("pair", "allow", f"matrix:{ann.user_id}", "--owner", home=home)).code == 0
        ann.invites(room, bot.user_id)
        await ann.until(lambda: ann.seen.membership(room, bot.user_id) == "join")
        ann.says(room, "hello")
        await ann.until(lambda: any("You said: hello" in text for text in ann.screen(room).texts(bot.user_id)))


def test_what_is_missing_is_told_and_what_is_fine_is_not() -> None:
    fine = Account("@b:x", "D", rooms=1, encrypted=0)
    poor = Account("@b:x", "", rooms=2, encrypted=2, plain_http=True)
    assert [len(about_account(fine, "D")), len(about_account(fine, "E")), len(about_account(poor))] == [1, 2, 4]
    assert "restart" in matrix_steps(fine, running=True)[0]
    assert "later" in refused_by_homeserver(502, "")


def test_an_owner_can_be_named_and_is_approved(synapse: SynapseServer, tmp_path: Path) -> None:
    bot, home = synapse.stranger("bot"), tmp_path / "home"
    name = bot.user_id[1:].partition(":")[0]
    where = ("--user", bot.user_id, "--homeserver", bot.url)
    code, told = run(home, *where, "--owner", "@ann:x.example", given=f"{name}\n")
    assert (code, "matrix:@ann:x.example is the owner" in told, "pair allow" in told) == (0, True, False)
    assert read_config(home, None, {}, {}).config.rights.owners == ("matrix:@ann:x.example",)
    assert run(tmp_path / "odd", *where, "--owner", "ann", given="")[0] == 2


@pytest.mark.parametrize(
    ("scenario", "owners"),
    [
        ([("as the owner", "ann\n"), ("'ann' is not an account", "@ann:x.example\n"), ("2. Invite", "")], ("matrix:@ann:x.example",)),
        ([("as the owner", "\n"), ("2. everturn pair allow", "")], ()),
    ],
)  # fmt: skip
def test_who_connects_is_offered_to_be_the_owner(
    synapse: SynapseServer, tmp_path: Path, scenario: list[tuple[str, str]], owners: tuple[str, ...]
) -> None:
    """At a terminal: what is no account is asked for again, and nothing is said to leave it for later."""
    bot, home, file = synapse.stranger("bot"), tmp_path / "home", tmp_path / "token"
    file.write_text(bot.token)
    asked = ["connect", "matrix", "--user", bot.user_id, "--homeserver", bot.url, "--token-file", str(file)]
    seen = at_a_terminal(home, asked, [(shown, list, typed) for shown, typed in scenario])
    assert [f"{each} is the owner" in seen for each in owners] == [True for _ in owners]
    assert read_config(home, None, {}, {}).config.rights.owners == owners
