"""What has run already, as a page shows it: replayed, or as it was stored; nothing can vary."""

import shlex

from stepsim.explain.report import ResultDocument
from stepsim.explain.stragglers import find_stragglers
from stepsim.measured.profile.events import Profile
from stepsim.measured.step_log import LeafLog
from stepsim.measured.summary import RunSummary
from stepsim.serve.library import Ran
from stepsim.serve.state import file_word
from stepsim.views.facts import Plain, document_shown
from stepsim.views.pages import Page, profile_page, step_page

_AS_IT_RAN = "A measured run, replayed as it ran: stepsim what-if changes runs."
_PROFILE = "A profile, replayed as it ran: stepsim improve says what would help."
_RESULT = "A stored result, as it is: simulate its workload to change it."


def recorded(ran: Ran) -> Plain:
    """All that there is to show of what has run; raises TraceError where it cannot be replayed."""
    if isinstance(ran, ResultDocument):
        return {**document_shown(ran), "lanes": ran.timeline, "as_it_is": _RESULT}
    if isinstance(ran, Profile):
        page, fixed = profile_page(find_stragglers(ran)), _PROFILE
    else:
        page, fixed = _replay_page(ran), _AS_IT_RAN
    return {**page.answer(), "heading": "", "said": [], "network": None, "as_it_is": fixed}


def _replay_page(run: RunSummary | LeafLog) -> Page:
    """A measured run beside its replay."""
    from stepsim.runs.measured import replay_measured
    from stepsim.views.measured import replay_table

    step = replay_measured(run)
    return step_page(step, None, run.run, [replay_table(run, step.report)])


def recorded_lines(ran: Ran, file: str) -> Plain:
    """The command and the Python lines that show the same."""
    if isinstance(ran, ResultDocument):
        command, python = ["stepsim", "report", file_word(file), "--output", "result.html"], ""
    else:
        command = ["stepsim", "simulate", file_word(file)]
        call = "stragglers" if isinstance(ran, Profile) else "simulate_run"
        python = f"import stepsim\n\nprint(stepsim.{call}({file!r}))\n"
    return {"command": shlex.join(command), "python": python}
