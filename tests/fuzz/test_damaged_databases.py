"""A damaged or hostile database is refused, or gives the same results."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sweeps import Quick, exported, study

from stepsim.base.errors import StepsimError, SweepError
from stepsim.explore.sweep import open_for_reading, run_sweep
from stepsim.explore.sweep.sound import ROW_DIGEST, row_digest, seal
from stepsim.explore.sweep.store import SweepProgress


def half_done(path: Path) -> None:
    """The database of a sweep that was stopped after some of its scenarios."""

    def stop(progress: SweepProgress) -> None:
        if progress.done >= 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(study(), path, jobs=1, evaluators=(Quick(),), progress=stop)


def damage_and_resume(folder: Path, tries: int) -> dict[str, int]:
    """What becomes of a sweep after each of so many damages of one byte."""
    whole, made, damaged = (folder / f"{name}.sqlite" for name in ("whole", "made", "damaged"))
    run_sweep(study(), whole, jobs=1, evaluators=(Quick(),))
    expected = exported(whole)
    half_done(made)
    data, chance = made.read_bytes(), random.Random(tries)
    used = [place for place, byte in enumerate(data) if byte]
    found = {"refused": 0, "the same": 0}
    for _ in range(tries):
        anywhere = chance.random() < 0.2
        place = chance.randrange(len(data)) if anywhere else chance.choice(used)
        flip = chance.randrange(1, 256)
        damaged.write_bytes(data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
        try:
            run_sweep(study(), damaged, resume=True, jobs=1, evaluators=(Quick(),))
            result = exported(damaged)
        except StepsimError:
            found["refused"] += 1
        else:
            assert result == expected, (place, flip)
            found["the same"] += 1
        for name in ("", "-wal", "-shm", "-journal"):
            Path(f"{damaged}{name}").unlink(missing_ok=True)
    return found


def test_a_damaged_byte_changes_no_result(tmp_path: Path) -> None:
    found = damage_and_resume(tmp_path, 25)
    assert found["refused"] > 5


@pytest.mark.slow
def test_many_damaged_bytes_change_no_result(tmp_path: Path) -> None:
    found = damage_and_resume(tmp_path, 500)
    print(found)
    assert sum(found.values()) == 500


HOSTILE = [
    "UPDATE result SET step_time_ps = -5 WHERE id = 0",
    "UPDATE result SET step_time_ps = 'many' WHERE id = 0",
    "UPDATE result SET step_time_ps = 0.5 WHERE id = 0",
    "UPDATE result SET bubble_fraction = NULL WHERE id = 0",
    "UPDATE result SET compute_ps = 'many' WHERE id = 0",
    "UPDATE result SET error = x'00' WHERE id = 0",
    "UPDATE result SET pipeline_time_ps = -5 WHERE id = 0",
    "UPDATE result SET bubble_fraction = 9e999 WHERE id = 0",
    "UPDATE result SET bubble_fraction = -0.5 WHERE id = 0",
    "UPDATE result SET total_bandwidth = 9e999 WHERE id = 0",
    "UPDATE result SET compute_ps = -5 WHERE id = 0",
    "UPDATE sweep SET workload = printf('%.*c', 3000000, 'x')",
    "UPDATE axis SET name = printf('%.*c', 3000000, 'x')",
    "UPDATE axis_value SET text = printf('%.*c', 3000000, 'x')",
    "UPDATE axis_value SET value = -1",
    "UPDATE result SET error = printf('%.*c', 3000000, 'x') WHERE id = 0",
    "CREATE TABLE more (a)",
    "CREATE INDEX quick ON result (step_time_ps)",
    "CREATE TRIGGER slow AFTER INSERT ON result BEGIN INSERT INTO result SELECT * FROM ("
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n); END",
    "DROP VIEW scenario",
]


@pytest.mark.parametrize("statement", HOSTILE)
def test_a_hostile_database_is_refused(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    half_done(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("row_digest", -1, row_digest)
        connection.execute(statement)
        if "TRIGGER" not in statement:
            connection.execute(f"UPDATE result SET digest = {ROW_DIGEST}")
        connection.execute("UPDATE seal SET digest = ?", (seal(connection),))
    for refused in (
        lambda: open_for_reading(path),
        lambda: run_sweep(study(), path, resume=True, jobs=1, evaluators=(Quick(),)),
    ):
        if statement.startswith("DROP VIEW"):
            refused()  # nobody but people reads it
            continue
        with pytest.raises(SweepError, match="damaged") as error:
            refused()
        assert len(str(error.value)) < 1500
