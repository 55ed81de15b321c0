"""What has run already, as a page shows it: replayed, or as it was stored; nothing can vary."""

import shlex
from collections.abc import Iterable

from stepsim.explain.report import ResultDocument
from stepsim.measured.profile.events import Profile
from stepsim.measured.step_log import LeafLog
from stepsim.measured.summary import RunSummary
from stepsim.serve.library import Ran
from stepsim.serve.state import file_word
from stepsim.show.page.facts import Plain, document_shown, plain_table, time_fact
from stepsim.show.page.lanes import lanes_of_timeline
from stepsim.show.page.write import recorded_run, taken_apart
from stepsim.show.tables.model import Shown

_AS_IT_RAN = "A measured run, replayed as it ran: stepsim what-if changes runs."
_PROFILE = "A profile, replayed as it ran: stepsim improve says what would help."
_RESULT = "A stored result, as it is: simulate its workload to change it."


def recorded(ran: Ran) -> Plain:
    """All that there is to show of what has run; raises TraceError where it cannot be replayed."""
    if isinstance(ran, ResultDocument):
        return {**document_shown(ran), "lanes": ran.timeline, "as_it_is": _RESULT}
    return _of_profile(ran) if isinstance(ran, Profile) else _of_run(ran)


def recorded_lines(ran: Ran, file: str) -> Plain:
    """The command and the Python lines that show the same."""
    if isinstance(ran, ResultDocument):
        command, python = ["stepsim", "report", file_word(file), "--output", "result.html"], ""
    else:
        command = ["stepsim", "simulate", file_word(file)]
        call = "stragglers" if isinstance(ran, Profile) else "simulate_run"
        python = f"import stepsim\n\nprint(stepsim.{call}({file!r}))\n"
    return {"command": shlex.join(command), "python": python}


def _of_run(run: RunSummary | LeafLog) -> Plain:
    from stepsim.runs.measured import replay_measured
    from stepsim.show.tables.measured import leaf_tables, replay_table

    step = replay_measured(run)
    if isinstance(run, LeafLog):
        shown: Iterable[Shown] = leaf_tables(run, step.report, None).values()
    else:
        shown = [replay_table(run, step.report)]
    _, _, tables, pairs = taken_apart(shown)
    return {
        **document_shown(step.report, tables=[*map(plain_table, tables)], pairs=pairs),
        "lanes": lanes_of_timeline(step.timeline),
        "title": "Simulated",
        "others": [] if isinstance(run, LeafLog) else [recorded_run(run.run, "Measured")],
        "as_it_is": _AS_IT_RAN,
    }


def _of_profile(profile: Profile) -> Plain:
    from stepsim.explain.stragglers import find_stragglers
    from stepsim.measured.profile.pipeline import pipeline_waits
    from stepsim.show.tables.profiles import profile_replay_shown, profile_shown

    found = find_stragglers(pipeline_waits(profile))
    _, _, tables, pairs = taken_apart([*profile_replay_shown(found), *profile_shown(found)])
    steps = {"measured step": found.measured_ps, "replayed": found.replayed_ps}
    facts = [time_fact(name, int(each.mean())) for name, each in steps.items()]
    return {
        **recorded_run(profile),
        "step_ps": facts[0]["value"],
        "facts": facts,
        "job": pairs,
        "tables": [*map(plain_table, tables)],
        "warnings": list(profile.warnings),
        "as_it_is": _PROFILE,
    }
