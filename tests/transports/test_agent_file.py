"""The agent as it is sent to a device: one file."""

import ast
import io
import re
import zipfile
from pathlib import Path

import pytest

from catro_deploy.transports.agent_file import agent_file

DOCS = Path(__file__).parents[2] / "docs"


def test_the_agent_imports_only_modules_that_are_sent_with_it():
    with zipfile.ZipFile(io.BytesIO(agent_file())) as archive:
        sent = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in archive.namelist()}
        sources = [archive.read(name) for name in archive.namelist()]

    imports = [node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]

    for_type_checkers = {"catro_deploy.api", "catro_deploy.networks"}
    own = {node.module for node in imports if node.module and node.module.startswith("catro_deploy.")}
    assert own - for_type_checkers <= sent


@pytest.mark.parametrize(
    ("page", "words", "runtime"),
    [
        ("devices.md", r"single file of about (\d+) kB", "onnxruntime"),
        ("devices.md", r"\((\d+) kB with NVIDIA's Polygraphy", "tensorrt"),
        ("tutorials/jetson.md", r"one file of about (\d+) kB", "onnxruntime"),
    ],
)
def test_the_documented_size_is_about_right(page, words, runtime):
    (stated,) = re.findall(words, (DOCS / page).read_text(encoding="utf-8"))
    assert len(agent_file(runtime)) / 1000 == pytest.approx(int(stated), rel=0.15)
