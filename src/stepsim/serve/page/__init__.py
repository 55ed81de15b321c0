"""The page's text, look and script, and the policy that lets it run nothing else."""

from importlib import resources

from stepsim.show.page.page import content_digest

_SCRIPTS = ("base", "answer", "timeline", "panels", "controls", "explorer")
"""The files of the page's script, in the order in which they run as one."""


def page_and_policy() -> tuple[str, str]:
    """The page in one file, and its content security policy."""
    folder = resources.files(__name__)
    page, style = (
        folder.joinpath(f"explorer.{kind}").read_text("utf-8") for kind in ("html", "css")
    )
    script = "\n".join(folder.joinpath(f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    page = page.replace("/*style*/", style).replace("/*script*/", script)
    allowed = f"script-src {content_digest(script)}; style-src {content_digest(style)}"
    policy = (
        f"default-src 'none'; {allowed}; "
        "connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return page, policy
