"""What a browser shows of a page: what it complains of and asks for, what can hardly be seen."""

import json
import time
from collections.abc import Callable
from typing import Any

from stepsim.show.palette import contrast

Seen = list[tuple[str, str, str]]
"""What is seen, and its colour and that of what is below it, as #rrggbb."""

_SEEN = """
const found = [];
function look(what, ink, from, least) {
  let under = from, paper = "rgba(0, 0, 0, 0)";
  for (; under && /, 0\\)$/.test(paper); under = under.parentElement) {
    paper = getComputedStyle(under).backgroundColor;
  }
  found.push([what, ink, paper, least]);
}
for (const one of document.querySelectorAll("body *")) {
  if (!one.checkVisibility() || one.closest("script, style, .stale, :disabled")) continue;
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const style = getComputedStyle(one), words = one.textContent.trim().slice(0, 30);
  if (own && !one.closest("svg")) look(words, style.color, one, 4.5);
  const ring = one.matches(".idle") && style.boxShadow.match(/rgb\\([^)]*\\)/)[0];
  const dyed = ".bar > *, .swatch", ink = ring || style.backgroundColor;
  if (one.matches(dyed)) look(words || one.title, ink, one.parentElement, 3);
  if (one.matches("svg .wire")) look("wire", style.stroke, one.closest("svg"), 3);
  if (one.matches("svg .hub, svg .gpu")) look("link", style.fill, one.closest("svg"), 3);
}
const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const hex = (colour) => {
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const parts = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  return "#" + parts.map((n) => n.toString(16).padStart(2, "0")).join("");
};
return found.map(([what, ink, paper, least]) => [what, hex(ink), hex(paper), least]);
"""


def faint(driver: Any, *, least: int = 1) -> Seen:
    """Words of a contrast below 4.5 and marks of one below 3, where at least so many are seen."""
    seen = driver.execute_script(_SEEN)
    assert len(seen) >= least
    return [(what, ink, paper) for what, ink, paper, most in seen if contrast(ink, paper) < most]


def complaints(driver: Any) -> list[str]:
    return [each["message"] for each in driver.get_log("browser") if each["level"] != "INFO"]


def requests(driver: Any) -> list[str]:
    """Addresses asked for since the page was opened, but for files and what a page holds."""
    events = [json.loads(each["message"])["message"] for each in driver.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"].endswith("WillBeSent")]
    own = ("file:", "data:", "blob:", "chrome:", "about:")
    return [url for url in sent if not url.startswith(own)]


def wait_for(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.05)
    return found


def resize(driver: Any, width: int, height: int = 900) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def emulate(driver: Any, scheme: str) -> None:
    """Ask pages to be `light` or `dark`, or nothing of them."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
