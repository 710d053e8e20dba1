"""Makes a home as an older version of Everturn left it: the schema of that time, and rows that its code wrote."""

import shutil
from pathlib import Path

from everturn.store.engines import SCHEMA
from everturn.store.interface import Op, sql
from everturn.store.open import open_store

HOMES = Path(__file__).parent / "homes"


async def make_old_home(url: str, name: str, folder: Path) -> None:
    """Fill an empty database with the rows of `homes/NAME.sql`; the number in its name is that of its schema."""
    then = int(name.split("_")[1])
    for engine in ("sqlite", "postgres"):
        (folder / engine).mkdir(parents=True)
        for each in sorted((SCHEMA / engine).glob("*.sql"))[:then]:
            shutil.copy(each, folder / engine)
    store = await open_store(url, schema=folder)
    await store.run(_written, (HOMES / f"{name}.sql").read_text(encoding="utf-8"))
    await store.close()


def _written(text: str) -> Op[None]:
    for statement in text.partition("\n")[2].removesuffix(";\n").split(";\n"):
        yield sql(statement)
