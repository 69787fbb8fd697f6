"""The page in a real browser."""

import html
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from catro_deploy.records.figures import GroupFigures
from catro_deploy.report.charts import widths_chart
from catro_deploy.report.html import to_html
from tests.report.made import (
    make_bench,
    make_finetune,
    make_reconstruction,
    make_recovery,
    make_report,
    make_timed_plan,
    make_verify,
)

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]
NAMES = (*(f"End of no passing by vehicles over {i} metric tons" for i in range(42)), "x" * 80)
MEASURE = """<!doctype html><body><iframe style="width:360px;height:800px;border:0" srcdoc="%s"></iframe><script>
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument;
  page.querySelectorAll("details").forEach(one => one.open = true);
  const sideways = one => one.scrollWidth > one.clientWidth;
  document.title = "width " + page.documentElement.scrollWidth + " of " + page.documentElement.clientWidth
    + (sideways(page.querySelector(".scroll")) ? ", figures cut" : "");
});
</script></body>"""


def many_classes():
    solved = make_reconstruction(60, left={"x" * 80: "its weight is computed, " * 9})
    plan = make_timed_plan(classes=NAMES, groups=60, reconstruction=solved)
    verify = make_verify(classes=NAMES, recovery=make_recovery())
    return to_html(make_report(plan, verify, make_bench(original_us=123_456_789), finetune=make_finetune(40)))


def chromium(folder, page, *flags):
    quiet = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    quiet += " disable-component-update disable-sync hide-scrollbars disable-dev-shm-usage"
    command = [BROWSER, *(f"--{flag}" for flag in quiet.split()), f"--user-data-dir={folder / 'profile'}", *flags]
    return subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout


def test_a_phone_never_scrolls_sideways(tmp_path):
    page = tmp_path / "phone.html"
    page.write_text(MEASURE % html.escape(many_classes()), encoding="utf-8")

    dom = chromium(tmp_path, page, "--dump-dom", "--virtual-time-budget=5000")

    assert re.search(r"<title>width \d+ of \d+.*</title>", dom), dom[:200]
    assert "<title>width 360 of 360</title>" in dom  # and the table of figures shows all of its columns


@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_the_page_is_painted_in_both_schemes(tmp_path, scheme):
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(many_classes(), encoding="utf-8")

    settings = f"--blink-settings=preferredColorScheme={scheme}"
    chromium(tmp_path, page, f"--screenshot={picture}", "--window-size=1000,2400", settings)

    pixels = np.asarray(Image.open(picture).convert("RGB"))
    assert pixels.shape == (2400, 1000, 3)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100
    corner = pixels[5, 5].mean()
    assert corner < 60 if scheme == 0 else corner > 200


def test_a_chart_of_many_rows_is_printed_on_one_page(tmp_path):
    style = re.search("<style>.*</style>", many_classes(), re.DOTALL)
    assert style
    groups = [GroupFigures(f"layer{number}", (), 16, 8, None, None, "", ()) for number in range(62)]
    page, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    page.write_text(f"<!doctype html>{style[0]}<main><h2>Widths</h2>{widths_chart(groups)}</main>", encoding="utf-8")

    chromium(tmp_path, page, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")

    assert len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) == 1
