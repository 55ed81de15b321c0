"""`stepsim doctor`: whether this installation works."""

import typer

from stepsim.cli.terminal import JsonOption, check_outputs, show


def doctor_command(json: JsonOption = None) -> None:
    """Check this installation; exit code 1 if something is broken."""
    from stepsim.show.doctor import Diagnosis, Status, checks_table, diagnose

    check_outputs([], json=json)
    checks = tuple(diagnose())
    show(json, Diagnosis(checks=checks).to_json, [checks_table(checks)])
    if any(check.status is Status.FAILED for check in checks):
        raise typer.Exit(1)
