"""A page in headless Chromium: what it looks like from inside, on a screen of any width."""

import json
import re
import shutil
import subprocess
from html import unescape

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-client-side-phishing-detection",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=3000",
]

# Before the page's own scripts: errors, and what the page's policy forbids, which is every request.
BEFORE = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(`error: ${event.message}`));
addEventListener("securitypolicyviolation", (event) => problems.push(`request: ${event.blockedURI}`));
</script>"""

# After them: uses every chart as a person would, and tells what it saw.
AFTER = """<script>
addEventListener("load", () => {
  const seen = { problems, charts: {}, width: innerWidth };
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const figure of document.querySelectorAll(".chart")) {
    const svg = figure.querySelector(":scope > svg");
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect().height);
    const move = (type) =>
      svg.dispatchEvent(new PointerEvent(type, { clientX: box.left + box.width * 0.9, clientY: box.top + 50 }));
    move("pointermove");
    const tip = figure.querySelector(".tip");
    const hover = tip.classList.contains("hidden") ? "" : tip.innerText;
    move("pointerleave");
    const key = figure.querySelector(".key");
    if (key) key.click();
    seen.charts[figure.id] = {
      hover,
      tip_left: tip.classList.contains("hidden"),
      hidden: svg.querySelectorAll(".series.hidden").length,
      width: box.width,
      height: box.height,
      smallest_text: Math.min(...texts),
      paths: [...svg.querySelectorAll(".series path")].map((path) => path.getTotalLength()),
    };
    if (key) key.click();
  }
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>"""

HOST = """<!doctype html><script>
onmessage = (event) => {
  const seen = document.createElement("pre");
  seen.id = "seen";
  seen.textContent = event.data;
  document.body.append(seen);
};
</script><body><iframe src="probed.html" style="width:{width}px;height:900px;border:0"></iframe></body>"""


def chromium():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def look(page, folder, width):
    """Opens a page in a frame of some width; gives what `AFTER` saw, and what Chromium complained about."""
    assert page.count("<head>") == 1
    (folder / "probed.html").write_text(page.replace("<head>", f"<head>{BEFORE}").replace("</body>", f"{AFTER}</body>"))
    host = folder / "host.html"
    host.write_text(HOST.replace("{width}", str(width)))
    command = [chromium(), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", host.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page did not come up: {done.stderr[-2000:]}"
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(found.group(1))), complaints
