"""The agent as it is sent to a device."""

import ast
import io
import zipfile

from catro_deploy.transports.agent_file import agent_file


def test_the_agent_imports_only_modules_that_are_sent_with_it():
    with zipfile.ZipFile(io.BytesIO(agent_file())) as archive:
        sent = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in archive.namelist()}
        sources = [archive.read(name) for name in archive.namelist()]

    imports = [node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]

    for_type_checkers = {"catro_deploy.api", "catro_deploy.networks"}
    own = {node.module for node in imports if node.module and node.module.startswith("catro_deploy.")}
    assert own - for_type_checkers <= sent
