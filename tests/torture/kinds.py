"""The kinds of scenarios that can be drawn: each is a function of a seed, and ends with a summary or with an error.

The size of a scenario is fixed: `make torture` draws more of them instead of longer ones, and a seed that failed fails again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from tests.crash.kills import kill_under_load
from tests.crash.matrix_scenario import FAULTS as OF_MATRIX
from tests.crash.matrix_scenario import REVOKED as REVOKED_ON_MATRIX
from tests.crash.matrix_scenario import kill_matrix
from tests.crash.model_kills import kill_model_turns
from tests.crash.random_deaths import Home, die_at_random, files_in, kinds_missing
from tests.crash.stream_scenarios import Totals, run_scenario, run_scenarios
from tests.crash.telegram_deaths import die_under_faults
from tests.crash.telegram_scenario import FAULTS as OF_TELEGRAM
from tests.crash.telegram_scenario import OF_HOOKS, kill_telegram
from tests.crash.telegram_scenario import REVOKED as REVOKED_ON_TELEGRAM
from tests.postgres import PostgresServer, empty_database
from tests.servers import shared_postgres
from tests.sim.variants import simulate_copy, variants
from tests.store.test_machine import drive_machine
from tests.synapse import SynapseServer

COMMON = 10  # a variant that was found within so many seeds


@dataclass(frozen=True)
class Room:
    """Where a scenario happens: an empty folder, and servers when they are asked for."""

    folder: Path
    engine: str = "sqlite"

    @cached_property
    def server(self) -> PostgresServer:
        """The PostgreSQL that all share."""
        return shared_postgres()

    @cached_property
    def database(self) -> str:
        """A database of its own on PostgreSQL."""
        return self.server.create_database()

    @cached_property
    def url(self) -> str:
        """An empty store on the engine."""
        return self.database if self.engine == "postgres" else f"sqlite:///{self.folder / 'everturn.db'}"

    def emptied(self) -> str:
        """An empty store again; on SQLite none, which is a new file for each."""
        if self.engine == "sqlite":
            return ""
        empty_database(self.url)
        return self.url


def kills(room: Room, seed: int) -> str:
    return asyncio.run(kill_under_load(room.folder / "home", room.url, 15, seed))


def model_kills(room: Room, seed: int) -> str:
    return asyncio.run(kill_model_turns(room.folder, room.url, 5, seed))


def telegram_kills(room: Room, seed: int) -> str:
    kinds = (*OF_TELEGRAM * 5, *REVOKED_ON_TELEGRAM)
    return asyncio.run(kill_telegram(room.folder, room.url, 5, seed, kinds))


def telegram_hook_kills(room: Room, seed: int) -> str:
    return asyncio.run(kill_telegram(room.folder, room.url, 4, seed, OF_HOOKS, hooked=True))


def matrix_kills(room: Room, seed: int) -> str:
    with SynapseServer() as synapse:  # its own: it is killed
        return asyncio.run(kill_matrix(room.folder, room.url, 4, synapse, seed, (*OF_MATRIX, *REVOKED_ON_MATRIX)))


def telegram_deaths(room: Room, seed: int) -> str:
    return die_under_faults(room.folder, seed)


def growing(room: Room, seed: int) -> str:
    totals = run_scenarios(seed, 40, room.emptied)
    assert totals.deaths.total() >= totals.scenarios // 4, "they hardly ever die"
    assert totals.faults
    return str(totals)


def growing_single(room: Room, seed: int) -> str:
    """Run one of the scenarios above: the last two digits are its number."""
    totals = Totals()
    run_scenario(seed // 100, seed % 100, totals, room.emptied())
    return str(totals)


def notes(room: Room, seed: int) -> str:
    homes = [*files_in(room.folder), Home(room.database, room.folder / "postgres")]
    die_at_random(homes, 120, seed)
    return f"120 deaths, {len(kinds_missing(homes))} kinds of notes are missing"


def machine(room: Room, seed: int) -> str:
    drive_machine(room.server, room.folder, seed, examples=15, steps=60)
    return "both engines returned and stored the same"


def simulation(_room: Room, seed: int) -> str:
    """New seeds of the simulated world. One that fails is told by `make sim SEED=...`."""
    done = simulate_copy(None, "--first", str(1000 * seed), "--seeds", "200", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


def variants_found(room: Room, seed: int) -> str:
    """Look for a variant with new seeds. Some need hundreds; one that was found with the first ones is found again."""
    variant = variants()[seed % len(variants())]
    copy = variant.plant(room.folder)
    done = simulate_copy(copy, "--first", str(1000 * seed), "--seeds", "200", "--jobs", "1", "--until-one")
    found = "fails" in done.stdout
    assert found or variant.seed > COMMON, f"{variant.name} was not found: {done.stdout}{done.stderr}"
    return f"{variant.name}: {done.stdout.strip().splitlines()[-2 if found else -1]}"


Kind = Callable[[Room, int], str]
ON_ONE: dict[str, Kind] = {
    "telegram-hook-kills": telegram_hook_kills, "telegram-deaths": telegram_deaths, "notes": notes, "machine": machine,
    "simulation": simulation, "variants": variants_found,
}  # fmt: skip
ON_EACH: dict[str, Kind] = {
    "kills": kills, "model-kills": model_kills, "telegram-kills": telegram_kills, "matrix-kills": matrix_kills, "growing": growing,
    "growing-single": growing_single,
}  # fmt: skip


def _on(engine: str, kind: Kind, folder: Path, seed: int) -> str:
    return kind(Room(folder, engine), seed)


KINDS: dict[str, Callable[[Path, int], str]] = {
    **{name: partial(_on, "sqlite", kind) for name, kind in ON_ONE.items()},
    **{
        f"{name}-{engine}": partial(_on, engine, kind)
        for name, kind in ON_EACH.items()
        for engine in ("sqlite", "postgres")
    },
}
DRAWN = [name for name in KINDS if not name.startswith("growing-single")]
