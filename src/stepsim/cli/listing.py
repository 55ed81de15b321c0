"""`stepsim list`: what can be called by name."""

from typing import Annotated

from stepsim.cli.declared import argument
from stepsim.cli.options import takes
from stepsim.cli.terminal import CsvOption, JsonOption, show


@takes()
def list_command(
    kind: Annotated[
        str | None,
        argument(
            "[KIND]",
            "models, devices, frameworks, topologies, schedules or algorithms.",
            offers="stepsim.files.catalog:catalog_names",
        ),
    ] = None,
    json: JsonOption = None,
    csv: CsvOption = None,
) -> None:
    """List models, devices, topologies and the like by name.

    Without a KIND, print how many there are of each, and their names. `stepsim inspect NAME` says
    more of one.
    """
    from stepsim.base.errors import OutputError
    from stepsim.files.catalog import catalog_names, make_catalog
    from stepsim.views.catalog import catalog_shown, names_shown

    if csv and kind is None:
        raise OutputError("--csv writes one table: name a kind, such as models")
    if kind is None:
        show(json, lambda: make_catalog().to_json(), names_shown(catalog_names()))
        return
    catalog = make_catalog(kind)
    show(json, catalog.to_json, catalog_shown(catalog, kind), csv)
