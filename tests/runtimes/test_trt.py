"""Names of TensorRT that the code uses, checked against the real bindings of each version."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import catro_deploy
from tests.doubles.environment import VERSIONS

PACKAGE = Path(catro_deploy.__file__).parent
PARTS = ("runtimes/trt.py", "runtimes/trt_engine.py", "agent/engines.py", "agent/build.py")
SOURCES = [PACKAGE / part for part in PARTS]
MODULES = ("trt", "tensorrt", "self._trt")
# Names of objects in the code, and their classes in TensorRT.
OBJECTS = {
    "builder": "Builder",
    "runtime": "Runtime",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "fault": "ParserError",
    "config": "IBuilderConfig",
    "self._engine": "ICudaEngine",
    "found": "ICudaEngine",
    "self._context": "IExecutionContext",
}
CHECK = """
import json, sys
import tensorrt_bindings as trt
lacking = []
for name in json.load(sys.stdin):
    found = trt
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            lacking.append(name)
            break
json.dump({"version": trt.__version__, "lacking": lacking}, sys.stdout)
"""


def names() -> set[str]:
    """``BuilderFlag.TF32``, ``IExecutionContext.set_input_shape`` and the like, as the sources write them."""
    found = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            base, _, rest = ast.unparse(node).rpartition(".")
            if base in MODULES:
                found.add(rest)
            elif base.rpartition(".")[0] in MODULES:
                found.add(f"{base.rpartition('.')[2]}.{rest}")
            elif base in OBJECTS:
                found.add(f"{OBJECTS[base]}.{rest}")
    return found


def test_every_name_is_in_every_version(tensorrt_anywhere):
    asked = sorted(names())
    assert {"OnnxParser", "ProfilingVerbosity.DETAILED", "IExecutionContext.execute_async_v3", "IProfiler"} <= set(
        asked
    )
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        input=json.dumps(asked),
        env=os.environ | tensorrt_anywhere,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["version"] in VERSIONS
    assert found["lacking"] == []
