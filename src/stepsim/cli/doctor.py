"""`stepsim doctor`: whether this installation works."""

import typer

from stepsim.cli.terminal import JsonOption, check_outputs, show


def doctor(json: JsonOption = None) -> None:
    """Check this installation; exit code 1 if something is broken."""
    from stepsim.show.doctor import Status, diagnose, doctor_json
    from stepsim.show.terminal.tables import print_checks

    check_outputs([], json=json)
    checks = list(diagnose())
    show(json, lambda: doctor_json(checks), lambda to: print_checks(to, checks))
    if any(check.status is Status.FAILED for check in checks):
        raise typer.Exit(1)
