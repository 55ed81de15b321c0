"""`stepsim list`, and the first page of the help: what there is, on one screen."""

import json
from pathlib import Path

import pytest
from helpers import Run

from stepsim.cli.commands import COMMANDS, first_page
from stepsim.files.catalog import catalog_names, make_catalog
from stepsim.files.load import public_names, read_model
from stepsim.network.collectives import Algorithm
from stepsim.parallel.schedules import BUILDERS


def test_the_first_page_has_sixteen_commands_in_four_groups() -> None:
    page = first_page()
    assert len(page.splitlines()) < 40
    assert max(map(len, page.splitlines())) <= 80
    places = [page.index(f"\n{group}\n") for group in ("Predict", "Explain", "Measured", "Show")]
    assert places == sorted(places)
    grouped = [name for name, listed in COMMANDS.items() if listed.group]
    assert len(grouped) == 16
    assert [line.split()[0] for line in page.splitlines() if line.startswith("  ")] == grouped


def test_help_needs_no_command_and_no_printer_of_help(run: Run) -> None:
    assert run("--help") == (0, first_page(), "")
    assert run() == (2, first_page(), "")


def test_what_is_not_on_the_first_page_works(run: Run) -> None:
    for name in COMMANDS.keys() - {n for n, listed in COMMANDS.items() if listed.group}:
        assert f"`{name}`" in first_page()
        assert run(name, "--help")[0] == 0


def test_a_misspelt_command_is_told_what_was_meant(run: Run) -> None:
    code, _, err = run("simulat", "x")
    assert code == 2
    assert "error: simulat: no such command: did you mean simulate?" in err


def test_all_names_are_listed_by_kind(run: Run) -> None:
    code, out, err = run("list")
    assert (code, err) == (0, "")
    for kind, names in catalog_names().items():
        assert kind in out
        assert all(name in out for name in names)


@pytest.mark.parametrize("kind", catalog_names())
def test_a_kind_is_a_table(run: Run, tmp_path: Path, kind: str) -> None:
    names = catalog_names()[kind]
    code, out, err = run("list", kind, "--csv", tmp_path / "rows.csv")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == names
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == len(names) + 1
    document = json.loads(run("list", kind, "--json", "-")[1])
    assert [each["name"] for each in document[kind]] == names
    assert all(document[other] is None for other in catalog_names() if other != kind)


def test_what_is_said_of_a_name_is_what_its_reader_says() -> None:
    catalog = make_catalog()
    found = {model.name: model for model in catalog.models or ()}
    assert found["llama-3-8b"].layers == read_model("llama-3-8b").architecture.depth == 32
    assert found["llama-3-8b"].parameters == pytest.approx(8.03e9, rel=1e-3)
    assert found["deepseek-v3"].active_parameters < found["deepseek-v3"].parameters
    assert "Megatron" in found["gpt3-175b"].source
    sizes = {topology.name: topology.sizes for topology in catalog.topologies or ()}
    assert sizes["gb200-nvl72"] == ("72", "any")
    devices = {device.name: device for device in catalog.devices or ()}
    assert devices["h100"].memory_bytes == 80 << 30
    assert devices["h100"].topology == "hgx-h100"


def test_what_a_name_was_held_against_stands_beside_it(run: Run) -> None:
    document = json.loads(run("list", "--json", "-")[1])
    devices = {entry["name"]: entry for entry in document["devices"]}
    assert all(entry["evidence"] != "not said" for entry in devices.values())
    shown = run("list", "devices")[1]
    (line,) = (line for line in shown.splitlines() if line.startswith("tpu-v7x "))
    assert "derived" in line
    for entry in document["topologies"]:
        assert (entry["error"] is not None) is (entry["held_times"] > 0)


def test_every_schedule_and_algorithm_has_its_line() -> None:
    catalog = make_catalog()
    assert [each.name for each in catalog.schedules or ()] == list(BUILDERS)
    assert [each.name for each in catalog.algorithms or ()] == list(Algorithm)
    assert all(each.about for each in (*(catalog.schedules or ()), *(catalog.algorithms or ())))


def test_an_unknown_kind_is_one_line(run: Run) -> None:
    code, out, err = run("list", "topology")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "did you mean topologies?" in err
    assert all(kind in err for kind in catalog_names())


def test_no_schedule_has_the_name_of_something_else_to_inspect() -> None:
    names = catalog_names()
    others = [*names["devices"], *names["frameworks"], *names["topologies"], *public_names()]
    assert not set(BUILDERS) & set(others)
