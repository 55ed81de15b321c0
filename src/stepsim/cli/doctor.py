"""`stepsim doctor`: whether this installation works."""

import typer

from stepsim.cli.terminal import JsonOption, check_outputs, show


def doctor(json: JsonOption = None) -> None:
    """Check this installation; exit code 1 if something is broken."""
    import msgspec

    from stepsim.doctor import Status, diagnose
    from stepsim.tables import print_checks

    check_outputs([], json=json)
    checks = list(diagnose())
    document = {"checks": checks}
    show(
        json,
        lambda: msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n",
        lambda to: print_checks(to, checks),
    )
    if any(check.status is Status.FAILED for check in checks):
        raise typer.Exit(1)
